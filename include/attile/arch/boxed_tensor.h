// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace attile::arch {

/// A tensor of five dimensions in device memory, the first one contiguous, and the box of it that
/// one copy moves. Units: elements; bytes.
struct BoxedTensor {
  const void* data;
  std::int64_t size[5];
  std::int64_t stride_bytes[5];  ///< from one element to the next; [0]: an element's own bytes
  int box[5];
};

/// Where in a tensor a box begins: in elements, from the contiguous dimension on, in which 16 bytes
/// divide it (a device stops with an illegal instruction otherwise). What lies outside of the
/// tensor reads as zeros, counts as brought, and is not written; stores go by units of 16 bytes
/// (see `storable`).
struct TmaCoord {
  int c0, c1, c2, c3, c4;
};

/// Whether copies can address it: data and strides are multiples of 16 bytes, the strides of
/// dimensions with more than one element positive and less than 2^40, sizes at most 2^32.
inline bool boxable(const BoxedTensor& tensor) {
  if (tensor.data == nullptr || reinterpret_cast<std::uintptr_t>(tensor.data) % 16 != 0) {
    return false;
  }
  for (int i = 0; i < 5; ++i) {
    if (tensor.size[i] < 1 || tensor.size[i] > std::int64_t{1} << 32) return false;
    if (i == 0 || tensor.size[i] == 1) continue;
    const std::int64_t stride = tensor.stride_bytes[i];
    if (stride % 16 != 0 || stride <= 0 || stride >= std::int64_t{1} << 40) return false;
  }
  return true;
}

/// Whether copies can write it, too. A store moves whole units of 16 bytes: where a row ends inside
/// of one it writes what lies behind, whoever owns it. A load has zeros there.
inline bool storable(const BoxedTensor& tensor) {
  return boxable(tensor) && tensor.size[0] * tensor.stride_bytes[0] % 16 == 0;
}

}  // namespace attile::arch
