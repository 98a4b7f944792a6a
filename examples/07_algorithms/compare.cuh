// SPDX-License-Identifier: MIT
// Runs the contenders of one problem: each once for its errors, then all in turn for their times,
// then each once more for its errors.
#pragma once

#include <cuda_profiler_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "accuracy.h"
#include "contenders.cuh"

namespace algorithms {

/// Two CUDA events around what is timed.
class Timer {
 public:
  Timer() {
    must(cudaEventCreate(&begin_), "cudaEventCreate");
    must(cudaEventCreate(&end_), "cudaEventCreate");
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() {
    static_cast<void>(cudaEventDestroy(begin_));
    static_cast<void>(cudaEventDestroy(end_));
  }

  /// Milliseconds of one call, the mean of `calls` in a row.
  double ms(const Contender& c, int calls) const {
    must(cudaEventRecord(begin_), "cudaEventRecord");
    for (int i = 0; i < calls; ++i) must(c.run(), name(c.result.pass.algorithm));
    must(cudaEventRecord(end_), "cudaEventRecord");
    must(cudaEventSynchronize(end_), name(c.result.pass.algorithm));
    float ms = 0;
    must(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
    return static_cast<double>(ms) / calls;
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

/// Holds the outputs of each pass against fp64 and against FlashAttention-2's.
template <class T>
class Checker {
 public:
  Checker(const Problem& problem, const Tensors<T>& tensors)
      : problem_(problem),
        tensors_(tensors),
        last_head_(tensors.size - std::size_t{1} * problem.len * problem.dim) {}

  /// FlashAttention-2's forward pass comes first: its O and LSE may serve the reference. A pass
  /// that is checked again keeps its larger errors.
  void check(Contender& c) {
    PassResult& result = c.result;
    if (result.pass.direction == Direction::kForward) {
      const std::vector<T> o = tensors_.o.download();
      const std::vector<float> lse = c.lse ? c.lse() : std::vector<float>{};
      if (!reference_) make_reference_of(o, lse);
      std::vector<Error> found = {error("O", o, reference_->o, kBound, flash2_o_)};
      if (c.lse) found.push_back(error("LSE", lse, reference_->lse, kLseBound, flash2_lse_));
      result.add_errors(found);
      return;
    }
    const std::pair<const char*, const DeviceArray<T>*> outputs[] = {
        {"dQ", &tensors_.dq}, {"dK", &tensors_.dk}, {"dV", &tensors_.dv}};
    const Sample* const samples[] = {&reference_->dq, &reference_->dk, &reference_->dv};
    std::vector<Error> found;
    for (int i = 0; i < 3; ++i) {
      found.push_back(error(outputs[i].first, outputs[i].second->download(), *samples[i], kBound,
                            flash2_gradients_[i]));
    }
    result.add_errors(found);
  }

 private:
  // One rounding of the output is 2^-12 of the largest value in fp16; P and dS, which standard
  // attention rounds too, and long sums in fp32 leave room for no less. LSE is fp32 always.
  static constexpr double kBound = sizeof(T) == 2 ? 4e-3 : 1e-4, kLseBound = 1e-4;

  void make_reference_of(const std::vector<T>& o, const std::vector<float>& lse) {
    const Head head(tensors_.host_q.data() + last_head_, tensors_.host_k.data() + last_head_,
                    tensors_.host_v.data() + last_head_, tensors_.host_dout.data() + last_head_,
                    problem_.len, problem_.dim, problem_.causal);
    reference_ = make_reference(head, o.data() + last_head_, lse.data() + lse.size() - head.len());
  }

  /// The first values of a tensor, which are FlashAttention-2's, are kept in `flash2`.
  template <class X>
  Error error(const char* tensor, std::vector<X> values, const Sample& sample, double bound,
              std::vector<X>& flash2) const {
    const std::size_t head = problem_.len * sample.front().size();
    const double fp64 = sample_error(*reference_, sample, values.data() + values.size() - head);
    if (flash2.empty()) flash2 = std::move(values);
    const std::vector<X>& mine = values.empty() ? flash2 : values;
    return {tensor, fp64, tensor_difference(mine, flash2), bound};
  }

  Problem problem_;
  const Tensors<T>& tensors_;
  std::size_t last_head_;
  std::optional<Reference> reference_;
  std::vector<T> flash2_o_, flash2_gradients_[3];
  std::vector<float> flash2_lse_;
};

/// Times all passes of one direction, in turn in each round, another one first each time. They come
/// with the time of their checked call: one that takes seconds is not repeated.
inline void time_rounds(std::vector<Contender*>& contenders, const Timer& timer) {
  constexpr int kRounds = 7;
  constexpr double kRoundMs = 20, kSlowMs = 2000;
  std::erase_if(contenders, [](const Contender* c) { return c->result.ms.front() > kSlowMs; });
  std::vector<int> calls;
  for (Contender* c : contenders) {
    // The checked call loaded the code, so another one says how many calls fill a round.
    const double ms = timer.ms(*c, 1);
    calls.push_back(static_cast<int>(std::clamp(kRoundMs / std::max(ms, 1e-3), 1.0, 1000.0)));
    c->result.ms.clear();
  }
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      const std::size_t at = (i + round) % contenders.size();
      contenders[at]->result.ms.push_back(timer.ms(*contenders[at], calls[at]));
    }
  }
}

/// Ends the program where the pass cannot be run.
inline void must_run(const Contender& c) {
  if (c.run) return;
  std::fprintf(stderr, "%s %s: %s\n", name(c.result.pass.algorithm), name(c.result.pass.direction),
               c.result.why_not.c_str());
  std::exit(1);
}

/// The one pass between the profiler's marks; a backward pass after its forward pass.
inline void run_once(const std::vector<Contender>& contenders, const Pass& pass) {
  for (const Contender& c : contenders) {
    if (c.result.pass.algorithm != pass.algorithm) continue;
    const bool asked = c.result.pass.direction == pass.direction;
    must_run(c);
    if (asked) must(cudaProfilerStart(), "cudaProfilerStart");
    must(c.run(), name(pass.algorithm));
    must(cudaDeviceSynchronize(), name(pass.algorithm));
    if (asked) must(cudaProfilerStop(), "cudaProfilerStop");
    if (asked) return;
  }
}

template <class T, int D, class Mask>
Result compare(const Problem& problem, const Options& options) {
  const Tensors<T> tensors(problem);
  Contenders<T, D, Mask> contenders(problem, tensors);
  Result result{problem, {}};
  std::vector<Contender>& all = contenders.all();
  if (options.once) {
    run_once(all, *options.once);
    std::erase_if(all, [&](const Contender& c) {
      return c.result.pass.algorithm != options.once->algorithm ||
             c.result.pass.direction != options.once->direction;
    });
  } else {
    const Timer timer;
    Checker<T> checker(problem, tensors);
    const auto call_and_check = [&](Contender& c) {
      for (const Memory& output : c.outputs) output.fill_with_nan();
      const double ms = timer.ms(c, 1);
      checker.check(c);
      return ms;
    };
    for (Contender& c : all) {
      // The others are held against FlashAttention-2.
      if (c.result.pass.algorithm == Algorithm::kFlash2) must_run(c);
      if (c.run) c.result.ms = {call_and_check(c)};
    }
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      std::vector<Contender*> timed;
      for (Contender& c : all) {
        if (c.run && c.result.pass.direction == direction) timed.push_back(&c);
      }
      time_rounds(timed, timer);
    }
    // After the rounds again, on scratch memory as they left it.
    for (Contender& c : all) {
      if (c.result.ms.size() > 1) static_cast<void>(call_and_check(c));
    }
  }
  for (Contender& c : all) result.passes.push_back(std::move(c.result));
  std::sort(result.passes.begin(), result.passes.end(), [](const auto& a, const auto& b) {
    return std::pair(a.pass.direction, a.pass.algorithm) <
           std::pair(b.pass.direction, b.pass.algorithm);
  });
  return result;
}

}  // namespace algorithms
