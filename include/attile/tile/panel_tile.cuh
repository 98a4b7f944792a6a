// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/async_copy.cuh>
#include <attile/arch/attributes.h>
#include <attile/arch/memory.cuh>
#include <attile/arch/opaque.h>
#include <attile/arch/shared_memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/math.h>
#include <attile/core/panel_layout.h>
#include <attile/core/vec.h>
#include <attile/tile/matrix.cuh>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace attile::tile {

/// The number that divides the columns of a tile whose transpose is an operand of a product. With
/// fp32 it is that of a whole panel, and with fp8 that of the smallest one; see PanelLayout.
template <class T>
inline constexpr int kTileColumns = sizeof(T) == 2 ? 16 : 32;

/// Refers to a (Rows, Cols) tile in shared memory for matrix instructions, in panels whose rows
/// take at most kMostUnits times 16 bytes.
///   using KTile = tile::PanelTile<kBc, kDim, __nv_bfloat16>;
///   const auto k_smem = carver.take<KTile>();
///   const auto eight = k_smem.run<8>(row, col);  // neighbours of a row
///   arch::store(&k_smem.at(row, col), eight);
template <int Rows, int Cols, class T, int kMostUnits = 8>
struct PanelTile {
  using Element = T;
  using Layout = PanelLayout<Rows, Cols, sizeof(T), kMostUnits>;
  static constexpr int kRows = Rows;
  static constexpr int kCols = Cols;
  static constexpr std::size_t kBytes = Layout::kBytes;
  /// The bytes after which the swizzle repeats: 8 rows of a panel.
  static constexpr std::size_t kAlignment = 8 * Layout::kRowBytes;

  unsigned char* data;

  /// Returns the tile whose row 0 is row `row` of this one, a multiple of 8.
  ATTILE_DEVICE PanelTile from_row(int row) const { return {data + row * Layout::kRowBytes}; }
  ATTILE_DEVICE T& at(int row, int col) const {
    constexpr int kUnit = Layout::kUnitElements;
    return reinterpret_cast<T*>(data + Layout::offset(row, col / kUnit))[col % kUnit];
  }
  /// Loads kRun = 2, 4 or 8 neighbours of a row, up to 16 bytes, from (row, col) on. kRun divides
  /// col.
  template <int kRun>
  ATTILE_DEVICE Vec<T, kRun> run(int row, int col) const {
    return arch::load<kRun>(&at(row, col));
  }
};

/// Computes byte offsets for a lane that goes through a tile from its own row on, in steps of 8
/// rows. The part of an offset that depends on the lane is computed once.
template <class Tile>
class LaneOffsets {
  using Layout = typename Tile::Layout;

 public:
  /// Takes the lane's row, and the distance of its column from the columns of the steps.
  /// Units: rows, 16 bytes.
  ATTILE_DEVICE LaneOffsets(unsigned row, unsigned unit)
      : row_(arch::opaque(row * Layout::kRowBytes)),
        unit_(arch::opaque(unit ^ Layout::swizzle(row))) {}

  /// Returns the offset `row` rows further on, a multiple of 8, of the 16 bytes with column `col`.
  /// Where the lane has unit 1, the unit of `col` is even.
  ATTILE_DEVICE unsigned at(unsigned row, unsigned col) const {
    const unsigned unit = col / Layout::kUnitElements;
    return row_ + unit / Layout::kPanelUnits * Layout::kPanelBytes + row * Layout::kRowBytes +
           ((unit % Layout::kPanelUnits) ^ unit_) * 16;
  }

 private:
  unsigned row_, unit_;
};

/// Computes the address that one lane gives to ldmatrix when its warp loads pieces of a tile, 16
/// rows by 32 bytes, as four matrices of 8 rows by 16 bytes. The lane gives row `row` of the piece,
/// of its left (0) or right (1) half.
template <class Tile>
class PieceReader {
 public:
  ATTILE_DEVICE PieceReader(const Tile& tile, unsigned row, unsigned half)
      : base_(arch::shared_address(tile.data)), offsets_(row, half) {}

  /// Returns the lane's address for the piece from (row, col) on, multiples of 8 rows and of 32
  /// bytes.
  ATTILE_DEVICE std::uint32_t address(unsigned row, unsigned col) const {
    return base_ + offsets_.at(row, col);
  }

 private:
  std::uint32_t base_;
  LaneOffsets<Tile> offsets_;
};

/// Loads one lane's elements of 8 x 16 pieces of an fp32 tile that a product takes transposed: the
/// rows of the tile are the depth. For 16-bit elements ldmatrix does this.
/// kPaired  the depth of a step has the order 0, 2, 4, 6, 1, 3, 5, 7.
template <class Tile, bool kPaired>
class WordReader {
 public:
  ATTILE_DEVICE explicit WordReader(const Tile& tile)
      : data_(tile.data + lane() / 4 % 4 * sizeof(float)),
        low_(kPaired ? lane() % 4 * 2 : lane() % 4, lane() / 16),
        high_(kPaired ? lane() % 4 * 2 + 1 : lane() % 4 + 4, lane() / 16) {}

