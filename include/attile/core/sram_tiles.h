// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/math.h>

#include <cstddef>

namespace attile {

/// Holds the tiles that FlashAttention-1 takes for an on-chip memory, and the memory that they
/// need.
/// Units    bytes: of whole tiles in the element type, and no less than the algorithm keeps; fp32
///          sums of 16-bit elements would take more, and so would m, l and rowsum(dO * O).
struct SramTiles {
  int br = 0;                      ///< rows of Q in a tile
  int bc = 0;                      ///< rows of K and V in a tile
  std::size_t forward_bytes = 0;   ///< Q, O: Br x d; K, V: Bc x d; S, and P in S's memory: Br x Bc
  std::size_t backward_bytes = 0;  ///< Q, dO, dQ: Br x d; K, V, dK, dV: Bc x d; P, dS: Br x Bc
  bool forward_fits = false;       ///< forward_bytes are no more than the memory has
  bool backward_fits = false;
};

/// Returns the tiles of FlashAttention-1's own rule, for a memory of M elements:
///   Bc = ceil(M / 4d),  Br = min(Bc, d)
///                                                              [arXiv 2205.14135, Alg. 1, line 1]
/// It makes four tiles of Bc x d fill M, and bounds S by M / 4. So the forward tiles fit with S
/// only where 8 d^2 <= M or so, and the backward ones never: K, V, dK, dV fill M by themselves. See
/// docs/algorithm.md, "Tiles from the size of the SRAM".
/// Units    sram_bytes: of one block; head_dim >= 1; element_bytes: of one element, >= 1.
constexpr SramTiles sram_tiles(std::size_t sram_bytes, int head_dim, std::size_t element_bytes) {
  const std::size_t m = sram_bytes / element_bytes;
  const std::size_t d = static_cast<std::size_t>(head_dim);
  const std::size_t bc = ceil_div(m, 4 * d);
  const std::size_t br = min(bc, d);

  SramTiles tiles;
  tiles.br = static_cast<int>(br);
  tiles.bc = static_cast<int>(bc);
  tiles.forward_bytes = element_bytes * (2 * br * d + 2 * bc * d + br * bc);
  tiles.backward_bytes = element_bytes * (3 * br * d + 4 * bc * d + 2 * br * bc);
  tiles.forward_fits = tiles.forward_bytes <= sram_bytes;
  tiles.backward_fits = tiles.backward_bytes <= sram_bytes;
  return tiles;
}

/// Holds tiles of the portable kernels, and the shared memory that their traits ask for.
struct FittingTiles {
  int br = 0;  ///< 0 where not even the smallest tiles fit
  int bc = 0;
  std::size_t bytes = 0;
};

namespace detail {

/// Return the bytes of a shared tile of floats (tile::SharedTile), `lines` lines of `length`
/// floats: a line takes whole 16-byte units, padded an odd number of them.
constexpr std::size_t plain_tile_bytes(int lines, int length) {
  return static_cast<std::size_t>(16 * lines * ceil_div(length, 4));
}
constexpr std::size_t padded_tile_bytes(int lines, int length) {
  return static_cast<std::size_t>(16 * lines * (ceil_div(length, 4) | 1));
}

/// Returns the pair with the largest product for which bytes_of(x, y) fits; of equal ones the
/// larger x.
template <class BytesOf>
constexpr FittingTiles largest_tiles(std::size_t sram_bytes, BytesOf bytes_of) {
  constexpr int kStep = 16, kMost = 128;
  FittingTiles best;
  for (int x = kStep; x <= kMost; x += kStep) {
    for (int y = kStep; y <= kMost; y += kStep) {
      const std::size_t bytes = bytes_of(x, y);
      if (bytes <= sram_bytes && x * y >= best.br * best.bc) best = {x, y, bytes};
    }
  }
  return best;
}

}  // namespace detail

/// Returns the shared memory of the portable forward kernel, `ForwardTraits::kSharedBytes`, for any
/// element type: Q and K by columns, K padded up to D = 128; V by rows; P by columns, padded, in
/// the memory of K.
/// Units    all sizes >= 1, head_dim_v 0 for head_dim; bytes.
constexpr std::size_t forward_tile_bytes(int br, int bc, int head_dim, int head_dim_v = 0) {
  const int d = round_up(head_dim, 4);
  const int dv = head_dim_v == 0 ? d : round_up(head_dim_v, 4);
  const std::size_t q = detail::plain_tile_bytes(d, br);
  const std::size_t k =
      d > 128 ? detail::plain_tile_bytes(d, bc) : detail::padded_tile_bytes(d, bc);
  const std::size_t v = detail::plain_tile_bytes(bc, dv);
  const std::size_t p = detail::padded_tile_bytes(bc, br);
  return q + max(k, p) + v;
}

/// Returns the shared memory of the portable backward kernels, `BackwardTraits::kKvSharedBytes`,
/// for any element type: Q, dO, K, V, P and dS, all by rows and padded.
/// Units    as in forward_tile_bytes.
constexpr std::size_t backward_tile_bytes(int br, int bc, int head_dim, int head_dim_v = 0) {
  const int d = round_up(head_dim, 4);
  const int dv = head_dim_v == 0 ? d : round_up(head_dim_v, 4);
  const std::size_t q = detail::padded_tile_bytes(br, d);
  const std::size_t dout = detail::padded_tile_bytes(br, dv);
  const std::size_t k = detail::padded_tile_bytes(bc, d);
  const std::size_t v = detail::padded_tile_bytes(bc, dv);
  const std::size_t p = detail::padded_tile_bytes(br, bc);
  return q + dout + k + v + 2 * p;
}

/// Returns the largest tiles of the portable forward kernel that fit: Br and Bc are multiples of 16
/// up to 128 (256 threads then hold 64 scores each), and the pair is the one with the most scores,
/// Br * Bc, to a barrier; of equal ones that with the larger Br, because K and V are loaded once
/// for each Br rows of Q. The largest are not always the fastest: `portable::DefaultForwardTraits`
/// has measured ones.
/// Units    as in forward_tile_bytes; sram_bytes: of one block.
constexpr FittingTiles largest_forward_tiles(std::size_t sram_bytes, int head_dim,
                                             int head_dim_v = 0) {
  return detail::largest_tiles(
      sram_bytes, [=](int br, int bc) { return forward_tile_bytes(br, bc, head_dim, head_dim_v); });
}

/// Returns the same for the portable backward kernels; of equal ones that with the larger Bc,
/// because Q and dO are loaded, and dQ is added to, once for each Bc columns.
/// Units    as in largest_forward_tiles.
constexpr FittingTiles largest_backward_tiles(std::size_t sram_bytes, int head_dim,
                                              int head_dim_v = 0) {
  const FittingTiles tiles = detail::largest_tiles(sram_bytes, [=](int bc, int br) {
    return backward_tile_bytes(br, bc, head_dim, head_dim_v);
  });
  return {tiles.bc, tiles.br, tiles.bytes};
}

}  // namespace attile
