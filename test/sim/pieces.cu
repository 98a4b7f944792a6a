// SPDX-License-Identifier: MIT
// The pieces that own kernels have beside those of the library's kernels: register tiles of every
// kind to device memory and back, whatever its rows and columns, pieces cut out of shared memory,
// modifiers whose columns are read ahead, dropout's decisions, and tensor maps. Runs on a GPU and
// on the machine.
#include <attile/core/bias.h>
#include <attile/tile_wgmma.cuh>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "instructions.h"

namespace {

using namespace instructions;
namespace tile = attile::tile;
namespace arch = attile::arch;

constexpr int kRows = 64, kMostCols = 256, kWarps = 4, kThreads = kWarps * arch::kWarpSize;
constexpr int kSlack = 16;  // elements of a row of the matrix behind its columns

void fail(const char* name, const char* what) {
  std::printf("failed: %s: %s\n", name, what);
  std::exit(1);
}

/// Loads a tile of registers from rows `row0` on of a matrix, and stores twice of it.
template <class Registers, class T>
ATTILE_KERNEL void copy_twice(tile::TensorParam<const T> from, tile::TensorParam<T> to, int rows,
                              int cols, int row0) {
  Registers registers;
  tile::load(registers, from.slice(0, 0, rows, cols), row0);
  tile::store(to.slice(0, 0, rows, cols), registers, row0, 2.0f);
}

/// Does the same by way of shared memory, behind a piece of an odd size.
template <class Registers, class T>
ATTILE_KERNEL void copy_staged(tile::TensorParam<const T> from, tile::TensorParam<T> to, int rows,
                               int cols, int row0) {
  using Odd = tile::SharedTile<3, 5>;
  using Staged = tile::PanelTile<kRows, Registers::kCols, T>;
  tile::SharedCarver carver{arch::dynamic_shared()};
  const auto odd = carver.take<Odd>();
  const auto staged = carver.take<Staged>();
  if (arch::thread_index() == 0) odd.at(2, 4) = 1.0f;
  Registers registers;
  tile::load(registers, from.slice(0, 0, rows, cols), row0);
  registers.for_each([](int, int, float& x) { x *= 2.0f; });
  tile::store_staged(to.slice(0, 0, rows, cols), staged, registers, row0);
}

/// Loads a wide tile, each of whose halves is an MmaTile, and stores it.
template <class Wide, class T>
ATTILE_KERNEL void copy_wide(tile::TensorParam<const T> from, tile::TensorParam<T> to, int rows,
                             int cols, int row0) {
  Wide wide;
  const tile::Matrix<const T> source = from.slice(0, 0, rows, cols);
  tile::load(wide.low, source, row0);
  tile::load(wide.high,
             tile::Matrix<const T>{source.data + Wide::kLowCols, source.row_stride, rows,
                                   cols - Wide::kLowCols, source.vectors},
             row0);
  tile::store(to.slice(0, 0, rows, cols), wide, row0, 2.0f);
}

/// Runs a copy of matrices with so many columns, of which the last rows are not there.
template <class T, class Kernel>
void copies(const char* name, Kernel kernel, int cols, int misaligned, std::size_t shared_bytes) {
  constexpr int kThere = 51, kRow0 = 9;
  const int stride = kMostCols + kSlack;
  const std::vector<T> in = example::normal<T>(std::size_t(stride) * kRows + 1, 1);
  const std::vector<T> before(in.size(), attile::from_float<T>(-7.0f));
  const example::DeviceArray<T> in_dev(in), out_dev(before);
  const auto param = [&](auto* data) {
    using X = std::remove_pointer_t<decltype(data)>;
    return tile::tensor_param(attile::Tensor<X>{data + misaligned, 0, 0, stride}, cols);
  };
  const auto from = param(static_cast<const T*>(in_dev.get()));
  const auto to = param(out_dev.get());
  if (to.vectors != (misaligned == 0 && cols % (16 / int{sizeof(T)}) == 0)) fail(name, "vectors");
  example::must(
      arch::launch(kernel, 1, kThreads, shared_bytes, nullptr, from, to, kThere, cols, kRow0),
      name);
  example::must(cudaDeviceSynchronize(), name);
  const std::vector<T> out = out_dev.download();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int at = static_cast<int>(i) - misaligned, row = at / stride, col = at % stride;
    const bool there = at >= 0 && row >= kRow0 && row < kThere && col < cols;
    const float expected = there ? attile::to_float(in[i]) * 2.0f : -7.0f;
    if (attile::to_float(out[i]) != expected) fail(name, "an element is wrong");
  }
}

