// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/attributes.h>
#include <attile/arch/math.h>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/array.h>
#include <attile/core/config.h>
#include <attile/core/earlier_keys.h>
#include <attile/core/element.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/vec.h>
#include <attile/kernel/decode/decode_params.cuh>
#include <attile/kernel/decode/split_part.cuh>
#include <attile/tile/online_softmax.h>
#include <attile/tile/operand_in_unit.cuh>

#include <cstdint>
#include <type_traits>

// The states of a row over disjoint keys are merged twice: those of a block's warps, and those of a
// row tile's parts in scratch memory.
//   m = max m_i,  l = sum l_i e^(m_i - m),  O = sum O_i e^(m_i - m)     [FlashAttention-1, 3.1]
// The sums have an order that follows from the number of states alone.

namespace attile {

/// Holds the softmax state of a row, and Quads times 4 neighbouring elements of its O, which is not
/// divided by l. A row that has seen nothing has m = -inf, l = 0, O = 0.
template <int Quads>
struct RowState {
  static constexpr int kQuads = Quads, kColumns = 4 * Quads;
  float m = -kInf, l = 0.0f;
  Array<Float4, kQuads> o{};

  ATTILE_DEVICE float& element(int e) { return o[e / 4][e % 4]; }
  ATTILE_DEVICE const float& element(int e) const { return o[e / 4][e % 4]; }
  /// Reads the elements of O from there on, every 4 of them `step` columns behind those before.
  ATTILE_DEVICE void load_o(const float* from, int step = 4) {
    ATTILE_UNROLL
    for (int quad = 0; quad < kQuads; ++quad) o[quad] = arch::load<4>(from + step * quad);
  }
};

/// Returns the state of a row over the keys of `count` states, which are merged kAtOnce at a time:
/// these are read before the first of them is used, so that memory answers them together.
/// `next(there, state)` reads the next one, if it is there. `before` states that are not there come
/// first.
template <int kAtOnce, class RowState, class Next>
ATTILE_DEVICE RowState merge_states(int before, int count, float scale_log2, const Next& next) {
  RowState row;
  ATTILE_UNROLL_BY(1)
  for (int first = -before; first < count; first += kAtOnce) {
    RowState states[kAtOnce];
    ATTILE_UNROLL
    for (int i = 0; i < kAtOnce; ++i) next(0 <= first + i && first + i < count, states[i]);
    float m = row.m;
    ATTILE_UNROLL
    for (int i = 0; i < kAtOnce; ++i) m = arch::fmax(m, states[i].m);
    const float kept = tile::softmax_weight(row.m, m, scale_log2);
    row.m = m;
    row.l *= kept;
    ATTILE_UNROLL
    for (int e = 0; e < RowState::kColumns; ++e) row.element(e) *= kept;
    ATTILE_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const float weight = tile::softmax_weight(states[i].m, m, scale_log2);
      row.l = arch::fma(states[i].l, weight, row.l);
      ATTILE_UNROLL
      for (int e = 0; e < RowState::kColumns; ++e) {
        row.element(e) = arch::fma(states[i].element(e), weight, row.element(e));
      }
    }
  }
  return row;
}

/// Writes rows of O and LSE, or of a part, and merges parts.
/// Scope    all lanes of a warp make it (Problem::sampler); each thread calls `put` for what it
/// has.
template <class Traits>
class PartOutput {
 public:
  using RowState = attile::RowState<DecodeParams<Traits>::kOutputQuads>;
  static constexpr int kColumns = DecodeParams<Traits>::kOutputColumns;
  /// Whether scratch memory can take states from registers (put_registers): where the warps of the
  /// one key group divide rows, and have all columns.
  static constexpr bool kTakesRegisters = Traits::kKeyGroups == 1 && !Traits::kPairs &&
                                          Traits::kVColumns == kColumns && kColumns % 32 == 0 &&
                                          Traits::OutputRegisters::kLaneColumns == 2;

