// SPDX-License-Identifier: MIT
#include <attile/core/sram_tiles.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>

#include "support/catch.h"

namespace {

using attile::backward_tile_bytes;
using attile::FittingTiles;
using attile::forward_tile_bytes;
using attile::largest_backward_tiles;
using attile::largest_forward_tiles;
using attile::sram_tiles;
using attile::SramTiles;

// Shared memory of a block: compute capability 8.6, 8.9 and 12.0; 8.0; 9.0 and 10.0.
constexpr int kKilobytes[] = {99, 163, 227};
constexpr int kHeadDims[] = {64, 96, 128, 256};

constexpr bool equal(SramTiles a, SramTiles b) {
  return a.br == b.br && a.bc == b.bc && a.forward_bytes == b.forward_bytes &&
         a.backward_bytes == b.backward_bytes && a.forward_fits == b.forward_fits &&
         a.backward_fits == b.backward_fits;
}

// By hand, for 227 KB: M = 58112 floats, Bc = ceil(M / 256) = 227; Q and O take 8192 floats, K and
// V 29056, S 14528: 51776 in all.
static_assert(equal(sram_tiles(232448, 64, 4), {64, 227, 207104, 397824, true, false}));
// Bc = ceil(113.5): the four tiles alone take 58368 floats, more than there are.
static_assert(equal(sram_tiles(232448, 128, 4), {114, 114, 285456, 512544, false, false}));
static_assert(equal(sram_tiles(232448, 256, 4), {57, 57, 246468, 434568, false, false}));
static_assert(equal(sram_tiles(232448, 128, 2), {128, 227, 239872, 446976, false, false}));
// What the paper names, the 192 KB of an A100's multiprocessor, in fp16: M = 98304, 384 * 256.
static_assert(equal(sram_tiles(196608, 64, 2), {64, 384, 163840, 319488, true, false}));

TEST_CASE("sram_tiles.the_paper_rule_and_what_fits") {
  for (const int kilobytes : kKilobytes) {
    for (int d = 1; d <= 256; ++d) {
      for (const std::size_t element : {std::size_t{4}, std::size_t{2}}) {
        const std::size_t bytes = std::size_t{1024} * kilobytes;
        const double m = static_cast<double>(bytes) / static_cast<double>(element);
        const SramTiles tiles = sram_tiles(bytes, d, element);
        CAPTURE(kilobytes, d, element);
        CHECK(4.0 * d * tiles.bc >= m);
        CHECK(4.0 * d * (tiles.bc - 1) < m);
        CHECK(tiles.br == attile::min(tiles.bc, d));
        CHECK_FALSE(tiles.backward_fits);
        // 2 d^2 + 3 d Bc <= M, and Bc is M / 4d and less than 1 more.
        if (8.0 * d * d + 12 * d <= m) CHECK(tiles.forward_fits);
        if (8.0 * d * d > m) CHECK_FALSE(tiles.forward_fits);
      }
    }
  }
}

TEST_CASE("sram_tiles.forward_fits_on_227_KB_up_to_which_head_dim") {
  for (const int d : kHeadDims) {
    CHECK(sram_tiles(232448, d, 4).forward_fits == (d == 64));
    CHECK(sram_tiles(232448, d, 2).forward_fits == (d <= 96));
  }
}

// Forward: Q, K (or P, where that is larger), V. A line of 64 floats takes 16 * 16 bytes, padded
// 17 * 16; D = 256 has no padding in K.
static_assert(forward_tile_bytes(64, 64, 64) == 64 * 256 + 64 * 272 + 64 * 256);
static_assert(forward_tile_bytes(64, 64, 128) == 128 * 256 + 128 * 272 + 64 * 512);
static_assert(forward_tile_bytes(64, 64, 256) == 256 * 256 + 256 * 256 + 64 * 1024);
static_assert(forward_tile_bytes(128, 64, 64) == 64 * 512 + 64 * 528 + 64 * 256);
static_assert(forward_tile_bytes(64, 64, 128, 64) == 128 * 256 + 128 * 272 + 64 * 256);
// Backward: rows of 64 floats, padded, take 17 * 16 bytes, of 256 floats 65 * 16.
static_assert(backward_tile_bytes(32, 64, 64) == 2 * 96 * 272 + 2 * 32 * 272);
static_assert(backward_tile_bytes(16, 16, 256) == 4 * 16 * 1040 + 2 * 16 * 80);

/// Holds the rule's answer against every pair that it may give.
template <class BytesOf>
void check_largest(FittingTiles got, std::size_t sram_bytes, bool prefer_br, BytesOf bytes_of) {
  int pairs = 0, better = 0;
  for (int br = 16; br <= 128; br += 16) {
    for (int bc = 16; bc <= 128; bc += 16) {
      if (bytes_of(br, bc) > sram_bytes) continue;
      ++pairs;
      better += br * bc > got.br * got.bc;
      better += br * bc == got.br * got.bc && (prefer_br ? br > got.br : bc > got.bc);
    }
  }
  CHECK(better == 0);
  CHECK((pairs > 0) == (got.br > 0));
  if (pairs == 0) return;
  CHECK(got.br % 16 == 0);
  CHECK(got.bc % 16 == 0);
  CHECK(got.bytes == bytes_of(got.br, got.bc));
  CHECK(got.bytes <= sram_bytes);
}

TEST_CASE("sram_tiles.largest_tiles_that_fit") {
  for (const int kilobytes : {1, 20, 48, 64, 99, 163, 227}) {
    for (const int d : {1, 20, 64, 96, 128, 256}) {
      for (const int dv : {0, 32, 256}) {
        const std::size_t bytes = std::size_t{1024} * kilobytes;
        CAPTURE(kilobytes, d, dv);
        check_largest(largest_forward_tiles(bytes, d, dv), bytes, true,
                      [&](int br, int bc) { return forward_tile_bytes(br, bc, d, dv); });
        check_largest(largest_backward_tiles(bytes, d, dv), bytes, false,
                      [&](int br, int bc) { return backward_tile_bytes(br, bc, d, dv); });
      }
    }
  }
}

TEST_CASE("sram_tiles.nothing_fits_one_kilobyte") {
  CHECK(largest_forward_tiles(1024, 64).br == 0);
  CHECK(largest_backward_tiles(1024, 64).bytes == 0);
}

std::string tile(int br, int bc) { return std::to_string(br) + " x " + std::to_string(bc); }

/// Rounded up, so that above 100 is what does not fit.
std::string percent(std::size_t bytes, std::size_t of) {
  return std::to_string(attile::ceil_div(100 * bytes, of)) + " %";
}

TEST_CASE("sram_tiles.the_table_in_the_documents") {
  std::ifstream file(ATTILE_DOCS "/algorithm.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const int kilobytes : kKilobytes) {
    for (const int d : kHeadDims) {
      const std::size_t bytes = std::size_t{1024} * kilobytes;
      std::string line = "| " + std::to_string(kilobytes) + " KB | " + std::to_string(d) + " |";
      for (const std::size_t element : {std::size_t{4}, std::size_t{2}}) {
        const SramTiles t = sram_tiles(bytes, d, element);
        line += " " + tile(t.br, t.bc) + ": " + percent(t.forward_bytes, bytes) + ", " +
                percent(t.backward_bytes, bytes) + " |";
      }
      const FittingTiles forward = largest_forward_tiles(bytes, d);
      const FittingTiles backward = largest_backward_tiles(bytes, d);
      line += " " + tile(forward.br, forward.bc) + " | " + tile(backward.br, backward.bc) + " |\n";
      INFO("docs/algorithm.md lacks the line " << line);
      CHECK(text.find(line) != std::string::npos);
    }
  }
}

}  // namespace
