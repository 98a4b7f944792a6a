// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/async_copy.cuh>
#include <attile/arch/attributes.h>
#include <attile/arch/fp8.cuh>
#include <attile/arch/matrix.cuh>
#include <attile/arch/shared_memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/arch/unset.h>
#include <attile/core/array.h>
#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/fp8.h>
#include <attile/tile/panel_tile.cuh>

#include <cstdint>

namespace attile::tile {

// The operands of `multiply` follow. A step of the depth is kStepDepth elements, 32 bytes of the
// type that is multiplied. A left operand gives each warp 16 x kStepDepth pieces of its own
// rows; a right operand gives every warp kStepDepth x 16 pieces of all columns, as two halves of 8
// columns. Lane i holds, of rows i / 4 (words 0, 2) and i / 4 + 8 (words 1, 3) of the left operand,
// and of column i / 4 of the right one, the 4-byte words of the depth i % 4 (words 0, 1 left, 0, 2
// right) and i % 4 + 4.
//
// Where both operands are fp8, a product takes them as they are. Else fp8 is a right operand of a
// product of 16-bit elements, and is converted to these when a piece is loaded. Matrices are loaded
// in units of 16 bits, which keep two neighbours of a row together. A word of K has four neighbours
// of the depth: a left operand that meets it has its depth in the same order (WordPairs). A word of
// V, which is transposed, has two keys by two columns: the result has its columns in another order
// (MmaTile, kLaneCols = 4).
//
// fp32: a kPaired left operand has the depth of each step in the order 0, 2, 4, 6, 1, 3, 5, 7, in
// which the result of a product is an operand without any exchange; `facing` returns a right
// operand in the same order.

/// The elements of the depth that one matrix instruction takes.
template <class T>
inline constexpr int kStepDepth = 32 / sizeof(T);

namespace detail {

ATTILE_DEVICE unsigned lane() {
  return static_cast<unsigned>(arch::thread_index()) % arch::kWarpSize;
}

}  // namespace detail

/// Reads a left operand from shared memory, (rows, depth).
///   const tile::SharedLeft q_left(q_smem, Scores::warp_row());
template <class Tile>
class SharedLeft {
 public:
  static constexpr int kDepth = Tile::kCols;
  static constexpr bool kPaired = false;
  static constexpr bool kInRegisters = false;

  ATTILE_DEVICE SharedLeft(const Tile& tile, int first)
      : reader_(tile, first + detail::lane() % 16, detail::lane() / 16) {}

  /// Loads the piece of 16 rows from the warp's row 16 i on and of step k of the depth.
  ATTILE_DEVICE void piece(std::uint32_t (&a)[4], int i, int k) const {
    arch::load_matrices(a, reader_.address(i * 16, k * kStepDepth<typename Tile::Element>));
  }

 private:
  PieceReader<Tile> reader_;
};

/// Reads a left operand from shared memory, stored as its transpose (depth, rows).
template <class Tile>
class SharedLeftTransposed {
 public:
  static constexpr int kDepth = Tile::kRows;

  ATTILE_DEVICE SharedLeftTransposed(const Tile& tile, int first)
      : reader_(tile, detail::lane() % 8 + detail::lane() / 16 * 8, detail::lane() / 8 % 2),
        first_(first) {}

  ATTILE_DEVICE void piece(std::uint32_t (&a)[4], int i, int k) const {
    arch::load_matrices_transposed(a, reader_.address(k * 16, first_ + i * 16));
  }

 private:
  PieceReader<Tile> reader_;
  int first_;
};

template <class Tile>
  requires(sizeof(typename Tile::Element) == 4)
class SharedLeftTransposed<Tile> {
 public:
  static constexpr int kDepth = Tile::kRows;
  static constexpr bool kPaired = false;
  static constexpr bool kInRegisters = false;

  ATTILE_DEVICE SharedLeftTransposed(const Tile& tile, int first) : reader_(tile), first_(first) {}

  ATTILE_DEVICE void piece(std::uint32_t (&a)[4], int i, int k) const {
    std::uint32_t words[4];
    reader_.piece(words, k * 8, first_ + i * 16);
    a[0] = words[0];
    a[1] = words[2];
    a[2] = words[1];
    a[3] = words[3];
  }

