// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/core/score_mod.h>
#include <attile/host/panels.h>
#include <attile/host/parallel.h>
#include <attile/host/problem.h>
#include <attile/host/row_terms.h>
#include <attile/host/scores.h>
#include <attile/host/simd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace attile::host {

/// Adds to the gradient of a score modifier, from one thread at a time.
struct Add {
  ATTILE_HOST_DEVICE void operator()(float* where, float x) const { *where += x; }
};

/// Writes the zeros that the gradient of a score modifier begins with.
template <ScoreMod S>
void clear_gradient(const S& mod, const ScoreShape& shape) {
  if constexpr (kHasGradient<S>) {
    const std::int64_t lines = gradient_lines(mod, shape);
    for (std::int64_t n = 0; n < lines; ++n) {
      const GradientLine line = mod.gradient_line(n, shape);
      for (int i = 0; i < line.count; ++i) line.first[i * line.stride] = 0.0f;
    }
  }
}

/// Computes FlashAttention-2's backward pass (arXiv 2307.08691, Alg. 2) as two passes that each own
/// what they write, so that nothing is accumulated across threads: by rows (dQ) and by columns (dK,
/// dV). The pass by rows also computes the gradient of a score modifier. Both recompute P and dP
/// for a strip of what they own against tiles of the other side:
///   by rows      strip: Q, dO   tile: K, V    dQ += dS K
///   by columns   strip: K, V    tile: Q, dO   dV += dropout(P)^T dO,  dK += dS^T Q
template <class V, class Args, bool kByColumns>
class BackwardWorker {
 public:
  using P = BackwardProblem<V, Args>;
  using T = typename P::T;

  BackwardWorker(const P& problem, Arena& arena) : problem_(problem) {
    const std::int64_t own = problem.tile_rows, other = problem.tile_cols;
    const std::int64_t strip = std::int64_t{kRows} * kMaxTileColumns;
    qk_strips_ = arena.take<float>(own * problem.D);
    vo_strips_ = arena.take<float>(own * problem.Dv);
    qk_sum_ = arena.take<float>(own * problem.padded_dim());
    if constexpr (kByColumns) vo_sum_ = arena.take<float>(own * problem.padded_dim_v());
    qk_t_panels_ = arena.take<float>(other * problem.D);
    vo_t_panels_ = arena.take<float>(other * problem.Dv);
    qk_panels_ = arena.take<float>(other * round_up(problem.D, kPanelWidth<V>));
    if constexpr (kByColumns) {
      vo_panels_ = arena.take<float>(other * round_up(problem.Dv, kPanelWidth<V>));
    }
    lse_ = arena.take<float>(kByColumns ? other : own);
    delta_ = arena.take<float>(kByColumns ? other : own);
    s_ = arena.take<float>(strip);
    dp_ = arena.take<float>(strip);
    if constexpr (kModified) derivative_ = arena.take<float>(strip);
    if constexpr (kDropout) keep_ = arena.take<float>(strip);
    if constexpr (kModifierGradient) raw_ = arena.take<float>(strip);
  }

  static std::int64_t items(const P& problem) {
    return std::int64_t{problem.args.batch} * own_heads(problem.args) * blocks(problem);
  }

  void operator()(std::int64_t item) {
    const Args& args = problem_.args;
    const int count = blocks(problem_);
    // The blocks that take longest under a causal mask come first.
    const int block =
        kByColumns ? static_cast<int>(item % count) : count - 1 - static_cast<int>(item % count);
    own_head_ = static_cast<int>(item / count % own_heads(args));
    batch_ = static_cast<int>(item / count / own_heads(args));
    const std::int64_t begin = std::int64_t{block} * problem_.tile_rows;
    const Extent extent = problem_.extent(batch_);
    own_ = clip(begin, begin + problem_.tile_rows, kByColumns ? extent.kv_len : extent.q_len);
    if (own_.empty()) return;
    load_own();
    const int heads = kByColumns ? problem_.group : 1;
    for (int i = 0; i < heads; ++i) {
      q_head_ = kByColumns ? own_head_ * problem_.group + i : own_head_;
      visit_head();
    }
    write_own();
  }

 private:
  static constexpr int kRows = kStripRows<V>;
  static constexpr bool kModified = !kIsIdentity<typename P::ScoreModType>;
  static constexpr bool kDropout = P::DropoutType::kEnabled;
  static constexpr bool kModifierGradient = kHasGradient<typename P::ScoreModType> && !kByColumns;

