// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace attile::arch {

/// Describes a tensor of five dimensions in device memory, the first one contiguous, and the box of
/// it that one copy moves. Units: elements; bytes.
struct BoxedTensor {
  const void* data;
  std::int64_t size[5];
  std::int64_t stride_bytes[5];  ///< from one element to the next; [0] is the size of an element
  int box[5];
};

/// Says where in a tensor a box begins: in elements, beginning with the contiguous dimension, in
/// which the coordinate is a multiple of 16 bytes (a device stops with an illegal instruction
/// otherwise). Elements of a box outside the tensor read as zeros, count as loaded bytes, and are
/// not written; stores write units of 16 bytes (see `storable`).
struct TmaCoord {
  int c0, c1, c2, c3, c4;
};

/// Returns why copies cannot address a tensor, or null where they can: its data and strides are
/// multiples of 16 bytes, the strides of dimensions with more than one element are positive and
/// less than 2^40, and its sizes are at most 2^32.
inline const char* box_fault(const BoxedTensor& tensor) {
  if (tensor.data == nullptr) return "TMA copies no tensor whose address is null";
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % 16 != 0) {
    return "TMA copies tensors whose address is a multiple of 16 bytes";
  }
  for (int i = 0; i < 5; ++i) {
    if (tensor.size[i] < 1 || tensor.size[i] > std::int64_t{1} << 32) {
      return "TMA copies tensors that have 1 to 2^32 batches, heads, rows and columns";
    }
    if (i == 0 || tensor.size[i] == 1) continue;
    const std::int64_t stride = tensor.stride_bytes[i];
    if (stride % 16 != 0) {
      return "TMA copies tensors whose batches, heads and rows are multiples of 16 bytes apart";
    }
    if (stride <= 0 || stride >= std::int64_t{1} << 40) {
      return "TMA copies tensors whose strides are above 0 and below 2^40 bytes";
    }
  }
  return nullptr;
}

/// Returns whether copies can address a tensor.
inline bool boxable(const BoxedTensor& tensor) { return box_fault(tensor) == nullptr; }

/// Returns whether copies can also write a tensor. A store writes whole units of 16 bytes: where a
/// row ends inside a unit, it overwrites the memory behind the row. A load has zeros there.
inline bool storable(const BoxedTensor& tensor) {
  return boxable(tensor) && tensor.size[0] * tensor.stride_bytes[0] % 16 == 0;
}

}  // namespace attile::arch
