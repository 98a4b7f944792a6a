// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/boxed_tensor.h>
#include <attile/arch/bulk_tensor.cuh>
#include <attile/core/args.h>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/sequences.h>
#include <attile/core/status.h>
#include <attile/core/tensor.h>
#include <attile/core/work_tile.h>
#include <attile/tile/tensor_map.cuh>

#include <cuda_runtime.h>

#include <climits>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <type_traits>

namespace attile::sm90 {

using tile::boxed;

/// Says how the batches of tensors, or their pages, are counted by another axis, where sequences
/// have lengths of their own: batch b adds b * rows to a row's number, or b * heads to a head's.
struct BatchFold {
  int rows = 0, heads = 0;
};

/// The number of rows of a `ragged` tensor's maps, and the coordinate of its last dimension.
inline constexpr int kRaggedRows = 1 << 30;

/// Returns the same tensor for boxes that end with their sequence, where sequences have lengths of
/// their own: rows of a box behind a sequence's last one are zeros, and are not written, although
/// those of its neighbour follow. For row r of a sequence of n rows that begins at row b the
/// coordinates are
///   end  b + n, row  kRaggedRows - n + r, last  kRaggedRows,
/// and the copy stops at row kRaggedRows, that is where r = n. The strides of `end` and `row` are
/// that of a row; kRaggedRows times that of the last dimension is 2^64 bytes less kRaggedRows rows,
/// so that in addresses of 64 bits the sum is row b + r. The tensor's own address stays that of the
/// map, because copies fault where a map's address is not mapped. Where batches can be counted
/// neither by rows nor by heads as `fold` says, `data` becomes null, which arch::boxable refuses.
/// Shapes   (dim, end, row, head, last).
inline arch::BoxedTensor ragged(arch::BoxedTensor boxed, BatchFold fold) {
  const std::int64_t rows = boxed.size[2], heads = boxed.size[3], batches = boxed.size[4];
  // The stride of an axis with one element is used by nothing but batches that are counted by it.
  if (rows <= 1 && fold.rows == 0) boxed.stride_bytes[2] = 16;
  if (heads == 1 && fold.heads == 1) boxed.stride_bytes[3] = boxed.stride_bytes[4];
  const std::int64_t stride = boxed.stride_bytes[2], batch_stride = boxed.stride_bytes[4];
  constexpr std::int64_t kWrap = std::int64_t{1} << 34;  // kRaggedRows times it is 2^64
  const std::int64_t folded =
      fold.rows > 0 ? fold.rows * stride : fold.heads * boxed.stride_bytes[3];  // of a batch
  const bool folds = batches == 1 || batch_stride == folded;
  if (!folds || stride <= 0 || stride >= kWrap) boxed.data = nullptr;
  boxed.size[1] = (batches - 1) * fold.rows + rows + 1;
  boxed.stride_bytes[1] = stride;
  boxed.size[2] = rows > 0 ? kRaggedRows : 0;
  boxed.size[3] = (batches - 1) * fold.heads + heads;
  if (boxed.size[1] > INT_MAX || boxed.size[3] > INT_MAX) boxed.data = nullptr;
  boxed.size[4] = kRaggedRows + 1;
  boxed.stride_bytes[4] = kWrap - stride;
  return boxed;
}

/// Finds the boxes of a sequence's rows in tensor maps: of dense tensors, or where sequences have
/// lengths of their own of `ragged` ones.
template <class SequencesType>
class SequenceBoxes {
 public:
  /// Names the maps whose batches are counted in one way: of Q, of O or dO, of K and V, and of
  /// their gradients.
  enum Map { kQ, kO, kKv, kDk, kDv };