 private:
  WordReader<Tile, kPaired> reader_;
  int first_;
};

/// Holds a left operand in registers: the result of a product, rounded to T.
///   const tile::RegisterLeft<T, Scores> p_left(s_frag);
/// A lane's elements of two neighbouring 16 x 8 pieces of a result are its elements of one 16 x 16
/// piece of an operand; with fp32 those of one piece are its elements of a 16 x 8 piece in the
/// paired order, and with fp8 those of four pieces of one 16 x 32 piece in the order of BytePairs.
template <class T, class Registers>
class RegisterLeft {
  static_assert(Registers::kWarpCols == Registers::kCols,
                "attile::tile::RegisterLeft: a warp has all columns of its rows");

 public:
  using Element = T;
  static constexpr int kDepth = Registers::kCols;
  static constexpr bool kPaired = true;
  static constexpr bool kInRegisters = true;

  ATTILE_BEGINS_UNSET(RegisterLeft, words_)
  ATTILE_DEVICE explicit RegisterLeft(const Registers& p) {
    ATTILE_UNROLL
    for (int r = 0; r < Registers::kRegRows; ++r) {
      ATTILE_UNROLL
      for (int c = 0; c < Registers::kRegCols; c += 2) {
        if constexpr (sizeof(T) == 1) {
          if (c % 4 != 0) continue;
          words_[r / 2][c / 8][c / 4 % 2 * 2 + r % 2] =
              arch::narrow<T>(p.x[r][c], p.x[r][c + 1], p.x[r][c + 2], p.x[r][c + 3]);
        } else if constexpr (sizeof(T) == 4) {
          words_[r / 2][c / 2][r % 2] = word_of(p.x[r][c]);
          words_[r / 2][c / 2][2 + r % 2] = word_of(p.x[r][c + 1]);
        } else {
          words_[r / 2][c / 4][c / 2 % 2 * 2 + r % 2] =
              word_of(from_floats<T>(p.x[r][c], p.x[r][c + 1]));
        }
      }
    }
  }

  ATTILE_DEVICE std::uint32_t& word(int i, int k, int w) { return words_[i][k][w]; }
  ATTILE_DEVICE void piece(std::uint32_t (&a)[4], int i, int k) const {
    ATTILE_UNROLL
    for (int w = 0; w < 4; ++w) a[w] = words_[i][k][w];
  }
  /// Returns the piece by reference, without a copy.
  ATTILE_DEVICE const std::uint32_t (&piece(int i, int k) const)[4] { return words_[i][k]; }

 private:
  std::uint32_t words_[Registers::kRegRows / 2][kDepth / kStepDepth<T>][4];
};

/// Holds a left operand of 16 rows for each warp that was read once from a tile in shared memory,
/// (rows, depth). Only 16-bit elements.
template <class Tile>
class LoadedLeft {
 public:
  using Element = typename Tile::Element;
  static constexpr int kDepth = Tile::kCols;

  ATTILE_DEVICE LoadedLeft(const Tile& tile, int first) {
    const SharedLeft<Tile> from(tile, first);
    ATTILE_UNROLL
    for (int k = 0; k < kDepth / 16; ++k) from.piece(words_[k], 0, k);
  }
  ATTILE_DEVICE const std::uint32_t (&piece(int, int k) const)[4] { return words_[k]; }

 private:
  Array<std::uint32_t, kDepth / 16, 4> words_;
};

/// Reads a right operand from shared memory, (depth, columns).
///   tile::multiply<T>(o_frag, p_left, tile::SharedRight(v_smem));
template <class Tile>
class SharedRight {
 public:
  static constexpr int kDepth = Tile::kRows, kCols = Tile::kCols;

  ATTILE_DEVICE explicit SharedRight(const Tile& tile, int first = 0)
      : reader_(tile, detail::lane() % 16, detail::lane() / 16), first_(first) {}

  /// Loads the piece of step k of the depth and of the columns from 16 j on: b[0] and b[1] hold the
  /// left 8 columns, b[2] and b[3] the right 8.
  ATTILE_DEVICE void piece(std::uint32_t (&b)[4], int k, int j) const {
    arch::load_matrices_transposed(b, reader_.address(k * 16, first_ + j * 16));
  }