template <class T>
void copies_of() {
  using Fma = tile::RegisterTile<kRows, 128, kThreads / tile::kColLanes, 4, 4>;
  using FmaRuns = tile::RegisterTile<kRows, 96, kThreads / tile::kColLanes, 2, 2>;
  using Mma = tile::MmaTile<kRows, 128, kWarps>;
  using MmaN = tile::MmaTile<kRows, 128, kWarps, 2>;
  using MmaLanes = tile::MmaTile<kRows, 128, kWarps, 1, 4>;
  using Wide = tile::WideTile<kRows, 192, kWarps>;
  using Staged = tile::PanelTile<kRows, 128, T>;
  constexpr std::size_t kBytes = tile::shared_bytes<tile::SharedTile<3, 5>, Staged>;
  static_assert(kBytes == Staged::kAlignment + Staged::kBytes);
  for (const int misaligned : {0, 1}) {
    for (const int cols : {128, 120, 101, 1}) {
      copies<T>("RegisterTile", copy_twice<Fma, T>, cols, misaligned, 0);
      copies<T>("MmaTile", copy_twice<Mma, T>, cols, misaligned, 0);
      copies<T>("MmaTile, two warps a row", copy_twice<MmaN, T>, cols, misaligned, 0);
      copies<T>("MmaTile, four columns a lane", copy_twice<MmaLanes, T>, cols, misaligned, 0);
      copies<T>("store_staged", copy_staged<Mma, T>, cols, misaligned, kBytes);
    }
    copies<T>("RegisterTile, runs of 2", copy_twice<FmaRuns, T>, 96, misaligned, 0);
    for (const int cols : {192, 131, 128, 100}) {
      copies<T>("WideTile", copy_wide<Wide, T>, cols, misaligned, 0);
    }
  }
}

/// Applies a modifier to scores, by each of the three ways, and writes what comes out.
template <class S>
ATTILE_KERNEL void modify(std::uint32_t* words, S mod, attile::Extent extent, int col0) {
  using Scores = tile::MmaTile<kRows, 32, kWarps>;
  const tile::TileCoord coord{1, 2, 16, col0, extent};
  attile::Policies<attile::Causal, S> policies;
  policies.score_mod = mod;
  const auto write = [&](int way, const auto& apply) {
    Scores scores;
    scores.for_each([](int r, int c, float& s) { s = float(r * 7 - c * 5) / 16.0f; });
    apply(scores);
    scores.for_each([&](int r, int c, float& s) { words[(way * kRows + r) * 32 + c] = bits(s); });
  };
  write(0, [&](Scores& s) { tile::modify_and_mask<true>(s, coord, policies, 0.25f); });
  const tile::Modifier<Scores, tile::TileCoord, S> modifier(coord, mod, 0.25f);
  write(1, [&](Scores& s) { tile::modify_and_mask(s, coord, modifier, policies, false); });
  const tile::PreloadedModifier<Scores, tile::TileCoord, S> ahead(coord, mod, 0.25f);
  write(2, [&](Scores& s) { tile::modify_and_mask(s, coord, ahead, policies, false); });
}

/// The three ways give the same bits, at the last row and column too.
template <class S>
void modifies(const char* name, const S& mod) {
  for (const int kv_len : {100, 70}) {
    const example::DeviceArray<std::uint32_t> out{Words(3 * kRows * 32)};
    const attile::Extent extent{70, kv_len};
    example::must(arch::launch(modify<S>, 1, kThreads, 0, nullptr, out.get(), mod, extent, 64),
                  name);
    example::must(cudaDeviceSynchronize(), name);
    const Words words = out.download();
    bool shown = false;
    for (std::size_t i = 0; i < kRows * 32; ++i) {
      const int row = 16 + static_cast<int>(i) / 32, col = 64 + static_cast<int>(i) % 32;
      const bool seen =
          row < extent.q_len && attile::Causal{}.visible({1, 2, row, col}, extent) && col < kv_len;
      if (row < extent.q_len && (words[i] == as<std::uint32_t>(-attile::kInf)) == seen) {
        fail(name, "hidden");
      }
      if (!seen) continue;
      shown = true;
      if (words[i] != words[kRows * 32 + i] || words[i] != words[2 * kRows * 32 + i]) {
        fail(name, "the ways differ");
      }
    }
    if (!shown) fail(name, "no score is shown");
  }
}

/// What TMA cannot address is refused with a sentence, and nothing is made.
void maps() {
  using Tile = tile::PanelTile<64, 64, __half>;
  const example::DeviceArray<__half> data(std::vector<__half>(64 * 64));
  const auto refuses = [](const char* what, const attile::Check& ok, const char* part) {
    if (ok || std::strstr(ok.why, part) == nullptr) fail("make_map", what);
  };
  arch::TensorMap map;
  const attile::Tensor<__half> whole =
      attile::bhsd(data.get(), {.rows = 64, .heads = 1, .dim = 64});
  if (!tile::make_map<Tile>(map, whole, {1, 64}, 1, 64)) fail("make_map", "a whole tensor");
  refuses("dim", tile::make_map<Tile>(map, whole, {1, 64}, 1, 65), "dim must be");
  refuses("no rows", tile::make_map<Tile>(map, whole, {1, 0}, 1, 64), "1 to 2^32 batches");
  refuses(
      "an odd address",
      tile::make_map<Tile>(map, attile::Tensor<__half>{data.get() + 1, 0, 0, 64}, {1, 8}, 1, 64),
      "whose address");
  refuses("rows of 60 apart",
          tile::make_map<Tile>(map, attile::Tensor<__half>{data.get(), 0, 0, 60}, {1, 8}, 1, 60),
          "apart");
  refuses("rows of 63", tile::make_map<Tile>(map, whole, {1, 8}, 1, 63), "is written");
  const attile::Tensor<const __half> read = whole;
  if (!tile::make_map<Tile>(map, read, {1, 8}, 1, 63)) fail("make_map", "rows that are read");
}

