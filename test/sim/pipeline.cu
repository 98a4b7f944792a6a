// SPDX-License-Identifier: MIT
// As wgmma_instructions.cu, for tile::Pipeline: one thread of each block loads tiles, and the warps
// of others consume them, at different speeds, or skip them.
#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/device.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/tensor_map.cuh>
#include <attile/arch/thread.cuh>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/pipeline.cuh>

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "../../examples/support.cuh"
#include "sim/instructions.h"

namespace {

namespace arch = attile::arch;
namespace tile = attile::tile;
using namespace instructions;

constexpr int kRows = 64, kTiles = 23, kStages = 3;
constexpr int kReaders = 4;  // warps
constexpr int kThreads = (kReaders + 1) * arch::kWarpSize;
constexpr int kBlocks = 3;

/// Whether a warp of a block wants a tile, which is not so of all: others may read what it skips.
ATTILE_HOST_DEVICE bool wants(int block, int warp, int number) {
  return (number + block + 2 * warp) % 5 != 4;
}

template <int kCols>
struct Shape {
  using Tile = tile::PanelTile<kRows, kCols, __half>;
  using Pipeline = tile::Pipeline<Tile, kStages>;
  static constexpr int kTileWords = Tile::kBytes / 4;
  static constexpr std::size_t kSharedBytes =
      Pipeline::kBytes + 2 * kStages * sizeof(arch::Mbarrier);
};

/// Takes its time; always 0.
ATTILE_DEVICE int dawdle(int steps) {
  float x = 0.0f;
  for (int i = 0; i < steps; ++i) x = arch::shuffle_xor(x, 1) * 3.0f;
  return static_cast<int>(x);
}

template <int kCols>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kThreads, 1)
    copy_tiles(std::uint32_t* out, const ATTILE_GRID_CONSTANT arch::TensorMap map, int slow) {
  using Shape = Shape<kCols>;
  unsigned char* const data = arch::dynamic_shared();
  const typename Shape::Pipeline pipeline(
      data, reinterpret_cast<arch::Mbarrier*>(data + Shape::Pipeline::kBytes));
  const int thread = arch::thread_index(), lane = thread % arch::kWarpSize;
  const int warp = thread / arch::kWarpSize, block = arch::block_index();
  if (thread == 0) {
    pipeline.init(kReaders);
    arch::mbarrier_publish();
  }
  arch::barrier();  // nobody uses a barrier that is not there yet
  typename Shape::Pipeline::State state;
  if (warp == kReaders) {
    if (lane != 0) return;
    for (int i = 0; i < kTiles; ++i, state.advance()) {
      pipeline.producer_acquire(state);
      pipeline.load(state, map, i * kRows, 0, block);
    }
    return;
  }
  for (int i = 0; i < kTiles; ++i, state.advance()) {
    if (!wants(block, warp, i)) {
      pipeline.consumer_skip(state);
      continue;
    }
    const auto tile = pipeline.consumer_wait(state);
    const int late = dawdle((block + warp + i) % 4 == 0 ? slow : 0);
    std::uint32_t* const to = out + (block * kTiles + i) * Shape::kTileWords + late;
    for (int w = warp * 32 + lane; w < Shape::kTileWords; w += kReaders * 32) {
      const int row = w / (kCols / 2), col = w % (kCols / 2) * 2;
      to[w] = *reinterpret_cast<const std::uint32_t*>(&tile.at(row, col));
    }
    arch::warp_barrier();  // all lanes have read
    pipeline.consumer_release(state);
  }
}

/// Matrices of kTiles tiles, one for each block: all words of all tiles, as the block sees them.
template <int kCols>
Result copied_tiles(const char* name, int slow) {
  using Shape = Shape<kCols>;
  constexpr int kWords = kTiles * Shape::kTileWords;
  Words in(kBlocks * kWords);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint32_t>(i + 1);
  const example::DeviceArray<std::uint32_t> in_dev(in);
  const example::DeviceArray<std::uint32_t> out{Words(kBlocks * kWords)};
  arch::TensorMap map;
  const std::int64_t row_bytes = 2 * kCols, bytes = 4 * kWords;
  const arch::BoxedTensor tensor{in_dev.get(),
                                 {kCols, 1, kTiles * kRows, 1, kBlocks},
                                 {2, row_bytes, row_bytes, bytes, bytes},
                                 {Shape::Tile::Layout::kPanelColumns, 1, kRows, 1, 1}};
  example::must(arch::make_map(map, tensor), "make_map");
  example::must(arch::launch(copy_tiles<kCols>, kBlocks, kThreads, Shape::kSharedBytes, nullptr,
                             out.get(), map, slow),
                name);
  example::must(cudaDeviceSynchronize(), name);
  const Words found = out.download();
  for (std::size_t i = 0; i < found.size(); ++i) {
    const int block = static_cast<int>(i / kWords), number = i / Shape::kTileWords % kTiles;
    const int warp = i % Shape::kTileWords / arch::kWarpSize % kReaders;
    const std::uint32_t expected = wants(block, warp, number) ? in[i] : 0;
    if (found[i] == expected) continue;
    std::printf("%s: word %zu is %08x, and not %08x\n", name, i, found[i], expected);
    std::exit(1);
  }
  return {name, found, 0.0f};
}

}  // namespace

int main(int argc, char** argv) {
  if (!well_called(argc)) return 2;
  example::need_gpu();
  if (const attile::Check check = arch::check_launch(copy_tiles<64>, 1024, 1); !check) {
    std::printf("skipped: %s\n", check.why);
    return example::kSkipped;
  }
  std::vector<Result> results;
  for (const int slow : {0, 20}) {
    results.push_back(copied_tiles<64>("one panel", slow));
    results.push_back(copied_tiles<96>("64 bytes", slow));
    results.push_back(copied_tiles<128>("two panels", slow));
  }
  return write_and_compare(results, argc, argv);
}