  /// `earlier_lse`: shared memory for a float of each row, used only where there are earlier keys.
  ATTILE_DEVICE PartOutput(const DecodeParams<Traits>& p, const SplitPart& part, float scale_log2,
                           float* earlier_lse)
      : p_(p),
        part_(part),
        scale_log2_(scale_log2),
        output_scale_(p.output_scale([&] { return part.at; }) *
                      tile::operand_unit<typename Traits::V>()),
        earlier_lse_(earlier_lse) {}

  /// Begins a part, before its first `put`.
  /// Scope    all kThreads threads of the block.
  /// Barriers one of the block before the first `put`, which reads what other threads write here;
  ///          and one between the last `put` of the part before and this.
  ATTILE_DEVICE void begin() const {
    if (part_.parts == 1) read_earlier_lse();
  }

  /// Takes the elements from column `col` on of row `row` of the part: writes O and LSE if it is
  /// the row tile's only part, else its state to scratch memory. Columns from head_dim_v on are
  /// left out of O.
  ATTILE_DEVICE void put(int row, int col, const RowState& state) const {
    if (part_.parts == 1) {
      store(row, col, state);
      return;
    }
    float* const memory = p_.part(part_.slot);
    if (col == 0) arch::store(memory + 2 * row, Vec<float, 2>{state.m, state.l});
    float* const to = outputs(memory) + row * kColumns + col;
    ATTILE_UNROLL
    for (int quad = 0; quad < RowState::kQuads; ++quad) arch::store(to + 4 * quad, state.o[quad]);
  }

  /// Says whether the part's state goes from registers to scratch memory, by put_registers and
  /// end_registers: where warps divide its rows, there is nothing in the block to merge it with.
  /// These are code of their own, behind that for few rows: in between, code that does not run
  /// costs a short call 3 % of its time (bench/log/tuning-decode.md).
  ATTILE_DEVICE bool takes_registers(bool divides_keys) const {
    return kTakesRegisters && !divides_keys && part_.parts > 1 && p_.splits == Splits::Kind::kFill;
  }
  /// Takes the state of a part in the place of all calls of `put`.
  /// Scope    all threads of the block. Barriers as for `put`.
  template <class Outputs>
  ATTILE_DEVICE void put_registers(const Outputs& o_frag,
                                   const tile::OnlineSoftmax<Outputs::kRegRows>& softmax) const {
    float* const memory = p_.part(part_.slot);
    const int row0 = Outputs::row(0), col0 = Outputs::col(0);
    float* const to = outputs(memory) + row0 * kColumns + col0;
    ATTILE_UNROLL
    for (int r = 0; r < Outputs::kRegRows; ++r) {
      if (row0 + Outputs::row_offset(r) >= part_.rows) continue;
      ATTILE_UNROLL
      for (int c = 0; c < Outputs::kRegCols; c += 2) {
        arch::store(to + Outputs::row_offset(r) * kColumns + Outputs::col_offset(c),
                    Vec<float, 2>{o_frag.x[r][c], o_frag.x[r][c + 1]});
      }
    }
    ATTILE_UNROLL
    for (int r = 0; r < Outputs::kRegRows; ++r) {
      const float l = Outputs::sum_lanes(softmax.l[r]);
      const int row = row0 + Outputs::row_offset(r);
      if (col0 == 0 && row < part_.rows) {
        arch::store(memory + 2 * row, Vec<float, 2>{softmax.m[r], l});
      }
    }
  }
  /// Ends a part after `put_registers`, as `end` does. Many rows have mostly few parts: a thread
  /// reads more columns of fewer parts at once.
  ATTILE_DEVICE void end_registers() const { end_part<2, attile::RowState<8>>(); }