  static int own_heads(const Args& args) { return kByColumns ? args.kv_heads : args.q_heads; }
  static int own_length(const Args& args) { return kByColumns ? args.kv_len : args.q_len; }
  static int blocks(const P& problem) {
    return ceil_div(own_length(problem.args), problem.tile_rows);
  }
  int strips() const { return ceil_div(own_.end - own_.begin, kRows); }
  int kv_head() const { return q_head_ / problem_.group; }
  float* qk_sum(int i) const { return qk_sum_ + std::ptrdiff_t{i} * kRows * problem_.padded_dim(); }
  float* vo_sum(int i) const {
    return vo_sum_ + std::ptrdiff_t{i} * kRows * problem_.padded_dim_v();
  }
  Interval strip_positions(int i) const {
    const int begin = own_.begin + i * kRows;
    return {begin, min(begin + kRows, own_.end)};
  }

  /// Return a tensor from the sequence's first row on, for the side that the block owns or the
  /// other.
  template <class X>
  Tensor<X> own_rows(const Tensor<X>& tensor) const {
    return kByColumns ? problem_.kv_rows(tensor, batch_) : problem_.q_rows(tensor, batch_);
  }
  template <class X>
  Tensor<X> other_rows(const Tensor<X>& tensor) const {
    return kByColumns ? problem_.q_rows(tensor, batch_) : problem_.kv_rows(tensor, batch_);
  }

  void load_own() {
    const Args& args = problem_.args;
    const auto qk = own_rows(kByColumns ? args.k : args.q);
    const auto vo = own_rows(kByColumns ? args.v : args.dout);
    pack_transposed<kRows>(RowBlock<T>(qk, batch_, own_head_, own_), problem_.D, qk_strips_);
    pack_transposed<kRows>(RowBlock<T>(vo, batch_, own_head_, own_), problem_.Dv, vo_strips_);
    const std::ptrdiff_t rows = problem_.tile_rows;
    std::fill_n(qk_sum_, rows * problem_.padded_dim(), 0.0f);
    if constexpr (kByColumns) std::fill_n(vo_sum_, rows * problem_.padded_dim_v(), 0.0f);
  }

  /// Processes the tiles of the other side that one query head's mask lets this block see.
  void visit_head() {
    const Args& args = problem_.args;
    const Extent extent = problem_.extent(batch_);
    const int length = kByColumns ? extent.q_len : extent.kv_len;
    if constexpr (!kByColumns) load_row_terms(own_, problem_.tile_rows);
    if (length == 0) return;
    const Span span = kByColumns ? visible_rows(args.mask, batch_, q_head_, own_, extent)
                                 : visible_columns(args.mask, batch_, q_head_, own_, extent);
    const int Bc = problem_.tile_cols;
    const TileRange tiles = tiles_of(span, Bc);
    for (int j = tiles.first; j < tiles.last; ++j) {
      const bool full = tiles.full_first <= j && j < tiles.full_last;
      const Interval tile = clip(std::int64_t{j} * Bc, std::int64_t{j + 1} * Bc, length);
      load_tile(tile);
      for (int i = 0; i < strips(); ++i) visit_strip(i, tile, full);
    }
  }

  void load_tile(Interval tile) {
    const Args& args = problem_.args;
    const auto qk = other_rows(kByColumns ? args.q : args.k);
    const auto vo = other_rows(kByColumns ? args.dout : args.v);
    const int head = kByColumns ? q_head_ : kv_head();
    const RowBlock<T> qk_block(qk, batch_, head, tile);
    const RowBlock<T> vo_block(vo, batch_, head, tile);
    pack_transposed<kPanelWidth<V>>(qk_block, problem_.D, qk_t_panels_);
    pack_transposed<kPanelWidth<V>>(vo_block, problem_.Dv, vo_t_panels_);
    pack_rows<V>(qk_block, problem_.D, problem_.tile_cols, qk_panels_);
    if constexpr (kByColumns) {
      pack_rows<V>(vo_block, problem_.Dv, problem_.tile_cols, vo_panels_);
      load_row_terms(tile, problem_.tile_cols);
    }
  }