  /// Loads, of the piece from (row, col) on, steps lane % 4 and lane % 4 + 4 of the depth: w[0] and
  /// w[1] of column lane / 4, w[2] and w[3] of column lane / 4 + 8.
  ATTILE_DEVICE void piece(std::uint32_t (&w)[4], unsigned row, unsigned col) const {
    ATTILE_UNROLL
    for (unsigned half = 0; half < 2; ++half) {
      w[2 * half] = word(low_.at(row, col + half * 8));
      w[2 * half + 1] = word(high_.at(row, col + half * 8));
    }
  }

 private:
  ATTILE_DEVICE static unsigned lane() {
    return static_cast<unsigned>(arch::thread_index()) % arch::kWarpSize;
  }
  ATTILE_DEVICE std::uint32_t word(unsigned offset) const {
    return word_of(arch::load<1>(reinterpret_cast<const float*>(data_ + offset))[0]);
  }

  const unsigned char* data_;
  LaneOffsets<Tile> low_, high_;
};

namespace detail {

/// Copies a tile whose rows cannot be moved 16 bytes at a time, as `load_async` does; it is written
/// when the call returns. `thread`: this thread's number among the kThreads.
template <int kThreads, int Rows, int Cols, class T, RowSource M>
ATTILE_DEVICE void copy_elements(const PanelTile<Rows, Cols, T>& shared, const M& source, int row0,
                                 unsigned thread) {
  constexpr unsigned kRun = sizeof(T) == 1 ? 2 : 1;  // neighbours that a thread copies
  ATTILE_UNROLL_BY(1)
  for (unsigned i = thread * kRun; i < Rows * Cols; i += kThreads * kRun) {
    const int r = i / Cols;
    const int c = i % Cols;
    Vec<T, kRun> run;
    ATTILE_UNROLL
    for (unsigned e = 0; e < kRun; ++e) {
      const int col = c + static_cast<int>(e);
      const bool there = source.has_row(row0 + r) && col < source.cols;
      run[e] = there ? *source.at(row0 + r, col) : from_float<T>(0.0f);
    }
    arch::store(&shared.at(r, c), run);
  }
}

}  // namespace detail

/// Begins to load a tile; the copies belong to the thread's open commit group.
///   tile::load_async<kThreads>(k_smem, k, kv_tile * kBc);
///   arch::async_copy_commit();
///   arch::async_copy_wait<0>();
///   arch::barrier();  // the copies of all threads have arrived before anyone reads the tile
///   shared(r, c) = source(row0 + r, c); 0 where the source has no such row or column.
/// Shapes   source.cols <= Cols. page_rows: the PageRows of the tile, which PageRowsOf names.
/// Scope    kThreads threads, whole warps; `number` is that of each among them: by default those
///          of the block.
/// Barriers one before, when others still read the tile; before others read the new one, the wait
///          for the group (`arch::async_copy_wait`) and a barrier. Rows that cannot be moved 16
///          bytes at a time are written before the call returns.
template <int kThreads, arch::Eviction kEviction = arch::Eviction::kOldest, int Rows, int Cols,
          class T, RowSource M, class Pages>
ATTILE_DEVICE void load_async(const PanelTile<Rows, Cols, T>& shared, const M& source, int row0,
                              int number, const Pages& page_rows) {
  using Layout = typename PanelTile<Rows, Cols, T>::Layout;
  constexpr unsigned kUnit = Layout::kUnitElements;
  const unsigned thread = static_cast<unsigned>(arch::opaque(number));
  if (kIsAligned<M> || arch::opaque(source.vectors) != 0) {
    // A step copies kDown rows of all panels; neighbouring threads copy neighbouring units of a
    // row.
    constexpr unsigned kSide = Layout::kPanelUnits;
    constexpr unsigned kDown = kThreads / kSide;
    constexpr unsigned kPanels = Layout::kUnits / kSide;
    // With kSteady the swizzle of a step's rows is that of the first step, xored with a constant.
    constexpr bool kSteady = kDown % 8 == 0 || (kDown & (kDown - 1)) == 0;
    const unsigned unit = thread % kSide;
    const unsigned first = thread / kSide;
    RowCursor<M, kDown, Pages> cursor(source, page_rows, row0, static_cast<int>(first),
                                      unit * kUnit);
    const int cols = source.cols - static_cast<int>(unit * kUnit);
    const std::uint32_t base = arch::shared_address(shared.data);
    const std::uint32_t base_row = base + first * Layout::kRowBytes;
    const std::uint32_t base_unit = unit ^ Layout::swizzle(first);
    ATTILE_UNROLL
    for (unsigned i = 0; i < ceil_div<unsigned>(Rows, kDown); ++i, cursor.advance()) {
      const unsigned step = i * kDown;
      const T* const from = cursor.get(static_cast<int>(step));
      if (Rows % kDown != 0 && first + step >= Rows) break;
      const std::uint32_t to =
          kSteady ? base_row + step * Layout::kRowBytes + (base_unit ^ Layout::swizzle(step)) * 16
                  : base + Layout::offset(first + step, unit);
      ATTILE_UNROLL
      for (unsigned panel = 0; panel < kPanels; ++panel) {
        const int col = static_cast<int>(panel * kSide * kUnit);
        const bool has_row = cursor.has_row(static_cast<int>(step));
        const std::uint32_t to_panel = to + panel * Layout::kPanelBytes;
        if constexpr (kIsAligned<M>) {
          const int bytes = min(max(cols - col, 0), int{kUnit}) * int{sizeof(T)};
          arch::async_copy_part_of_16(to_panel, from + col, has_row ? bytes : 0);
        } else {
          arch::async_copy_16<kEviction>(to_panel, from + col, has_row && col < cols);
        }
      }
    }
  } else {
    detail::copy_elements<kThreads>(shared, source, row0, thread);
  }
}