  /// Ends a part after its last `put`. The block that ends the last part of a row tile merges all
  /// of them, whichever block that is. Nobody waits: each block of the row tile takes its ticket
  /// once, after its own parts, and the one that takes the last one sets it to 0 again.
  /// Scope    all kThreads threads of the block.
  /// Barriers one of the block between the last `put` and this, or others could read a part that is
  ///          not written yet.
  ATTILE_DEVICE void end() const { end_part<kPartsAtOnce, RowState>(); }

 private:
  static constexpr bool kHasEarlierKeys = kIsEarlierKeys<typename Traits::SinkType>;
  static constexpr int kPartsAtOnce = DecodeParams<Traits>::kPartsAtOnce;

  /// Ends a part, and merges kAtOnce parts at a time, of which a thread has one State at a time.
  template <int kAtOnce, class State>
  ATTILE_DEVICE void end_part() const {
    constexpr int kVectors = kColumns / State::kColumns;
    constexpr int kStep = 4 * kVectors;  // neighbouring threads read neighbouring columns
    if (part_.parts == 1 || !part_.is_last_of_row_tile_in_run) return;
    if (part_.runs > 1 && !takes_last_ticket()) return;
    if constexpr (kHasEarlierKeys) {
      read_earlier_lse();
      arch::barrier();  // all of it has been read before it is used, and before LSE is written
    }
    for (int i = arch::thread_index(); i < part_.rows * kVectors; i += Traits::kThreads) {
      const int row = i / kVectors, col = i % kVectors * 4;
      // From m and l of this row in a part, its O is so far away.
      const int to_outputs = 2 * (p_.part_rows - row) + row * kColumns + col;
      const float* from = p_.part(part_.first_part_slot) + 2 * row;
      const float* behind = p_.part(part_.second_part_slot) + 2 * row;
      const std::int64_t step = p_.part(part_.slot_step) - p_.part(0);
      const auto sum = merge_states<kAtOnce, State>(part_.parts_before, part_.parts, scale_log2_,
                                                    [&](bool there, State& state) {
                                                      if (!there) return;
                                                      const Vec<float, 2> m_l = arch::load<2>(from);
                                                      state.m = m_l[0], state.l = m_l[1];
                                                      state.load_o(from + to_outputs, kStep);
                                                      from = behind;
                                                      behind += step;
                                                    });
      store(row, col, sum, kStep);
    }
    if constexpr (kHasEarlierKeys) {
      arch::barrier();  // it has been used before that of the next part replaces it
    }
  }

  /// Gives OnlineSoftmax::finish the elements of one row that a thread has.
  template <class State>
  struct OneRow {
    State& row;
    ATTILE_DEVICE static float sum_lanes(float sum) { return sum; }
    ATTILE_DEVICE void scale_row(int, float factor) const {
      ATTILE_UNROLL
      for (int e = 0; e < State::kColumns; ++e) row.element(e) *= factor;
    }
    ATTILE_DEVICE void clear_row(int) const {
      ATTILE_UNROLL
      for (Float4& quad : row.o) quad = {};
    }
  };
  /// Gives it the row's sink.
  struct RowSink {
    static constexpr bool kEnabled = Traits::SinkType::kEnabled;
    float of_row, scale_log2;
    ATTILE_DEVICE float logit(int) const { return of_row; }
  };
  /// Gives it the results of earlier keys: LSE, and O from a thread's first column on, of which
  /// there are `count`. `step`: as load_o has it.
  template <class T>
  struct RowOfEarlierKeys : RowSink {
    const T* o;
    int count, step;
    template <class State>
    ATTILE_DEVICE void add_value(const OneRow<State>& output, int, float weight) const {
      ATTILE_UNROLL
      for (int e = 0; e < State::kColumns; ++e) {
        float& element = output.row.element(e);
        const int col = e / 4 * step + e % 4;
        if (col < count) element = arch::fma(to_float(o[col]), weight, element);
      }
    }
  };
  /// Returns a RowSink, or with earlier keys a RowOfEarlierKeys. `row`: of the part; `at`: of the
  /// problem.
  ATTILE_DEVICE auto last_term(int row, const ScoreIndex& at, int col, int step) const {
    RowSink sink{-kInf, scale_log2_};
    if constexpr (kHasEarlierKeys) {
      sink.of_row = earlier_lse_[row];
      const auto* const o = p_.query_row(p_.policies.sink.o, at) + col;
      return RowOfEarlierKeys<std::remove_cvref_t<decltype(*o)>>{sink, o, p_.head_dim_v - col,
                                                                 step};
    } else {
      if constexpr (RowSink::kEnabled) sink.of_row = p_.policies.sink.logit(at.head);
      return sink;
    }
  }
  /// Returns which row of the problem a row of the part is.
  ATTILE_DEVICE ScoreIndex index_of(int row) const {
    const auto [q_row, head] = p_.packed_heads.divmod(part_.packed_row0 + row);
    return {part_.at.sequence, part_.at.head + head, q_row, 0};
  }
  /// Reads the LSE of the earlier keys of all rows. It may lie where LSE is written, and several
  /// threads use that of a row.
  ATTILE_DEVICE void read_earlier_lse() const {
    if constexpr (kHasEarlierKeys) {
      for (int row = arch::thread_index(); row < part_.rows; row += Traits::kThreads) {
        earlier_lse_[row] = p_.sink_of(index_of(row));
      }
    }
  }