 private:
  PieceReader<Tile> reader_;
  int first_;
};

template <class Tile>
  requires(sizeof(typename Tile::Element) == 4)
class SharedRight<Tile> {
 public:
  static constexpr int kDepth = Tile::kRows, kCols = Tile::kCols;

  ATTILE_DEVICE explicit SharedRight(const Tile& tile, int first = 0)
      : tile_(tile), first_(first) {}

  /// Reads the operand in the order of the depth that a left operand, kPaired or not, has.
  template <bool kPaired>
  class Facing {
   public:
    ATTILE_DEVICE explicit Facing(const SharedRight& b) : reader_(b.tile_), first_(b.first_) {}
    ATTILE_DEVICE void piece(std::uint32_t (&b)[4], int k, int j) const {
      reader_.piece(b, k * 8, first_ + j * 16);
    }

   private:
    WordReader<Tile, kPaired> reader_;
    int first_;
  };

 private:
  Tile tile_;
  int first_;
};

/// Reads a right operand of fp8 from shared memory, (depth, columns). The left half of a piece has
/// the even ones of its 16 columns, the right half the odd ones.
template <class Tile>
  requires(Fp8<typename Tile::Element>)
class SharedRight<Tile> {
 public:
  static constexpr int kDepth = Tile::kRows, kCols = Tile::kCols;
  static constexpr int kLaneColumns = 4;  ///< of the result

  ATTILE_DEVICE explicit SharedRight(const Tile& tile, int first = 0)
      : reader_(tile, detail::lane() % 16, 0), first_(first) {}

  /// Loads a piece as elements of T. kInUnit: see in_unit.
  template <class T, bool kInUnit = false>
  ATTILE_DEVICE void piece(std::uint32_t (&b)[4], int k, int j) const {
    std::uint32_t words[2];  // of each: rows 2 i and 2 i + 1 of columns 2 c and 2 c + 1
    arch::load_matrices_transposed(words, reader_.address(k * 16, first_ + j * 16));
    ATTILE_UNROLL
    for (int half = 0; half < 2; ++half) {
      arch::widen<typename Tile::Element, T, true, kInUnit>(words[half], b[half], b[2 + half]);
    }
  }

 private:
  PieceReader<Tile> reader_;
  int first_;
};

/// Reads a right operand from shared memory, stored as its transpose (columns, depth).
///   tile::multiply<T>(s_frag, q_left, tile::SharedRightTransposed(k_smem));
/// kConverts  whether its elements of fp8 are converted to those of the left operand.
template <class Tile, bool kConverts = Fp8<typename Tile::Element>>
class SharedRightTransposed {
 public:
  using Element = typename Tile::Element;
  static constexpr int kDepth = Tile::kCols, kCols = Tile::kRows;

  ATTILE_DEVICE explicit SharedRightTransposed(const Tile& tile, int first = 0)
      : reader_(tile, first + detail::lane() % 8 + detail::lane() / 16 * 8,
                detail::lane() / 8 % 2) {}

  ATTILE_DEVICE void piece(std::uint32_t (&b)[4], int k, int j) const {
    arch::load_matrices(b, reader_.address(j * 16, k * kStepDepth<Element>));
  }

 private:
  PieceReader<Tile> reader_;
};

/// Reads a right operand of fp8 from shared memory, stored as its transpose (columns, depth). A
/// left operand that meets it has its depth in the order of WordPairs.
template <class Tile>
class SharedRightTransposed<Tile, true> {
 public:
  static constexpr int kDepth = Tile::kCols, kCols = Tile::kRows;

  ATTILE_DEVICE explicit SharedRightTransposed(const Tile& tile, int first = 0)
      : reader_(tile, first + detail::lane() % 16, 0) {}

  /// Loads a piece as elements of T. kInUnit: see in_unit.
  template <class T, bool kInUnit = false>
  ATTILE_DEVICE void piece(std::uint32_t (&b)[4], int k, int j) const {
    std::uint32_t words[2];  // of each: depth 4 i to 4 i + 3 of one column
    arch::load_matrices(words, reader_.address(j * 16, k * 16));
    arch::widen<typename Tile::Element, T, false, kInUnit>(words[0], b[0], b[1]);
    arch::widen<typename Tile::Element, T, false, kInUnit>(words[1], b[2], b[3]);
  }

