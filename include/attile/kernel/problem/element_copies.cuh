// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/work_tile.h>
#include <attile/tile/matrix.cuh>

#include <type_traits>

// A score modifier's elements as threads copy tiles of them, 16 bytes at a time.

namespace attile {

/// Returns the elements of a work tile's head as a matrix whose column 0 is that of key col0. It
/// ends with the sequence's own rows and keys: memory need not go on behind these.
/// What chose the kernel has made sure that their addresses are those of vectors.
template <class Params>
ATTILE_DEVICE auto elements_of(const Params& p, const WorkTile& at, int col0) {
  const auto x = p.policies.score_mod.elements();
  const Extent extent = p.extent(at);
  constexpr int kVectors = 1;
  return tile::AlignedMatrix<std::remove_pointer_t<decltype(x.data)>>{
      {x.data + at.sequence * x.batch_stride + at.head * x.head_stride + col0, x.row_stride,
       extent.q_len, extent.kv_len - col0, kVectors}};
}

}  // namespace attile
