// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/array.h>
#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/math.h>
#include <attile/core/vec.h>
#include <attile/tile/matrix.cuh>

#include <type_traits>

namespace attile::tile {

namespace detail {

/// Says which 16-byte vectors of a tile a thread moves. Neighbouring threads move neighbouring
/// vectors of a row, kSide of them, then kDown rows, and then the same rows further along. In
/// row-major tiles kSide is a whole row. In column-major tiles it is 8 elements of a row (whole
/// sectors of fp32), so that a warp writes to all banks.
template <int kThreads, class Shared, int kVector>
struct VectorCoord {
  static constexpr int kPerRow = ceil_div(Shared::kCols, kVector);
  static constexpr int kSector = kVector == 4 && kPerRow % 2 == 0 ? 2 : 1;
  static constexpr int kSide = Shared::kRowMajor ? min(kPerRow, kThreads) : kSector;
  static constexpr int kDown = min(Shared::kRows, kThreads / kSide);
  static constexpr int kGroups = kThreads / (kSide * kDown);
  static constexpr int kStepsAlong = ceil_div(kPerRow, kSide* kGroups);
  static constexpr int kCount = kStepsAlong * ceil_div(Shared::kRows, kDown);

  int row, col;
  bool inside;

  /// Finds the thread's vector i < kCount.
  ATTILE_DEVICE explicit VectorCoord(int i) {
    const int thread = arch::thread_index();
    const int group = thread / (kSide * kDown);
    row = thread / kSide % kDown + i / kStepsAlong * kDown;
    col = (thread % kSide + (group + i % kStepsAlong * kGroups) * kSide) * kVector;
    inside = row < Shared::kRows && col < Shared::kCols && group < kGroups;
  }
};

/// Writes a vector to a tile from (row, col) on, as floats.
template <class Shared, class T, int kVector>
ATTILE_DEVICE void write_vector(const Shared& shared, int row, int col, const Vec<T, kVector>& v) {
  ATTILE_UNROLL
  for (int e = 0; e < kVector; e += 4) {
    if (Shared::kCols % kVector != 0 && col + e >= Shared::kCols) break;
    const Float4 x{to_float(v[e]), to_float(v[e + 1]), to_float(v[e + 2]), to_float(v[e + 3])};
    if constexpr (Shared::kRowMajor) {
      shared.set_run(row, col + e, x);
    } else {
      ATTILE_UNROLL
      for (int j = 0; j < 4; ++j) shared.at(row, col + e + j) = x[j];
    }
  }
}

}  // namespace detail

/// Copies a tile from device memory to shared memory through registers. `fetch` begins the loads
/// and `put` writes the tile, so that the work between the two calls hides the latency of the
/// loads.
///   tile::Transfer<kThreads, KTile, T> transfer;
///   transfer.fetch(k, next * kBc);
///   ...  // products of the tile before
///   arch::barrier();  // everyone has read it
///   transfer.put(k_smem, k, next * kBc);
///   shared(r, c) = source(row0 + r, c); 0 where the source has no such row or column, so that
///   nothing stored there can reach a result.
/// Shapes   shared (Rows, Cols), Cols a multiple of 4; source.cols <= Cols.
/// Scope    all kThreads threads of the block; both calls with the same source and row0.
/// Barriers `put`: one before, when others still read the tile; one after, before others read it.
template <int kThreads, class Shared, class T>
class Transfer {
  static_assert(Shared::kCols % 4 == 0, "attile::tile: a loaded tile has a multiple of 4 columns");

  static constexpr int kVector = 16 / sizeof(T);
  using Coord = detail::VectorCoord<kThreads, Shared, kVector>;
  /// The vectors that a thread holds between the calls, in at most 64 registers. `put` copies the
  /// rest of a larger tile.
  static constexpr int kHeld = min(Coord::kCount, 16);

  Array<Vec<T, kVector>, kHeld> held_;

 public:
  template <RowSource M>
  ATTILE_DEVICE void fetch(const M& source, int row0) {
    if (source.vectors) read_from(source, row0, 0);
  }

  template <RowSource M>
  ATTILE_DEVICE void put(const Shared& shared, const M& source, int row0) {
    if (source.vectors) {
      write_from(shared, 0);
      move_from(shared, source, row0, kHeld);
    } else {
      copy_elements(shared, source, row0);
    }
  }

  /// Does both, for a caller without work in between.
  template <RowSource M>
  ATTILE_DEVICE static void load(const Shared& shared, const M& source, int row0) {
    if (source.vectors) {
      Transfer().move_from(shared, source, row0, 0);
    } else {
      copy_elements(shared, source, row0);
    }
  }

 private:
  template <RowSource M>
  ATTILE_DEVICE void read_from(const M& source, int row0, int first) {
    ATTILE_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      const Coord coord(first + i);
      const int row = row0 + coord.row;
      const bool there = coord.inside && source.has_row(row) && coord.col < source.cols;
      held_[i] = {};
      if (there) held_[i] = arch::load<kVector>(source.at(row, coord.col));
    }
  }

