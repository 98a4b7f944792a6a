// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/element.h>
#include <attile/core/tensor.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <vector>

#include "support/cases.h"
#include "support/own_lengths.h"

namespace attile_test {

/// A NaN whose bits no computation makes.
template <attile::Element T>
T poison() {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(std::uint32_t{0x7FDEAD55});
  } else {
    return std::bit_cast<T>(std::uint16_t{std::is_same_v<T, __half> ? 0x7EAD : 0x7FDE});
  }
}

template <class T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// Host memory that an executor may have to bring to a device and back.
struct Region {
  void* data;
  std::size_t bytes;
};

/// Elements between two guards. Everything is poison until it is filled.
template <attile::Element T>
class Buffer {
 public:
  static constexpr std::int64_t kGuard = 256;  // a multiple of 16 bytes, so bases stay aligned

  explicit Buffer(std::int64_t elements = 0) : storage_(elements + 2 * kGuard, poison<T>()) {}

  T* data() { return storage_.data() + kGuard; }
  const T* data() const { return storage_.data() + kGuard; }
  Region region() { return {storage_.data(), storage_.size() * sizeof(T)}; }
  std::vector<T>& storage() { return storage_; }
  const std::vector<T>& storage() const { return storage_; }

  void repoison() { storage_.assign(storage_.size(), poison<T>()); }

  /// What an input holds where nobody may look: NaN and inf in turn.
  void fill_gaps_of_input() {
    for (std::size_t i = 0; i < storage_.size(); i += 2) {
      if (same_bits(storage_[i], poison<T>())) storage_[i] = attile::from_float<T>(attile::kInf);
    }
  }

  bool equals(const std::vector<T>& other) const {
    return storage_.size() == other.size() &&
           std::memcmp(storage_.data(), other.data(), storage_.size() * sizeof(T)) == 0;
  }

 private:
  std::vector<T> storage_;
};

/// Which tensor of a problem.
enum class Role { kQ, kK, kV, kO, kDout, kDq, kDk, kDv };

constexpr bool is_key_or_value(Role r) {
  return r == Role::kK || r == Role::kV || r == Role::kDk || r == Role::kDv;
}
constexpr bool is_output(Role r) {
  return r == Role::kO || r == Role::kDq || r == Role::kDk || r == Role::kDv;
}

struct Shape {
  int batch, heads, rows, dim;

  std::int64_t elements() const { return std::int64_t{batch} * heads * rows * dim; }
};

/// Where the elements of a tensor lie in a buffer.
struct Placement {
  std::int64_t first = 0;  ///< the element (0, 0, 0, 0)
  std::int64_t batch_stride = 0, head_stride = 0, row_stride = 0;
  std::int64_t elements = 0;  ///< of the buffer

  std::int64_t at(int batch, int head, int row, int c) const {
    return first + batch * batch_stride + head * head_stride + row * row_stride + c;
  }
};

inline Placement place(Layout layout, Role role, const Shape& s) {
  const std::int64_t B = s.batch, H = s.heads, R = s.rows, D = s.dim;
  const Placement rows_of_all_heads{0, R * H * D, D, H * D, B * R * H * D};
  const Placement heads_apart{0, H * R * D, R * D, D, B * R * H * D};
  switch (layout) {
    case Layout::kBhsd:
      return heads_apart;
    case Layout::kMixed:
      return static_cast<int>(role) % 2 == 0 ? rows_of_all_heads : heads_apart;
    case Layout::kBhsdOut:
      return role == Role::kO || role == Role::kDout || role == Role::kDk ? heads_apart
                                                                          : rows_of_all_heads;
    case Layout::kPadded: {
      const std::int64_t head = (D + 7) / 8 * 8 + 8, row = H * head + 16, batch = (R + 5) * row;
      return {0, batch, head, row, B * batch};
    }
    case Layout::kUnaligned: {
      const std::int64_t head = D + 1 + D % 2, row = H * head + 3, batch = R * row + 1;
      return {1, batch, head, row, B * batch + 1};
    }
    case Layout::kSliced: {
      const std::int64_t every = role == Role::kK ? 2 : 1;
      const std::int64_t dim = role == Role::kQ || role == Role::kDq ? 2 * D : D;
      const std::int64_t heads = role == Role::kO || role == Role::kDk ? 2 * H : H;
      const std::int64_t row = heads * dim;
      return {dim - D, R * every * row, dim, every * row, B * R * every * row};
    }
    case Layout::kReversed: {
      const std::int64_t last_row = R > 0 ? (R - 1) * H * D : 0;
      return {last_row, R * H * D, D, -H * D, B * R * H * D};
    }
    case Layout::kBroadcast:
      if (role == Role::kK || role == Role::kV) return {0, 0, D, H * D, R * H * D};
      if (role == Role::kDout) return {0, 0, 0, 0, D};
      return rows_of_all_heads;
    case Layout::kCapacity: {
      const std::int64_t head = (R + 150) * D;
      return {0, H * head, head, D, B * H * head};
    }
    case Layout::kOddStrides: {
      Placement odd = rows_of_all_heads;
      if (B == 1) odd.batch_stride = 7;
      if (H == 1) odd.head_stride = 5;
      if (R == 1) odd.row_stride = 3;
      return odd;
    }
    case Layout::kPacked:    // the problem overrides q, k, v and their gradients
    case Layout::kOneCache:  // and k and v
    case Layout::kBshd:
      return rows_of_all_heads;
  }
  std::abort();
}

/// A tensor of a problem: a view of a buffer that it may share.
template <attile::Element T>
struct TestTensor {
  const char* name = "";
  Role role{};
  Buffer<T>* buffer = nullptr;
  Shape shape{};
  Placement placement{};
  bool null_when_empty = false;
  const PackedRows* packed = nullptr;  ///< where each sequence's rows lie, if they have own lengths

  attile::Tensor<T> view() const {
    T* data =
        placement.elements == 0 && null_when_empty ? nullptr : buffer->data() + placement.first;
    return {data, placement.batch_stride, placement.head_stride, placement.row_stride};
  }

  /// Calls visit(element, index in the dense tensor) in dense order, for the rows that there are.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (int b = 0; b < shape.batch; ++b) {
      const int first = packed == nullptr ? 0 : packed->begin(b);
      const int rows = packed == nullptr ? shape.rows : packed->length[b];
      for (int h = 0; h < shape.heads; ++h) {
        for (int i = first; i < rows; ++i) {
          const std::int64_t index =
              ((std::int64_t{b} * shape.heads + h) * shape.rows + i) * shape.dim;
          const attile::RowOrigin row =
              packed == nullptr ? attile::RowOrigin{b, i} : packed->place(b, i);
          const std::int64_t at = placement.at(row.batch, h, row.row, 0);
          for (int c = 0; c < shape.dim; ++c) visit(buffer->data()[at + c], index + c);
        }
      }
    }
  }

  /// Dense; 0 where there is no row.
  std::vector<double> gather() const {
    std::vector<double> dense(shape.elements());
    for_each([&](T& x, std::int64_t i) { dense[i] = attile::to_float(x); });
    return dense;
  }
};

}  // namespace attile_test