  /// Loads the terms of these query rows, and of rows that do not exist, up to `padded` of them.
  void load_row_terms(Interval rows, int padded) {
    const Args& args = problem_.args;
    const std::int64_t batch_head = std::int64_t{batch_} * args.q_heads + q_head_;
    const std::int64_t at = batch_head * args.q_len + rows.begin;
    const int n = rows.end - rows.begin;
    std::copy_n(problem_.row_terms.lse + at, n, lse_);
    std::copy_n(problem_.row_terms.delta + at, n, delta_);
    std::fill(lse_ + n, lse_ + padded, kInf);
    std::fill(delta_ + n, delta_ + padded, 0.0f);
  }

  void visit_strip(int i, Interval tile, bool full) {
    const Coord<kByColumns> coord{batch_, q_head_, strip_positions(i), tile};
    const Reach reach = full ? whole_tile<V>(tile.end - tile.begin) : reach_of<V>(problem_, coord);
    if (reach.empty()) return;
    if (reach.needs_mask()) {
      step<true>(i, coord, reach);
    } else {
      step<false>(i, coord, reach);
    }
  }

  template <bool kMasked>
  void step(int i, const Coord<kByColumns>& coord, const Reach& reach) {
    const int D = problem_.D, Dv = problem_.Dv, depth = problem_.tile_cols;
    const std::ptrdiff_t first = std::ptrdiff_t{i} * kRows;
    multiply_scores<V>(qk_strips_ + first * D, qk_t_panels_, D, reach.wide, s_);     // S = Q K^T
    multiply_scores<V>(vo_strips_ + first * Dv, vo_t_panels_, Dv, reach.wide, dp_);  // dP = dO V^T
    if constexpr (kModifierGradient) std::copy_n(s_, kRows * kMaxTileColumns, raw_);
    modify_scores<kMasked>(problem_, coord, reach, s_, kModified ? derivative_ : nullptr);
    if constexpr (kDropout) {
      const float scale = problem_.sampler.keep_scale();
      for_each_kept(problem_, coord, reach,
                    [&](int at, bool kept) { keep_[at] = kept ? scale : 0.0f; });
    }
    if constexpr (kModifierGradient) {
      for (int r = 0; r < coord.strip.end - coord.strip.begin; ++r) {
        add_gradient_of_row(r, i * kRows + r, coord, reach.valid);
      }
    }
    for (int r = 0; r < kRows; ++r) differentiate_row(r, i * kRows + r, reach.wide);
    multiply_output<V>(s_, qk_panels_, depth, reach.valid, D, qk_sum(i), problem_.padded_dim());
    if constexpr (kByColumns) {
      multiply_output<V>(dp_, vo_panels_, depth, reach.valid, Dv, vo_sum(i),
                         problem_.padded_dim_v());
    }
  }

  /// Adds what dS' = P * (dropout(dP) - D + dLSE) gives the score modifier's parameters.
  void add_gradient_of_row(int r, int own_row, const Coord<kByColumns>& coord, Interval valid) {
    for (int c = valid.begin; c < valid.end; ++c) {
      const int at = r * kMaxTileColumns + c;
      if (s_[at] == -kInf) continue;
      const float p = std::exp2((s_[at] - lse_[own_row]) * kLog2e);
      float dp = dp_[at];
      if constexpr (kDropout) dp *= keep_[at];
      const float ds = p * (dp - delta_[own_row]);
      if (ds == 0.0f) continue;
      problem_.args.score_mod.add_gradient(problem_.scale * raw_[at], ds, coord.at(r, c),
                                           problem_.extent(batch_), Add{});
    }
  }

  /// Computes P = e^(S' - LSE),  dS = P * (dropout(dP) - D + dLSE) * score_mod'(S): S becomes dS,
  /// and dP becomes dropout(P), which only dV still needs.
  void differentiate_row(int r, int own_row, Interval wide) {
    const V scale(kModified ? 1.0f : problem_.scale);  // modified scores are already scaled
    const int begin = r * kMaxTileColumns;
    for (int c = wide.begin; c < wide.end; c += V::kWidth) {
      const V lse = kByColumns ? V::load(lse_ + c) : V(lse_[own_row]);
      const V delta = kByColumns ? V::load(delta_ + c) : V(delta_[own_row]);
      float* const s = s_ + begin + c;
      float* const dp = dp_ + begin + c;
      // S' - LSE is small where P matters: subtracted first, it loses nothing to log2(e).
      const V p = host::exp2((V::load(s) * scale - lse) * V(kLog2e));
      V dropped = p;
      V gradient = V::load(dp);
      if constexpr (kDropout) {
        const V keep = V::load(keep_ + begin + c);
        dropped = p * keep;
        gradient = gradient * keep;
      }
      V ds = p * (gradient - delta);
      if constexpr (kModified) ds = ds * V::load(derivative_ + begin + c);
      ds.store(s);
      if constexpr (kByColumns) dropped.store(dp);
    }
  }

