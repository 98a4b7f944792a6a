// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/earlier_keys.h>
#include <attile/core/schedule.h>
#include <attile/host/panels.h>
#include <attile/host/parallel.h>
#include <attile/host/problem.h>
#include <attile/host/scores.h>
#include <attile/host/simd.h>
#include <attile/tile/online_softmax.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace attile::host {

/// Gives the rows of a query head its sink, as OnlineSoftmax::finish takes it.
template <class SinkType>
struct HeadSink {
  static constexpr bool kEnabled = SinkType::kEnabled;

  const SinkType& sink;
  int head;
  float scale_log2;

  float logit(int) const { return sink.logit(head); }
};

/// Gives the rows of a strip the results of their earlier keys. `batch`, `row0`: the strip's first
/// row, as the tensors count it; there are `rows` of them.
template <class T>
struct RowsOfEarlierKeys {
  static constexpr bool kEnabled = true;

  const EarlierKeys<T>& earlier;
  int batch, head;
  std::int64_t row0;
  int rows, head_dim_v;
  float scale_log2;

  float logit(int r) const { return r < rows ? *earlier.lse.row(batch, head, row0 + r) : -kInf; }
  template <class V>
  void add_value(const OutputRows<V>& output, int r, float weight) const {
    const T* const value = earlier.o.row(batch, head, row0 + r);
    float* const to = output.o + std::ptrdiff_t{r} * output.stride;
    for (int c = 0; c < head_dim_v; ++c) to[c] += weight * widen(value[c]);
  }
};

/// Computes FlashAttention-2 (arXiv 2307.08691, Alg. 1) for one block of Br query rows at a time. A
/// block goes through the registers in strips of kStripRows rows; scores exist for one strip only.
template <class V, class Args>
class ForwardWorker {
 public:
  using P = Problem<V, Args>;
  using TQ = typename Args::Elements::Q;
  using TK = typename Args::Elements::K;
  using TV = typename Args::Elements::V;

  ForwardWorker(const P& problem, Arena& arena) : problem_(problem) {
    const std::int64_t rows = problem.tile_rows, columns = problem.tile_cols;
    q_strips_ = arena.take<float>(rows * problem.D);
    o_ = arena.take<float>(rows * problem.padded_dim_v());
    softmax_ = arena.take<Softmax>(rows / kRows);
    s_ = arena.take<float>(std::int64_t{kRows} * kMaxTileColumns);
    kt_panels_ = arena.take<float>(columns * problem.D);
    v_panels_ = arena.take<float>(columns * round_up(problem.Dv, kPanelWidth<V>));
    k_zeros_ = arena.take<TK>(kPaged ? problem.D : 0);
    v_zeros_ = arena.take<TV>(kPaged ? problem.Dv : 0);
  }

  static std::int64_t items(const P& problem) {
    return std::int64_t{problem.args.batch} * problem.args.q_heads * blocks(problem);
  }

  /// Computes one row block of one head, last blocks first: under a causal mask they take longest.
  void operator()(std::int64_t item) {
    const Args& args = problem_.args;
    const int count = blocks(problem_);
    const int block = count - 1 - static_cast<int>(item % count);
    head_ = static_cast<int>(item / count % args.q_heads);
    batch_ = static_cast<int>(item / count / args.q_heads);
    const std::int64_t begin = std::int64_t{block} * problem_.tile_rows;
    const Extent extent = problem_.extent(batch_);
    rows_ = clip(begin, begin + problem_.tile_rows, extent.q_len);
    if (rows_.empty()) return;
    scale_log2_ = problem_.scale_log2(batch_, head_);

    const Tensor<const TQ> q = problem_.q_rows(args.q, batch_);
    pack_transposed<kRows>(RowBlock<TQ>(q, batch_, head_, rows_), problem_.D, q_strips_);
    for (int i = 0; i < strips(); ++i) softmax_[i].reset();
    std::fill_n(o_, std::ptrdiff_t{problem_.tile_rows} * o_stride(), 0.0f);  // line 5

    if (extent.kv_len > 0) {
      const int Bc = problem_.tile_cols;
      const Span seen = visible_columns(args.mask, batch_, head_, rows_, extent);
      const TileRange tiles = tiles_of(seen, Bc);
      first_key_ = seen.touched.begin;
      if (kPaged) {
        std::fill_n(k_zeros_, problem_.D, from_float<TK>(0.0f));
        std::fill_n(v_zeros_, problem_.Dv, from_float<TV>(0.0f));
      }
      for (int j = tiles.first; j < tiles.last; ++j) {  // line 6
        const bool full = tiles.full_first <= j && j < tiles.full_last;
        visit_tile(clip(std::int64_t{j} * Bc, std::int64_t{j + 1} * Bc, extent.kv_len), full);
      }
    }
    for (int i = 0; i < strips(); ++i) write_strip(i);
  }

 private:
  static constexpr int kRows = kStripRows<V>;
  static constexpr bool kPaged = kIsPaged<typename Args::SequencesType>;
  using Softmax = tile::OnlineSoftmax<kRows>;

  static int blocks(const P& problem) { return ceil_div(problem.args.q_len, problem.tile_rows); }
  int strips() const { return ceil_div(rows_.end - rows_.begin, kRows); }
  int o_stride() const { return problem_.padded_dim_v(); }
  float* o_strip(int i) const { return o_ + std::ptrdiff_t{i} * kRows * o_stride(); }
  Interval strip_rows(int i) const {
    const int begin = rows_.begin + i * kRows;
    return {begin, min(begin + kRows, rows_.end)};
  }