  /// Returns whether all other blocks of the row tile have ended their parts.
  /// Scope    all threads of the block.
  ATTILE_DEVICE bool takes_last_ticket() const {
    bool is_last = false;
    if (arch::thread_index() == 0) {
      int* const ticket = p_.tickets + part_.first_run;
      is_last = arch::fetch_add_acq_rel(ticket, 1) == part_.runs - 1;
      if (is_last) *ticket = 0;  // for the next launch
    }
    return any_thread<Traits>(is_last);
  }
  template <class Float>
  ATTILE_DEVICE Float* outputs(Float* memory) const {
    return memory + 2 * p_.part_rows;
  }

  /// Writes O and LSE of a row from the state over all its keys. Here alone sinks and earlier keys
  /// enter: the states of parts have none. `step`: as load_o has it.
  /// [FlashAttention-2, Alg. 1, lines 12 to 15]
  template <class State>
  ATTILE_DEVICE void store(int row, int col, State state, int step = 4) const {
    const ScoreIndex at = index_of(row);
    tile::OnlineSoftmax<1> softmax{{state.m}, {state.l}};
    const auto sink = last_term(row, at, col, step);
    const OneRow<State> output{state};
    softmax.finish(output, output_scale_, sink);
    if (col == 0 && p_.lse.data != nullptr) {
      float lse = softmax.lse(0, scale_log2_);
      if constexpr (RowSink::kEnabled) lse = softmax.lse(0, scale_log2_, sink.of_row);
      p_.first_row(p_.lse, at.batch, at.head)[at.row] = lse;
    }
    using TO = typename Traits::OutputType;
    const RowOrigin origin = p_.q_origin(part_.at);
    TO* const to = p_.o.tensor.row(origin.batch, at.head, std::int64_t{origin.row} + at.row) + col;
    ATTILE_UNROLL
    for (int quad = 0; quad < State::kQuads; ++quad) {
      const int first = step * quad, count = p_.head_dim_v - col - first;
      Vec<TO, 4> v;
      ATTILE_UNROLL
      for (int e = 0; e < 4; ++e) v[e] = from_float<TO>(state.o[quad][e]);
      if (p_.o.vectors != 0) {
        if (count > 0) arch::store(to + first, v);
      } else {
        ATTILE_UNROLL
        for (int e = 0; e < 4; ++e) {
          if (e < count) to[first + e] = v[e];
        }
      }
    }
  }

  const DecodeParams<Traits>& p_;
  const SplitPart& part_;
  float scale_log2_, output_scale_;
  float* earlier_lse_;
};

}  // namespace attile
