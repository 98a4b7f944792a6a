// SPDX-License-Identifier: MIT
// As wgmma_instructions.cu, for tile::Ring in clusters: a warp of each block brings its part of
// each tile to all blocks of the cluster, and others read them, at different speeds, or pass them.
#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/cluster.cuh>
#include <attile/arch/device.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/tensor_map.cuh>
#include <attile/arch/thread.cuh>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/ring.cuh>

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
constexpr int kClusters = 3;

/// Of block `rank`, which does not want all tiles.
ATTILE_HOST_DEVICE bool wants(int rank, int number) { return (number + rank) % 5 != 4; }

template <int kCols, int kCluster>
struct Shape {
  using Tile = tile::PanelTile<kRows, kCols, __half>;
  using Ring = tile::Ring<Tile, kStages, kCluster>;
  static constexpr int kTileWords = Tile::kBytes / 4;
  static constexpr std::size_t kSharedBytes = Ring::kBytes + 2 * kStages * sizeof(arch::Mbarrier);
};

/// Takes its time; always 0.
ATTILE_DEVICE int dawdle(int steps) {
  float x = 0.0f;
  for (int i = 0; i < steps; ++i) x = arch::shuffle_xor(x, 1) * 3.0f;
  return static_cast<int>(x);
}

template <int kCols, int kCluster>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kThreads, 1)
    share(std::uint32_t* out, const ATTILE_GRID_CONSTANT arch::TensorMap map, int slow) {
  using Shape = Shape<kCols, kCluster>;
  unsigned char* const data = arch::dynamic_shared();
  const typename Shape::Ring ring(data,
                                  reinterpret_cast<arch::Mbarrier*>(data + Shape::Ring::kBytes));
  const int thread = arch::thread_index(), lane = thread % arch::kWarpSize;
  const int warp = thread / arch::kWarpSize, rank = arch::cluster_rank();
  if (thread == 0) {
    ring.init(kReaders);
    arch::mbarrier_publish();
  }
  arch::cluster_barrier();  // nobody uses a barrier of any block that is not there yet
  typename Shape::Ring::Place at;
  if (warp == kReaders) {
    if (lane != 0) return;
    for (int i = 0; i < kTiles; ++i) {
      ring.fill(at, map, i * kRows, 0, arch::block_index() / kCluster);
    }
    return ring.drain(at);
  }
  for (int i = 0; i < kTiles; ++i) {
    if (!wants(rank, i)) {
      ring.pass(at);
      continue;
    }
    const auto tile = ring.wait(at);
    const int late = dawdle((rank + warp + i) % 4 == 0 ? slow : 0);
    std::uint32_t* const to = out + (arch::block_index() * kTiles + i) * Shape::kTileWords + late;
    for (int w = warp * 32 + lane; w < Shape::kTileWords; w += kReaders * 32) {
      const int row = w / (kCols / 2), col = w % (kCols / 2) * 2;
      to[w] = *reinterpret_cast<const std::uint32_t*>(&tile.at(row, col));
    }
    arch::warp_barrier();  // all lanes have read
    ring.release(at);
  }
}

/// Matrices of kTiles tiles, one for each cluster: all words of all tiles, as each block sees them.
template <int kCols, int kCluster>
Result shared_tiles(const char* name, int slow) {
  using Shape = Shape<kCols, kCluster>;
  constexpr int kWords = kTiles * Shape::kTileWords;
  Words in(kClusters * kWords);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint32_t>(i + 1);
  const example::DeviceArray<std::uint32_t> in_dev(in);
  const example::DeviceArray<std::uint32_t> out{Words(kClusters * kCluster * kWords)};
  arch::TensorMap map;
  const std::int64_t row_bytes = 2 * kCols, bytes = 4 * kWords;
  const arch::BoxedTensor tensor{
      in_dev.get(),
      {kCols, 1, kTiles * kRows, 1, kClusters},
      {2, row_bytes, row_bytes, bytes, bytes},
      {Shape::Tile::Layout::kPanelColumns, 1, Shape::Ring::kBoxRows, 1, 1}};
  example::must(arch::make_map(map, tensor), "make_map");
  const auto kernel = share<kCols, kCluster>;
  example::must(arch::launch_clusters(kernel, kCluster, kClusters * kCluster, kThreads,
                                      Shape::kSharedBytes, nullptr, out.get(), map, slow),
                name);
  example::must(cudaDeviceSynchronize(), name);
  const Words found = out.download();
  for (std::size_t i = 0; i < found.size(); ++i) {
    const int block = static_cast<int>(i / kWords), number = i / Shape::kTileWords % kTiles;
    const std::uint32_t expected =
        wants(block % kCluster, number) ? in[block / kCluster * kWords + i % kWords] : 0;
    if (found[i] == expected) continue;
    std::printf("%s: word %zu is %08x, and not %08x\n", name, i, found[i], expected);
    std::exit(1);
  }
  std::printf("%-16s %d clusters of %d at once\n", name,
              arch::clusters_at_once(kernel, kCluster, kThreads, Shape::kSharedBytes), kCluster);
  return {name, found, 0.0f};
}

}  // namespace

int main(int argc, char** argv) {
  if (!well_called(argc)) return 2;
  example::need_gpu();
  if (const attile::Check check = arch::check_launch(share<64, 1>, 1024, 1); !check) {
    std::printf("skipped: %s\n", check.why);
    return example::kSkipped;
  }
  std::vector<Result> results;
  for (const int slow : {0, 20}) {
    results.push_back(shared_tiles<64, 1>("ring", slow));
    results.push_back(shared_tiles<64, 2>("ring, rows", slow));
    results.push_back(shared_tiles<128, 2>("ring, panels", slow));
    results.push_back(shared_tiles<96, 2>("ring, 64 bytes", slow));
    results.push_back(shared_tiles<128, 4>("ring of 4", slow));
  }
  return write_and_compare(results, argc, argv);
}