  template <class Args>
  SequenceBoxes(const Args& a, int heads, int heads_of_keys) {
    if constexpr (!kUniform) {
      const RowShape q_shape = a.sequences.q_shape(a.batch, a.q_len);
      const RowShape kv_shape = a.sequences.kv_shape(a.batch, a.kv_len);
      folds_.of[kQ] = fold(q_shape, heads, a.q);
      folds_.of[kKv] = fold(kv_shape, heads_of_keys, a.k, a.v);
      if constexpr (Args::kIsForward) {
        folds_.of[kO] = fold(q_shape, heads, a.o);
      } else {
        folds_.of[kO] = fold(q_shape, heads, a.dout);
        folds_.of[kDk] = fold(kv_shape, heads_of_keys, a.dk);
        folds_.of[kDv] = fold(kv_shape, heads_of_keys, a.dv);
      }
    }
  }

  /// Returns a tensor as its map has it.
  arch::BoxedTensor of([[maybe_unused]] Map map, const arch::BoxedTensor& boxed) const {
    if constexpr (!kUniform) return ragged(boxed, folds_.of[map]);
    return boxed;
  }

  /// Return the coordinates of a work tile's rows, from column col0 on, and of its keys, from key
  /// key0 on, in a map. `head`: as the map counts heads. A box of rows that begins below row 0 must
  /// lie wholly before it, as the parts do that a work tile lacks (StaticSchedule). Where sequences
  /// have lengths of their own its coordinates are those of zeros, since the sequence before may
  /// have rows there.
  ATTILE_DEVICE arch::TmaCoord rows(Map map, const WorkTile& at, int head, int col0 = 0) const {
    if constexpr (kUniform) {
      return {col0, 0, at.row0, head, at.sequence};
    } else {
      return box(folds_.of[map], at.q_origin, at.extent.q_len, head, at.row0, col0);
    }
  }
  ATTILE_DEVICE arch::TmaCoord keys(Map map, const WorkTile& at, int key0) const {
    static_assert(!kPaged, "attile::sm90: a box of pages is found by keys_in_page");
    if constexpr (kUniform) {
      return {0, 0, key0, at.kv_head, at.sequence};
    } else {
      return box(folds_.of[map], at.kv_origin, at.extent.kv_len, at.kv_head, key0, 0);
    }
  }
  /// Returns the coordinates of `rows` keys from key0 on, which lie in one page: those of zeros
  /// where no row of the work tile may see any of them, so that their page is not looked up.
  ATTILE_DEVICE arch::TmaCoord keys_in_page(const SequencesType& sequences, const WorkTile& at,
                                            int key0, int rows) const {
    static_assert(kPaged, "attile::sm90: only keys in pages are found page by page");
    const int end = min(key0 + rows, at.extent.kv_len);
    const int key = max(key0, at.first_key);
    if (key >= end) return {0, 0, kRaggedRows, 0, kRaggedRows};
    const RowOrigin found = sequences.kv_row(at.kv_origin, key);
    const int row0 = found.row - (key - key0);
    return box(folds_.of[kKv], {found.batch, 0}, row0 + end - key0, at.kv_head, row0, 0);
  }

 private:
  static constexpr bool kUniform = SequencesType::kUniform;
  static constexpr bool kPaged = kIsPaged<SequencesType>;
  struct Nothing {};
  struct Folds {
    BatchFold of[kDv + 1];
  };