/// Is the PageRows of a tile that kThreads threads load from a matrix M.
template <class M, int kThreads, class Tile>
using PageRowsOf = PageRows<kLiesInPages<M>, kThreads, Tile::kRows, Tile::Layout::kPanelUnits>;

template <int kThreads, arch::Eviction kEviction = arch::Eviction::kOldest, int Rows, int Cols,
          class T, RowSource M>
ATTILE_DEVICE void load_async(const PanelTile<Rows, Cols, T>& shared, const M& source, int row0,
                              int number = arch::thread_index()) {
  const PageRowsOf<M, kThreads, PanelTile<Rows, Cols, T>> page_rows(source, row0, number);
  load_async<kThreads, kEviction>(shared, source, row0, number, page_rows);
}

/// Begins to load the same rows of K and of V, which lie in the same rows of their pages, and are
/// not read again.
/// Shapes   page_rows: the PageRows of the tile of K.
template <int kThreads, class KTile, class VTile, RowSource K, RowSource V, class Pages>
ATTILE_DEVICE void load_async(const KTile& k_shared, const K& k, const VTile& v_shared, const V& v,
                              int row0, int number, const Pages& page_rows) {
  constexpr auto kReadOnce = arch::Eviction::kReadOnce;
  load_async<kThreads, kReadOnce>(k_shared, k, row0, number, page_rows);
  if constexpr (std::same_as<Pages, PageRowsOf<V, kThreads, VTile>>) {
    load_async<kThreads, kReadOnce>(v_shared, v, row0, number, page_rows);
  } else {
    load_async<kThreads, kReadOnce>(v_shared, v, row0, number);
  }
}

/// Stores target(row0 + r, c) = shared(r, c) for the kRows rows from `first` on, within the tile's
/// rows and the target's rows and columns.
/// Scope    all lanes of a warp, to which these rows of the tile are visible.
template <int kRows, class T, class Tile>
ATTILE_DEVICE void store_rows(const Matrix<T>& target, const Tile& shared, int first, int row0) {
  constexpr int kUnit = Tile::Layout::kUnitElements;
  constexpr int kUnits = Tile::kCols / kUnit;
  const int lane = arch::thread_index() % arch::kWarpSize;
  ATTILE_UNROLL
  for (int i = 0; i < ceil_div(kRows * kUnits, arch::kWarpSize); ++i) {
    const int unit = lane + i * arch::kWarpSize;
    const int r = first + unit / kUnits;
    const int col = unit % kUnits * kUnit;
    const int row = row0 + r;
    if (unit >= kRows * kUnits || r >= Tile::kRows || !target.has_row(row) || col >= target.cols)
      continue;
    T* const out = target.row(row) + col;
    const Vec<T, kUnit> v = shared.template run<kUnit>(r, col);
    if (target.vectors) {
      arch::store(out, v);
    } else {
      ATTILE_UNROLL
      for (int e = 0; e < kUnit; ++e) {
        if (col + e < target.cols) out[e] = v[e];
      }
    }
  }
}

/// Stores the whole tile as `store_rows` does, each of the block's kWarps warps an equal part of
/// it.
/// Scope    all threads of the block, to which the tile is visible.
template <int kWarps, class T, class Tile>
ATTILE_DEVICE void store_tile(const Matrix<T>& target, const Tile& shared, int row0) {
  constexpr int kRows = ceil_div(Tile::kRows, kWarps);
  store_rows<kRows>(target, shared, arch::thread_index() / arch::kWarpSize * kRows, row0);
}

}  // namespace attile::tile