/// Writes dropout's decisions for a tile of scores as each way of keeping them has them: 1 where a
/// score is kept, 0 where it is dropped.
ATTILE_KERNEL void keep(float* out, attile::PhiloxDropout dropout) {
  using Scores = tile::MmaTile<kRows, 32, kWarps>;
  using Rows = tile::TransposedRegisters<Scores>;  // 32 rows, kRows columns
  const auto sampler = dropout.sampler(4);
  using Sampler = std::remove_const_t<decltype(sampler)>;
  const tile::TileCoord coord{1, 2, 16, 48, {200, 200}};
  Scores ones;
  for (auto& row : ones.x) {
    for (float& x : row) x = 1.0f;
  }
  tile::RegisterLeft<__half, Scores> p_left(ones);
  tile::drop_operand(p_left, coord, sampler, [&](int i) {
    return sampler.column(coord.batch, coord.head, sampler.col_group(coord.col0) + i);
  });
  const tile::KeepBits<Scores, Sampler> bits(coord, sampler);
  const tile::KeepSigns<Rows, Sampler> signs(coord, sampler);
  const tile::KeptSigns<Rows, Sampler> kept(coord, sampler);
  for (int r = 0; r < Scores::kRegRows; ++r) {
    for (int c = 0; c < Scores::kRegCols; ++c) {
      const std::uint32_t word = p_left.piece(0, c / 4)[c / 2 % 2 * 2 + r % 2];
      const std::uint32_t half = word >> (c % 2 * 16) & 0xFFFFu;
      float* const at = out + Scores::row(r) * 32 + Scores::col(c);
      at[0] = half == 0x3C00u ? 1.0f : half == 0 ? 0.0f : 2.0f;  // 1.0 in fp16
      at[kRows * 32] = bits.keep(r, c) ? 1.0f : 0.0f;
    }
  }
  const auto write = [&](int way) {
    return [&, way](int r, int c, bool keep) {
      out[way * kRows * 32 + Rows::row(r) * kRows + Rows::col(c)] = keep ? 1.0f : 0.0f;
    };
  };
  signs.for_each(coord, write(2));
  kept.for_each(coord, write(3));
}

void keeps(float probability) {
  const attile::PhiloxDropout dropout{.probability = probability, .seed = 5, .offset = 6};
  const example::DeviceArray<float> out_dev(std::vector<float>(4 * kRows * 32, -7.0f));
  example::must(arch::launch(keep, 1, kThreads, 0, nullptr, out_dev.get(), dropout), "keep");
  example::must(cudaDeviceSynchronize(), "keep");
  const std::vector<float> out = out_dev.download();
  const auto sampler = dropout.sampler(4);
  for (int way = 0; way < 4; ++way) {
    const int rows = way < 2 ? kRows : 32, cols = way < 2 ? 32 : kRows;
    for (int i = 0; i < rows * cols; ++i) {
      const bool kept = sampler.keep({1, 2, 16 + i / cols, 48 + i % cols});
      if (out[way * kRows * 32 + i] != (kept ? 1.0f : 0.0f)) fail("keep", "a decision is wrong");
    }
  }
}

}  // namespace

int main() {
  example::need_gpu();
  copies_of<float>();
  copies_of<__half>();
  const std::vector<float> bias = example::normal<float>(2 * 4 * 70 * 100, 2);
  const example::DeviceArray<float> bias_dev(bias);
  const example::DeviceArray<float> slopes(std::vector<float>(4, 0.25f));
  modifies("a bias for each key",
           attile::AdditiveBias<float>{.bias = bias_dev.get(), .batch_stride = 100});
  modifies("a bias for each score", attile::AdditiveBias<float>{.bias = bias_dev.get(),
                                                                .batch_stride = 4 * 7000,
                                                                .head_stride = 7000,
                                                                .row_stride = 100});
  modifies("Alibi", attile::Alibi{slopes.get()});
  modifies("Softcap", attile::Softcap{2.0f});
  for (const float p : {0.0f, 1.0f / 65536, 0.1f, 0.5f, 0.75f, 65535.0f / 65536}) keeps(p);
  if (arch::device_architecture() >= 900) maps();
  std::printf("pieces: right\n");
  return 0;
}