  ATTILE_DEVICE void write_from(const Shared& shared, int first) const {
    ATTILE_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      const Coord coord(first + i);
      if (coord.inside) detail::write_vector(shared, coord.row, coord.col, held_[i]);
    }
  }

  template <RowSource M>
  ATTILE_DEVICE void move_from(const Shared& shared, const M& source, int row0, int first) {
    ATTILE_UNROLL_BY(1)
    for (; first < Coord::kCount; first += kHeld) {
      read_from(source, row0, first);
      write_from(shared, first);
    }
  }

  /// Copies rows that cannot be read 16 bytes at a time.
  template <RowSource M>
  ATTILE_DEVICE static void copy_elements(const Shared& shared, const M& source, int row0) {
    ATTILE_UNROLL_BY(4)
    for (int i = arch::thread_index(); i < Shared::kRows * Shared::kCols; i += kThreads) {
      const int r = i / Shared::kCols;
      const int c = i % Shared::kCols;
      const bool there = source.has_row(row0 + r) && c < source.cols;
      shared.at(r, c) = there ? to_float(*source.at(row0 + r, c)) : 0.0f;
    }
  }
};

/// Copies a tile from device memory to shared memory; Transfer says how.
///   tile::load<kThreads>(k_smem, p.k.slice(batch, kv_head, kv_len, kDim), kv_tile * kBc);
template <int kThreads, class Shared, RowSource M>
ATTILE_DEVICE void load(const Shared& shared, const M& source, int row0) {
  Transfer<kThreads, Shared, std::remove_const_t<typename M::Element>>::load(shared, source, row0);
}

/// Stores target(row0 + r, c) = registers(r, c) * factor, within the target's rows and columns.
///   tile::store(p.o.slice(batch, head, p.q_len, kDim), o_frag, row0);
/// Shapes   registers: a RegisterTile, or an MmaTile. Four lanes of an MmaTile write 32 bytes of
///          fp32 together, a sector, and half of one in 16 bits: there whole rows are written from
///          shared memory (`stage`, then `store_tile`).
/// Scope    each thread for the elements that it holds.
template <class Registers, class T>
  requires(requires { Registers::kColRun; })
ATTILE_DEVICE void store(const Matrix<T>& target, const Registers& registers, int row0,
                         float factor = 1.0f) {
  constexpr int kRun = Registers::kColRun;
  ATTILE_UNROLL
  for (int r = 0; r < Registers::kRegRows; ++r) {
    const int row = row0 + Registers::row(r);
    if (!Registers::has_row(r) || row >= target.rows) continue;
    T* const out = target.data + row * target.row_stride;
    ATTILE_UNROLL
    for (int c = 0; c < Registers::kRegCols; c += kRun) {
      const int col = Registers::col(c);
      Vec<T, kRun> v;
      ATTILE_UNROLL
      for (int e = 0; e < kRun; ++e) v[e] = from_float<T>(registers.x[r][c + e] * factor);
      if (target.vectors && col < target.cols) {
        arch::store(out + col, v);
      } else {
        ATTILE_UNROLL
        for (int e = 0; e < kRun; ++e) {
          if (col + e < target.cols) out[col + e] = v[e];
        }
      }
    }
  }
}

/// Loads registers(r, c) = source(row0 + r, c); 0 beyond the source's rows and columns.
///   Output x_frag;
///   tile::load(x_frag, p.x.slice(batch, head, p.q_len, kDim), row0);
/// Shapes   registers: as for `store`.
/// Scope    each thread for the elements that it holds.
template <class Registers, class T>
ATTILE_DEVICE void load(Registers& registers, const Matrix<T>& source, int row0) {
  constexpr int kRun = Registers::kColRun;
  registers.clear();
  ATTILE_UNROLL
  for (int r = 0; r < Registers::kRegRows; ++r) {
    const int row = row0 + Registers::row(r);
    if (!Registers::has_row(r) || row >= source.rows) continue;
    const T* const in = source.data + row * source.row_stride;
    ATTILE_UNROLL
    for (int c = 0; c < Registers::kRegCols; c += kRun) {
      const int col = Registers::col(c);
      if (source.vectors && col < source.cols) {
        const auto v = arch::load<kRun>(in + col);
        ATTILE_UNROLL
        for (int e = 0; e < kRun; ++e) registers.x[r][c + e] = to_float(v[e]);
      } else {
        ATTILE_UNROLL
        for (int e = 0; e < kRun; ++e) {
          if (col + e < source.cols) registers.x[r][c + e] = to_float(in[col + e]);
        }
      }
    }
  }
}

/// Writes shared(r, c) = registers(r, c).
///   tile::stage(p_smem, s_frag);
///   Scores::sync_rows();  // the lanes of a row see each other's P
/// Runs along a row of the tile, or along a column of a column-major tile, are written whole,
/// including elements beyond the tile's last row or column.
/// Scope    each thread for the elements that it holds.
/// Barriers one after, before a lane reads what other lanes wrote.
template <class Shared, class Registers>
ATTILE_DEVICE void stage(const Shared& shared, const Registers& registers) {
  constexpr int kRun = Shared::kRowMajor ? Registers::kColRun : Registers::kRowRun;
  constexpr int kDown = Shared::kRowMajor ? 1 : kRun;
  constexpr int kAlong = Shared::kRowMajor ? kRun : 1;
  ATTILE_UNROLL
  for (int r = 0; r < Registers::kRegRows; r += kDown) {
    ATTILE_UNROLL
    for (int c = 0; c < Registers::kRegCols; c += kAlong) {
      if (!Registers::has_row(r) || !Registers::has_col(c)) continue;
      Vec<float, kRun> run;
      ATTILE_UNROLL
      for (int e = 0; e < kRun; ++e) {
        run[e] = Shared::kRowMajor ? registers.x[r][c + e] : registers.x[r + e][c];
      }
      shared.set_run(Registers::row(r), Registers::col(c), run);
    }
  }
}

}  // namespace attile::tile