  /// Returns how the batches of all these tensors are counted: not at all, where all are the same
  /// memory; by rows, where the rows of each batch follow those of the batch before; by heads,
  /// likewise, or where there is one; else by as many rows, or heads, as they are apart. `ragged`
  /// refuses tensors that this does not fit. A bound of one row is no exception: the bound may not
  /// choose the kernel.
  template <class... Ts>
  static BatchFold fold(RowShape shape, int heads, const Ts&... tensors) {
    if (shape.batches <= 1 || ((tensors.batch_stride == 0) && ...)) return {};
    const auto are_apart = [&](std::int64_t count, auto stride_of) {
      return count > 0 && count <= INT_MAX &&
             ((tensors.batch_stride == count * stride_of(tensors)) && ...);
    };
    const auto row_stride = [](const auto& t) { return t.row_stride; };
    const auto head_stride = [](const auto& t) { return t.head_stride; };
    if (are_apart(shape.rows, row_stride)) return {shape.rows, 0};
    if (heads == 1 || are_apart(heads, head_stride)) return {0, heads};
    const auto times = [&](auto stride_of) {
      const auto& first = std::get<0>(std::tie(tensors...));
      const std::int64_t stride = stride_of(first);
      return stride > 0 ? first.batch_stride / stride : 0;
    };
    const std::int64_t rows_apart = times(row_stride), heads_apart = times(head_stride);
    if (are_apart(rows_apart, row_stride)) return {static_cast<int>(rows_apart), 0};
    if (are_apart(heads_apart, head_stride)) return {0, static_cast<int>(heads_apart)};
    return {0, heads};
  }
  ATTILE_DEVICE static arch::TmaCoord box(BatchFold fold, RowOrigin origin, int length, int head,
                                          int row0, int col0) {
    return {col0, origin.batch * fold.rows + origin.row + length,
            row0 < 0 ? kRaggedRows : kRaggedRows - length + row0, head + origin.batch * fold.heads,
            kRaggedRows};
  }

  [[no_unique_address]] std::conditional_t<kUniform, Nothing, Folds> folds_{};
};

/// Returns the reason why TMA cannot address the tensors of a pass.
inline Check not_boxable(Direction direction) {
  return refuse(direction == Direction::kForward
                    ? "the sm90 kernels copy q, k, v and o in boxes: their addresses and strides "
                      "must be multiples of 16 bytes, and strides above 0 and below 2^40 bytes"
                    : "the sm90 kernels copy q, k, v, dout, dk and dv in boxes: their addresses "
                      "and strides must be multiples of 16 bytes, and strides above 0 and below "
                      "2^40 bytes");
}
/// Returns the rows of a box of K and V, of tiles of `bc` keys. Where keys lie in pages it is the
/// most that divide a page and a tile, so that a box lies in one page.
template <class Args>
int box_keys(const Args& args, int bc) {
  if constexpr (kIsPaged<typename Args::SequencesType>) {
    return std::gcd(args.sequences.kv_shape(args.batch, args.kv_len).rows, bc);
  } else {
    return bc;
  }
}
/// Returns the reason why TMA cannot copy keys in pages, or none. A tile's rows are 8 apart where
/// its layout repeats.
template <class Args>
Check check_pages(const Args& args, int bc) {
  if constexpr (kIsPaged<typename Args::SequencesType>) {
    if (box_keys(args, bc) % 8 != 0) {
      return refuse(
          "the sm90 kernels copy pages in boxes of rows: the greatest common divisor of page_size "
          "and Bc must be a multiple of 8");
    }
    if (!keys_begin_pages(args.sequences)) {
      return refuse(
          "the sm90 kernels copy pages in boxes of rows: each sequence's first key must be the "
          "first one of a page");
    }
  }
  return {};
}
/// Returns the reason why the sm90 kernels do not take V by columns, of which each sequence would
/// have to begin, and end, at a multiple of 16 keys.
inline Check columns_not_boxable() {
  return refuse(
      "the sm90 kernels take v by columns, with v_col_stride, only where all sequences have one "
      "length");
}
/// Returns the reason why TMA would write past the rows of a pass's results.
inline Check not_storable(Direction direction) {
  return refuse(direction == Direction::kForward
                    ? "the sm90 kernels write o in units of 16 bytes: its rows, head_dim_v "
                      "elements, must be multiples of 16 bytes"
                    : "the sm90 kernels write dk and dv in units of 16 bytes: their rows, head_dim "
                      "and head_dim_v elements, must be multiples of 16 bytes");
}
/// Returns the driver's error in making tensor maps, with the reason, or no error.
inline Check check_maps(cudaError_t error) {
  if (error == cudaSuccess) return {};
  return {error, "the CUDA driver makes no tensor maps of q, k, v, o, dout, dk or dv"};
}

}  // namespace attile::sm90
