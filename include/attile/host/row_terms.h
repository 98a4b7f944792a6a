// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/host/panels.h>
#include <attile/host/parallel.h>
#include <attile/host/problem.h>
#include <attile/tile/sink_gradient.h>

#include <cstdint>

// What the backward pass computes of every query row before anything else, and the gradient of the
// sinks, which follows from that alone.

namespace attile::host {

/// Holds what backward needs of every query row, (batch, q_heads, q_len). An empty row, with LSE =
/// -inf, has lse = +inf here, so that its P = e^(-inf) = 0 without a test.
struct RowTerms {
  float* lse;    ///< LSE
  float* delta;  ///< D - dLSE, with D = rowsum(dO * O)
};

/// Holds a backward pass and where the terms of its rows are.
template <class V, class Args>
struct BackwardProblem : Problem<V, Args> {
  RowTerms row_terms;

  BackwardProblem(const Args& problem_args, const Options& options, RowTerms terms)
      : Problem<V, Args>(problem_args, options), row_terms(terms) {}
};

/// Computes D - dLSE and LSE of the rows of one query head. [Alg. 2, line 4]
template <class V, class Args>
class RowTermsWorker {
 public:
  using P = BackwardProblem<V, Args>;

  RowTermsWorker(const P& problem, Arena&) : problem_(problem) {}

  static std::int64_t items(const P& problem) {
    return problem.args.q_len == 0 ? 0 : std::int64_t{problem.args.batch} * problem.args.q_heads;
  }

  void operator()(std::int64_t batch_head) {
    const Args& args = problem_.args;
    const int batch = static_cast<int>(batch_head / args.q_heads);
    const int head = static_cast<int>(batch_head % args.q_heads);
    const auto o_rows = problem_.q_rows(args.o, batch);
    const auto dout_rows = problem_.q_rows(args.dout, batch);
    const auto lse_rows = problem_.q_rows(per_row(args, args.lse), batch);
    const auto dlse_rows = problem_.q_rows(per_row(args, args.dlse), batch);
    for (int i = 0; i < problem_.extent(batch).q_len; ++i) {
      const std::int64_t at = batch_head * args.q_len + i;
      const float lse = *lse_rows.row(batch, head, i);
      const bool empty = lse == -kInf;
      problem_.row_terms.lse[at] = empty ? kInf : lse;
      const auto* const dout = dout_rows.row(batch, head, i);
      const auto* const o = o_rows.row(batch, head, i);
      float delta = dot(dout, o, problem_.Dv);
      if constexpr (Args::SinkType::kEnabled) {
        delta = tile::delta_beside_sink(delta, lse, args.sink.logit(head));
      }
      if (args.dlse != nullptr) delta -= *dlse_rows.row(batch, head, i);
      problem_.row_terms.delta[at] = empty ? 0.0f : delta;
    }
  }

 private:
  const P& problem_;
};

/// Computes the gradient of one query head's sink, from the terms of all its rows:
///   dsink = -sum of exp(sink - LSE) (D - dLSE)
template <class V, class Args>
class SinkWorker {
 public:
  using P = BackwardProblem<V, Args>;

  SinkWorker(const P& problem, Arena&) : problem_(problem) {}

  static std::int64_t items(const P& problem) { return problem.args.q_heads; }

  void operator()(std::int64_t head) {
    const Args& args = problem_.args;
    double sum = 0.0;
    for (int batch = 0; batch < args.batch; ++batch) {
      const std::int64_t first = (std::int64_t{batch} * args.q_heads + head) * args.q_len;
      for (int i = 0; i < problem_.extent(batch).q_len; ++i) {
        const float sink = args.sink.logit(static_cast<int>(head));
        const RowTerms& terms = problem_.row_terms;
        sum +=
            tile::sink_gradient_of_row<double>(sink, terms.lse[first + i], terms.delta[first + i]);
      }
    }
    args.sink.gradient()[head] = static_cast<float>(sum);
  }

 private:
  const P& problem_;
};

}  // namespace attile::host
