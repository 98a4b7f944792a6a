// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/shared_memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/vec.h>
#include <attile/tile/shared_tile.cuh>

#include <cstddef>

// A pipeline of tiles in shared memory: one producer thread loads them by TMA, and warps consume
// them.
//
//   the producer thread, for each tile:         each consumer warp, for each tile:
//     k.producer_acquire(state);                  const auto k_smem = k.consumer_wait(state);
//     k.load(state, map, row0, head, batch);      ...  // reads k_smem, and uses what it has read
//     state.advance();                            arch::warp_barrier();  // all lanes have
//                                                 k.consumer_release(state);
//                                                 state.advance();
//
// Both begin with a default state. Where a product reads the tile, the wait for the product takes
// the place of the warp's barrier. What threads load has to be used before the release: the arrival
// overtakes loads for whose results nothing has waited, and the next tile would replace what is yet
// to be read. The map is that of a BoxedTensor with boxes of
// {Layout::kPanelColumns, heads, rows, 1, 1} (boxed_tensor.h, tensor_map.cuh).
// No verb of a pipeline advances a state. Each stage has two barriers in shared memory (mbarriers):
// `full`, whose phase ends when the expected bytes have arrived, and `empty`, whose phase ends when
// every consumer warp has released the tile. A warp that does not want a tile must wait for it and
// release it all the same (`consumer_skip`).

namespace attile::tile {

/// Says where a thread is in a pipeline: a stage, and the parity of the phase of its barriers.
template <int kStages>
struct PipelineState {
  int stage = 0;
  int parity = 0;

  ATTILE_DEVICE void advance() {
    if constexpr (kStages == 2) {  // two instructions, where the lines below are five
      parity ^= stage;
      stage = 1 - stage;
      return;
    }
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
  /// Returns the state of the stage behind this one.
  [[nodiscard]] ATTILE_DEVICE PipelineState next() const {
    PipelineState state = *this;
    state.advance();
    return state;
  }
  /// Returns the state of the stage before this one.
  [[nodiscard]] ATTILE_DEVICE PipelineState previous() const {
    if (stage > 0) return {stage - 1, parity};
    return {kStages - 1, parity ^ 1};
  }
};

/// Writes zeros to the rows of a tile from row `first` on, for products that read them.
/// Scope    `threads` threads, of which this one has number `thread`.
/// Barriers one after, or an arrival, before others begin those products.
template <class Tile>
ATTILE_DEVICE void clear_rows_from(const Tile& tile, int first, int thread = 0, int threads = 1) {
  constexpr int kUnit = Tile::Layout::kUnitElements;
  constexpr int kUnits = Tile::kCols / kUnit;
  for (int i = max(first, 0) * kUnits + thread; i < Tile::kRows * kUnits; i += threads) {
    arch::store(&tile.at(i / kUnits, i % kUnits * kUnit), Vec<typename Tile::Element, kUnit>{});
  }
  arch::fence_async_proxy();  // the products read by the async proxy what this thread has written
}

/// Holds kStages tiles in shared memory, each of which is empty, on its way, or full.
/// Shapes   Tile: a PanelTile; `data`: kBytes, aligned to 1024 bytes; `barriers`: 2 * kStages.
template <class Tile, int kStages>
class Pipeline {
  using Layout = typename Tile::Layout;
  static constexpr int kPanels = Tile::kCols / Layout::kPanelColumns;
  static constexpr int kRowBytes = Tile::kCols * sizeof(typename Tile::Element);

 public:
  using State = PipelineState<kStages>;
  static constexpr std::size_t kBytes = kStages * Tile::kBytes;
  /// The bytes that the copies of one tile bring.
  static constexpr int kTileBytes = Tile::kRows * kRowBytes;

  ATTILE_DEVICE Pipeline(unsigned char* data, arch::Mbarrier* barriers)
      : data_(data), barriers_(barriers) {}

  /// Initialises the barriers of all stages.
  /// Units    consumers: warps that consume each tile; producers: arrivals for each tile, by
  ///          `expect`, `producer_acquire` or `producer_commit`.
  /// Scope    one thread, before all else.
  /// Barriers `mbarrier_publish` and one of the block after, before anyone uses the pipeline.
  ATTILE_DEVICE void init(int consumers, int producers = 1) const {
    ATTILE_UNROLL
    for (int stage = 0; stage < kStages; ++stage) {
      arch::mbarrier_init(full(stage), producers);
      arch::mbarrier_init(empty(stage), consumers);
    }
  }

  /// Waits until the stage is empty, and expects the bytes of a tile.
  /// Units    rows: those of the map's boxes, times heads. All of them count, also those beyond the
  ///          tensor, which arrive as zeros.
  /// Scope    the producer thread.
  ATTILE_DEVICE void producer_acquire(const State& state, int rows = Tile::kRows) const {
    await_empty(state);
    static_cast<void>(expect(state, rows * kRowBytes));
  }
  /// Do the two halves of `producer_acquire`, for a producer that writes or loads something else
  /// for the same stage. What it writes before `expect` is there for the consumers that wait.
  ATTILE_DEVICE void await_empty(const State& state) const {
    arch::mbarrier_wait(empty(state.stage), state.parity ^ 1);  // consumers have read the last tile
  }
  /// Returns the barrier on which copies of that many bytes complete.
  ATTILE_DEVICE arch::Mbarrier* expect(const State& state, int bytes) const {
    arch::mbarrier_arrive_expect(full(state.stage), bytes);
    return full(state.stage);
  }