  /// Writes dQ = scale dS K, or dK = scale dS^T Q and dV.
  void write_own() {
    const Args& args = problem_.args;
    const auto qk = own_rows(kByColumns ? args.dk : args.dq);
    for (int x = own_.begin; x < own_.end; ++x) {
      const std::ptrdiff_t r = x - own_.begin;
      write_row(qk_sum_ + r * problem_.padded_dim(), problem_.scale, problem_.D,
                qk.row(batch_, own_head_, x));
      if constexpr (kByColumns) {
        write_row(vo_sum_ + r * problem_.padded_dim_v(), 1.0f, problem_.Dv,
                  own_rows(args.dv).row(batch_, own_head_, x));
      }
    }
  }

  const P& problem_;
  // The strips: Q or K, and dO or V, packed; and their gradients, (tile_rows, padded dim).
  float* qk_strips_;
  float* vo_strips_;
  float* qk_sum_;
  float* vo_sum_ = nullptr;
  // The tile: K or Q, and V or dO, packed as the columns and as the rows of B.
  float* qk_t_panels_;
  float* vo_t_panels_;
  float* qk_panels_;
  float* vo_panels_ = nullptr;
  // The terms of the query rows, which are the strips' or the tile's.
  float* lse_;
  float* delta_;
  // The scores of one strip and one tile: (kStripRows, kMaxTileColumns) each.
  float* s_;
  float* dp_;
  float* derivative_ = nullptr;
  float* keep_ = nullptr;
  float* raw_ = nullptr;
  int batch_ = 0;
  int own_head_ = 0;
  int q_head_ = 0;
  Interval own_{};
};

/// Computes the gradients of attention on the CPU: dQ, dK, dV, and those of the policies, from and
/// to host pointers.
/// Shapes   any head_dim; the contract is that of the GPU kernels.
/// Scope    uses options.threads threads, scratch memory for each that does not grow with the
///          lengths, and 8 bytes for each of batch * q_heads * q_len rows. The same bits come out
///          whatever the number of threads. Where several scores add to an element of a modifier's
///          gradient, one thread computes dQ and that gradient.
/// Errors   never throws: bad arguments, no memory and no thread are each a Check that says so.
///          Masks, modifiers and dropouts must not throw.
template <BackwardPass Args, class V = NativeFloats>
[[nodiscard]] Check backward(const Args& args, const Options& options = {}) {
  if (const Check check = check_arguments(args, 0, 0); !check) return check;
  if (const Check check = check_options(options); !check) return check;
  const std::int64_t rows = std::int64_t{args.batch} * args.q_heads * args.q_len;
  const Scratch scratch(2 * static_cast<std::size_t>(rows) * sizeof(float));
  if (scratch.data == nullptr) return out_of_memory();
  auto* const lse = reinterpret_cast<float*>(scratch.data);
  using Problem = BackwardProblem<V, Args>;
  const Problem problem(args, options, {lse, lse + rows});
  const auto run = []<class Worker>(Worker*, const Problem& p) {
    return run_items<Worker>(p, Worker::items(p), p.threads);
  };
  if (const Check check = run(static_cast<RowTermsWorker<V, Args>*>(nullptr), problem); !check) {
    return check;
  }
  if constexpr (Args::SinkType::kEnabled) {
    if (args.sink.gradient() != nullptr) {
      const Check check = run(static_cast<SinkWorker<V, Args>*>(nullptr), problem);
      if (!check) return check;
    }
  }
  const ScoreShape shape = score_shape(args);
  clear_gradient(args.score_mod, shape);
  // Sums over scores run in one order, whatever the number of threads and their rows.
  const bool one_thread = !adds_once(args.score_mod, shape);
  const Options in_order{.threads = 1, .tile_cols = options.tile_cols};
  const Problem by_rows(args, one_thread ? in_order : options, problem.row_terms);
  if (const Check check = run(static_cast<BackwardWorker<V, Args, false>*>(nullptr), by_rows);
      !check) {
    return check;
  }
  return run(static_cast<BackwardWorker<V, Args, true>*>(nullptr), problem);
}

}  // namespace attile::host