 private:
  PieceReader<Tile> reader_;
};

/// Names the order of the depth in which the result of a product is a left operand of fp8 without
/// any exchange: of each 16 elements, pairs i and i + 4 lie beside each other.
struct BytePairs {
  /// Returns which element lies at `position`.
  ATTILE_HOST_DEVICE static constexpr int element(int position) {
    return position / 16 * 16 + position % 16 / 4 * 2 + position / 2 % 2 * 8 + position % 2;
  }
};

/// Returns the right operand, stored as its transpose, of a product with a left operand of T.
template <class T, class Tile>
ATTILE_DEVICE auto transposed_right(const Tile& tile, int first = 0) {
  return SharedRightTransposed < Tile, Fp8<typename Tile::Element> && !Fp8 < T >> (tile, first);
}

/// Names the order of the depth of a left operand of 16-bit elements that meets K in fp8. Of each
/// 16 elements, words 2 i and 2 i + 1 of two elements lie where words i and i + 4 would.
struct WordPairs {
  /// Returns where word `word` of a row lies.
  ATTILE_HOST_DEVICE static constexpr unsigned word(unsigned word) {
    return word / 8 * 8 + word % 2 * 4 + word % 8 / 2;
  }
  /// Returns where element `col` of a row lies.
  ATTILE_HOST_DEVICE static constexpr unsigned col(unsigned col) {
    return 2 * word(col / 2) + col % 2;
  }
};

/// Begins to copy 16 bytes of a row of a left operand of products with elements of K, from column
/// unit * kUnitElements on; zeros where `there` is false. They belong to the thread's open commit
/// group. Units    as arch::async_copy_16.
template <class K, class Tile>
ATTILE_DEVICE void copy_left_async(const Tile& shared, int row, int unit,
                                   const typename Tile::Element* from, bool there) {
  using Layout = typename Tile::Layout;
  const std::uint32_t base = arch::shared_address(shared.data);
  if constexpr (Fp8<K>) {
    ATTILE_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned word = WordPairs::word(unit * 4 + i);
      arch::async_copy_4(base + Layout::offset(row, word / 4) + word % 4 * 4, from + 2 * i, there);
    }
  } else {
    arch::async_copy_16(base + Layout::offset(row, unit), from, there);
  }
}

/// Returns the element of such a row that multiplies element `col` of a row of K.
template <class K, class Tile>
ATTILE_DEVICE typename Tile::Element& left_element(const Tile& shared, int row, int col) {
  if constexpr (Fp8<K>) {
    return shared.at(row, static_cast<int>(WordPairs::col(col)));
  } else {
    return shared.at(row, col);
  }
}

/// Begins to load a left operand of products with elements of K, as `load_async` does.
template <class K, int kThreads, int Rows, int Cols, class T, RowSource M>
ATTILE_DEVICE void load_left_async(const PanelTile<Rows, Cols, T>& shared, const M& source,
                                   int row0) {
  if constexpr (!Fp8<K> || Fp8<T>) {
    load_async<kThreads>(shared, source, row0);
  } else {
    using Layout = typename PanelTile<Rows, Cols, T>::Layout;
    constexpr int kUnit = Layout::kUnitElements;
    ATTILE_UNROLL_BY(1)
    for (int i = arch::thread_index(); i < Rows * Layout::kUnits; i += kThreads) {
      const int row = i / Layout::kUnits, unit = i % Layout::kUnits, col = unit * kUnit;
      const bool there = source.has_row(row0 + row) && col < source.cols;
      const T* const from = there ? source.at(row0 + row, col) : source.data;
      if (source.vectors != 0) {
        copy_left_async<K>(shared, row, unit, from, there);
      } else {
        ATTILE_UNROLL_BY(1)
        for (int e = 0; e < kUnit; ++e) {
          left_element<K>(shared, row, col + e) =
              there && col + e < source.cols ? from[e] : from_float<T>(0.0f);
        }
      }
    }
  }
}

}  // namespace attile::tile