  /// Says that what belongs to a stage beside its tile has been written.
  /// Scope    one thread of a second producer, which has waited for the stage to be empty, too.
  ATTILE_DEVICE void producer_commit(const State& state) const {
    arch::mbarrier_arrive(full(state.stage));
  }

  /// Says that this thread's part of a tile has been written, when the asynchronous copies that it
  /// has begun have arrived: for a producer of threads that copy the tile to `tile(state.stage)`.
  /// Scope    each thread that copies, which has waited for the stage to be empty; `init` counts
  ///          these as producers.
  ATTILE_DEVICE void producer_commit_copies(const State& state) const {
    arch::mbarrier_arrive_behind_copies(full(state.stage));
  }

  /// Begins the copy of rows row0 on of a matrix into the acquired stage, one box for each panel.
  /// Units    head, batch: the map's fourth and fifth coordinate; col0: the first column, a
  ///          multiple of 16 bytes.
  /// Scope    the producer thread.
  ATTILE_DEVICE void load(const State& state, const arch::TensorMap& map, int row0, int head,
                          int batch, int col0 = 0) const {
    load(state, map, {col0, 0, row0, head, batch});
  }
  /// Does the same with all coordinates of the box's first element, which goes to row `row` of the
  /// tile, a multiple of 8.
  ATTILE_DEVICE void load(const State& state, const arch::TensorMap& map,
                          const arch::TmaCoord& coord, int row = 0) const {
    const Tile to = tile(state.stage).from_row(row);
    ATTILE_UNROLL
    for (int panel = 0; panel < kPanels; ++panel) {
      const int column = coord.c0 + panel * Layout::kPanelColumns;
      arch::bulk_load(arch::shared_address(to.data) + panel * Layout::kPanelBytes, map,
                      {column, coord.c1, coord.c2, coord.c3, coord.c4}, full(state.stage));
    }
  }

  /// Waits until the stage is full, and returns its tile. Scope    all lanes of a consumer warp.
  ATTILE_DEVICE Tile consumer_wait(const State& state) const {
    arch::mbarrier_wait(full(state.stage), state.parity);
    return tile(state.stage);
  }
  /// Says that this warp has read and used the tile. Scope    all lanes of a consumer warp, behind
  /// `arch::warp_barrier`, or behind the wait for the product that has read it.
  ATTILE_DEVICE void consumer_release(const State& state) const {
    if (arch::thread_index() % arch::kWarpSize == 0) arch::mbarrier_arrive(empty(state.stage));
  }
  /// Waits for a tile that this warp does not want, and releases it: a phase of `empty` ends only
  /// when every consumer warp has arrived. Scope    all lanes of a consumer warp.
  ATTILE_DEVICE void consumer_skip(const State& state) const {
    static_cast<void>(consumer_wait(state));
    arch::warp_barrier();  // all lanes have waited before the stage is filled again
    consumer_release(state);
  }

  /// Returns the tile of a stage, for a consumer that has waited for it.
  ATTILE_DEVICE Tile tile(int stage) const { return {data_ + stage * Tile::kBytes}; }

 private:
  ATTILE_DEVICE arch::Mbarrier* full(int stage) const { return barriers_ + stage; }
  ATTILE_DEVICE arch::Mbarrier* empty(int stage) const { return barriers_ + kStages + stage; }

  unsigned char* data_;
  arch::Mbarrier* barriers_;  // kStages `full` ones, then kStages `empty` ones
};

/// Initialises pipelines, each of whose tiles `consumers` warps consume.
///   tile::init_pipelines(kConsumerWarps, k_pipeline, v_pipeline);
/// Scope    all threads of the block, before any of them uses a pipeline.
template <class... Pipelines>
ATTILE_DEVICE void init_pipelines(int consumers, const Pipelines&... pipelines) {
  if (arch::thread_index() == 0) {
    (pipelines.init(consumers), ...);
    arch::mbarrier_publish();
  }
  arch::barrier();  // nobody uses a barrier that is not there yet
}

/// Says what a pipeline takes of shared memory: its tiles, and behind them its barriers.
template <class Tile, int kStages>
struct InSharedMemory<Pipeline<Tile, kStages>> {
  using Piece = Pipeline<Tile, kStages>;
  static constexpr std::size_t kBytes = Piece::kBytes + 2 * kStages * sizeof(arch::Mbarrier);
  static constexpr std::size_t kAlignment = Tile::kAlignment;

  ATTILE_DEVICE static Piece at(unsigned char* memory) {
    return {memory, reinterpret_cast<arch::Mbarrier*>(memory + Piece::kBytes)};
  }
};

/// Begins the copy of a tile to where its first element has the coordinates `at`, one box for each
/// panel. What lies beyond the matrix stays as it is, but for the rest of 16 bytes in which a row
/// ends (arch::storable).
/// Scope    one thread. The tile may be written again when `arch::bulk_wait_read` has told that
///          thread so.
/// Barriers `fence_async_proxy` by the threads that wrote the tile, and a barrier behind it.
template <class Tile>
ATTILE_DEVICE void store_by_tma(const Tile& tile, const arch::TensorMap& map,
                                const arch::TmaCoord& at) {
  using Layout = typename Tile::Layout;
  ATTILE_UNROLL
  for (int panel = 0; panel < Tile::kCols / Layout::kPanelColumns; ++panel) {
    arch::bulk_store(map, {at.c0 + panel * Layout::kPanelColumns, at.c1, at.c2, at.c3, at.c4},
                     arch::shared_address(tile.data) + panel * Layout::kPanelBytes);
  }
  arch::bulk_commit();
}

}  // namespace attile::tile