  /// Adds K_j and V_j to every strip that sees some of that tile.
  void visit_tile(Interval columns, bool full) {
    const Args& args = problem_.args;
    pack_transposed<kPanelWidth<V>>(keys_of(args.k, columns, k_zeros_), problem_.D, kt_panels_);
    pack_rows<V>(keys_of(args.v, columns, v_zeros_, args.v_col_stride), problem_.Dv,
                 problem_.tile_cols, v_panels_);
    for (int i = 0; i < strips(); ++i) {
      const Coord<false> coord{batch_, head_, strip_rows(i), columns};
      const Reach reach =
          full ? whole_tile<V>(columns.end - columns.begin) : reach_of<V>(problem_, coord);
      if (reach.empty()) continue;
      if (reach.needs_mask()) {
        step<true>(i, coord, reach);
      } else {
        step<false>(i, coord, reach);
      }
    }
  }

  /// Returns the rows of K, or V, of the current head.
  template <class X, class Stride = UnitStride>
  auto keys_of(const Tensor<const X>& tensor, Interval columns, const X* zeros,
               Stride col_stride = {}) const {
    const int kv_head = head_ / problem_.group;
    if constexpr (kPaged) {
      return PagedRowBlock<X, typename Args::SequencesType, Stride>(
          tensor, problem_.args.sequences, batch_, kv_head, columns, first_key_, zeros, col_stride);
    } else {
      return RowBlock<X, Stride>(problem_.kv_rows(tensor, batch_), batch_, kv_head, columns,
                                 col_stride);
    }
  }

  template <bool kMasked>
  void step(int i, const Coord<false>& coord, const Reach& reach) {
    multiply_scores<V>(q_strips_ + std::ptrdiff_t{i} * kRows * problem_.D, kt_panels_, problem_.D,
                       reach.wide, s_);  // line 8: S = Q K^T
    modify_scores<kMasked>(problem_, coord, reach, s_, nullptr);
    ScoreRows<V> scores{s_, reach.wide};
    OutputRows<V> output{o_strip(i), o_stride()};
    softmax_[i].step(scores, output, scale_log2_);  // lines 9, 10
    if constexpr (P::DropoutType::kEnabled) {
      for_each_kept(problem_, coord, reach, [&](int at, bool kept) {
        if (!kept) s_[at] = 0.0f;
      });
    }
    multiply_output<V>(s_, v_panels_, problem_.tile_cols, reach.valid, problem_.Dv, output.o,
                       o_stride());  // line 10: O += P V
  }

  /// Returns the sink of a strip's rows, or the results of their earlier keys.
  auto sink_of(Interval rows) const {
    const Args& args = problem_.args;
    if constexpr (kIsEarlierKeys<typename Args::SinkType>) {
      const RowOrigin origin = args.sequences.q_origin(batch_);
      return RowsOfEarlierKeys{args.sink,
                               origin.batch,
                               head_,
                               std::int64_t{origin.row} + rows.begin,
                               rows.end - rows.begin,
                               problem_.Dv,
                               scale_log2_};
    } else {
      return HeadSink<typename Args::SinkType>{args.sink, head_, scale_log2_};
    }
  }

  void write_strip(int i) {
    const Args& args = problem_.args;
    OutputRows<V> output{o_strip(i), o_stride()};
    const Interval rows = strip_rows(i);
    const auto sink = sink_of(rows);
    const float v_scale = args.v_scale.at(batch_, head_ / problem_.group);
    softmax_[i].finish(output, problem_.sampler.keep_scale() * v_scale, sink);  // line 12
    const auto o = problem_.q_rows(args.o, batch_);
    const RowTensor<float> lse = per_row(args, args.lse);
    for (int r = 0; r < rows.end - rows.begin; ++r) {
      const int row = rows.begin + r;
      write_row(output.o + std::ptrdiff_t{r} * o_stride(), 1.0f, problem_.Dv,
                o.row(batch_, head_, row));
      if (args.lse == nullptr) continue;
      float& of_row = *problem_.q_rows(lse, batch_).row(batch_, head_, row);  // line 13
      if constexpr (sink.kEnabled) {
        of_row = softmax_[i].lse(r, scale_log2_, sink.logit(r));
      } else {
        of_row = softmax_[i].lse(r, scale_log2_);
      }
    }
  }

  const P& problem_;
  float* q_strips_;   // (strips, D, kStripRows)
  float* o_;          // (tile_rows, o_stride), not yet divided by l
  Softmax* softmax_;  // (strips)
  float* s_;          // (kStripRows, kMaxTileColumns)
  float* kt_panels_;  // (panels, D, kPanelWidth)
  float* v_panels_;   // (panels, tile_cols, kPanelWidth)
  TK* k_zeros_;       // a row of K, and one of V, where keys lie in pages
  TV* v_zeros_;
  int first_key_ = 0;  // that any row of the block may see
  int batch_ = 0;
  int head_ = 0;
  float scale_log2_ = 0.0f;
  Interval rows_{};
};

/// Computes attention on the CPU: O and LSE of a problem whose pointers are host pointers.
/// Shapes   any head_dim; the contract is that of the GPU kernels.
/// Scope    uses options.threads threads, and scratch memory for each that does not grow with the
///          lengths. The same bits come out whatever the number of threads.
/// Errors   never throws: bad arguments, no memory and no thread are each a Check that says so,
///          and then nothing has been written. Masks, modifiers and dropouts must not throw.
template <ForwardPass Args, class V = NativeFloats>
[[nodiscard]] Check forward(const Args& args, const Options& options = {}) {
  if (const Check check = check_arguments(args, 0, 0); !check) return check;
  if (const Check check = check_options(options); !check) return check;
  const Problem<V, Args> problem(args, options);
  using Worker = ForwardWorker<V, Args>;
  return run_items<Worker>(problem, Worker::items(problem), problem.threads);
}

}  // namespace attile::host
