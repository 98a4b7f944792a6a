// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/tile/online_softmax.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "support/cases.h"
#include "support/tensors.h"

namespace attile_test {

/// What a kernel may do wrong.
enum class Defect {
  kNone,
  // Forward.
  kDropsLastKey,
  kDropsLastRow,
  kScaleOnePercentOff,
  kTopLeftAligned,
  kOutputNotRescaled,
  kMaximumStartsAtZero,
  kFiniteNumberForHidden,
  kReadsValuePastEnd,
  kWritesPastEnd,
  kEmptyRowDividesByZero,
  kLseInBase2,
  kKvHeadModulo,
  kOtherBitsEachTime,
  kWritesToInput,
  kWindowOffByOne,
  kKeyStridesForValues,
  kProbabilitiesInBf16,
  kKeepsDropoutUnscaled,
  kBatchAbove65535Lost,
  kZeroOutput,
  kNoSink,
  kSinkOfKvHead,
  kSinkScaled,
  kSinkInEachTile,
  kSinkNotInMaximum,
  kSinkNotInLse,
  kNoEarlierKeys,
  kEarlierKeysOfFirstRow,
  kEarlierValueLeftOut,
  kEarlierValueOfNoKeys,
  // Backward.
  kNoDelta,
  kNoDlse,
  kNoDerivative,
  kLastHeadOfGroupWins,
  kNoDropoutInDp,
  kEmptyRowHasProbability,
  kDeltaWithoutKeys,
  kDkScaledTwice,
  kDoutStridesOfO,
  kGradientsLeftUnwritten,
  kZeroDv,
  kLearnedNotCleared,
  kLearnedWithDerivative,
  kLearnedLastHeadWins,
  kLearnedFromHidden,
  kLearnedBetweenElements,
  kLearnedFromAnotherScore,
  kLearnedWithoutDropout,
  kSinkGradientAdded,
  kSinkGradientWithoutDlse,
  kSinkGradientOfLastSequence,
  kSinkGradientOfKvHead,
  kSinkGradientOnePercentOff,
};
inline constexpr int kDefectCount = static_cast<int>(Defect::kSinkGradientOnePercentOff) + 1;

/// Attention in fp32 for one row after the other, by the online softmax over tiles of 16 keys; and
/// the same with one defect, which shows what the suite is able to see.
class PlainExecutor {
 public:
  static constexpr bool kRepeatsBackward = true;
  static constexpr int kTile = 16;

  explicit PlainExecutor(Defect defect = Defect::kNone) : defect_(defect) {}

  bool takes(const Case&) const { return true; }

  template <class Args, class Regions>
  attile::Check forward(const Args& args, const Regions&) {
    if (const attile::Check check = attile::check_arguments(args, 0, 0); !check) return check;
    const Problem<Args> p(args, defect_);
    ++calls_;
    for (int b = 0; b < args.batch; ++b) {
      if (is(Defect::kBatchAbove65535Lost) && b > 65535) break;
      for (int h = 0; h < args.q_heads; ++h) {
        for (int i = 0; i < args.q_len; ++i) forward_row(p, b, h, i);
      }
    }
    return {};
  }

  template <class Args, class Regions>
  attile::Check backward(const Args& args, const Regions&) {
    if (const attile::Check check = attile::check_arguments(args, 0, 0); !check) return check;
    const Problem<Args> p(args, defect_);
    if (is(Defect::kGradientsLeftUnwritten) && args.q_len == 0) return {};
    if (!is(Defect::kLearnedNotCleared)) clear_learned(args);
    for (int h = 0; args.sink.gradient() != nullptr && h < args.q_heads; ++h) {
      if (!is(Defect::kSinkGradientAdded)) args.sink.gradient()[h] = 0;
    }
    for (int b = 0; b < args.batch; ++b) {
      for (int kv_head = 0; kv_head < args.kv_heads; ++kv_head) backward_group(p, b, kv_head);
    }
    return {};
  }

 private:
  template <class Args>
  struct Problem {
    const Args& args;
    Defect defect;
    int D = attile::head_dims(args, 0, 0).qk;
    int Dv = attile::head_dims(args, 0, 0).v;
    float scale = attile::scale_of(args, D) * (defect == Defect::kScaleOnePercentOff ? 1.01f : 1);
    int group = args.q_heads / args.kv_heads;
    attile::Extent extent{args.q_len, args.kv_len};
    typename Args::DropoutType::Sampler sampler = args.dropout.sampler(args.q_heads);

    Problem(const Args& a, Defect d) : args(a), defect(d) {}

    int kv_head(int h) const {
      return defect == Defect::kKvHeadModulo ? h % args.kv_heads : h / group;
    }

    bool visible(attile::ScoreIndex at) const {
      if constexpr (std::is_same_v<typename Args::MaskType, attile::Causal>) {
        if (defect == Defect::kTopLeftAligned) return at.col <= at.row;
      }
      if constexpr (std::is_same_v<typename Args::MaskType, attile::SlidingWindow>) {
        attile::SlidingWindow window = args.mask;
        if (defect == Defect::kWindowOffByOne && window.left >= 0) ++window.left;
        return window.visible(at, extent);
      }
      return args.mask.visible(at, extent);
    }

    /// scale * (q . k)
    float raw_score(attile::ScoreIndex at) const {
      const auto* q = args.q.row(at.batch, at.head, at.row);
      const auto* k = args.k.row(at.batch, kv_head(at.head), at.col);
      float dot = 0;
      for (int c = 0; c < D; ++c) dot += attile::to_float(q[c]) * attile::to_float(k[c]);
      return scale * dot;
    }

    /// The modified score, -inf where hidden.
    attile::ModifiedScore<float> score(attile::ScoreIndex at) const {
      if (!visible(at)) {
        return {defect == Defect::kFiniteNumberForHidden ? -1e4f : -attile::kInf, 0.0f};
      }
      const auto modified = args.score_mod(raw_score(at), at, extent);
      return {static_cast<float>(modified.value), static_cast<float>(modified.derivative)};
    }

    float keep(attile::ScoreIndex at) const {
      if (!sampler.keep(at)) return 0.0f;
      return defect == Defect::kKeepsDropoutUnscaled ? 1.0f : sampler.keep_scale();
    }

    const auto* value(int b, int h, int j) const {
      auto v = args.v;
      if (defect == Defect::kKeyStridesForValues && args.k.batch_stride == v.batch_stride) {
        v.head_stride = args.k.head_stride;
        v.row_stride = args.k.row_stride;
      }
      return v.row(b, kv_head(h), j);
    }
  };

  struct Scores {
    float s[kTile];
    int count;

    float row_max(int) const { return *std::max_element(s, s + count); }
    float exponentiate(int, float unit, float base) {
      float sum = 0;
      for (int j = 0; j < count; ++j) sum += s[j] = std::exp2(s[j] * unit - base);
      return sum;
    }
  };

  struct Output {
    std::vector<float> o;
    bool rescaled = true;

    void scale_row(int, float factor) {
      if (!rescaled) return;
      for (float& x : o) x *= factor;
    }
    void clear_row(int) { o.assign(o.size(), 0.0f); }
    float sum_lanes(float x) const { return x; }
  };

  template <class P>
  void forward_row(const P& p, int b, int h, int i) {
    const auto& a = p.args;
    using T = typename std::remove_cvref_t<decltype(a)>::ElementType;
    attile::tile::OnlineSoftmax<1> softmax;
    softmax.reset();
    if (is(Defect::kMaximumStartsAtZero)) softmax.m[0] = 0;
    Output output{std::vector<float>(p.Dv, 0.0f), !is(Defect::kOutputNotRescaled)};
    const int kv_len = a.kv_len - (is(Defect::kDropsLastKey) && a.kv_len > 1);
    for (int tile = 0; tile < kv_len; tile += kTile) {
      Scores scores{{}, std::min(kTile, kv_len - tile)};
      for (int j = 0; j < scores.count; ++j) scores.s[j] = p.score({b, h, i, tile + j}).value;
      softmax.step(scores, output, attile::kLog2e);
      for (int j = 0; j < scores.count; ++j) {
        if (!p.visible({b, h, i, tile + j}) && !is(Defect::kFiniteNumberForHidden)) continue;
        const auto* v = p.value(b, h, tile + j);
        float weight = scores.s[j] * p.keep({b, h, i, tile + j});
        if (is(Defect::kProbabilitiesInBf16)) weight = __bfloat162float(__float2bfloat16(weight));
        for (int c = 0; c < p.Dv; ++c) output.o[c] += weight * attile::to_float(v[c]);
      }
    }
    if (is(Defect::kReadsValuePastEnd) && a.v.head_stride > a.kv_len * a.v.row_stride) {
      const auto* v = a.v.row(b, p.kv_head(h), a.kv_len);
      for (int c = 0; c < p.Dv; ++c) output.o[c] += 0.0f * attile::to_float(v[c]);
    }
    output.rescaled = true;
    const float lse_of_keys = softmax.lse(0, attile::kLog2e);
    using SinkType = typename std::remove_cvref_t<decltype(a)>::SinkType;
    if constexpr (attile::kIsEarlierKeys<SinkType>) {
      add_earlier_keys(p, b, h, is(Defect::kEarlierKeysOfFirstRow) ? 0 : i, softmax, output);
    } else if constexpr (SinkType::kEnabled) {
      add_sink(p, h, softmax, output);
    }
    if (is(Defect::kEmptyRowDividesByZero)) {
      output.scale_row(0, 1 / softmax.l[0]);
    } else {
      softmax.finish(output);
    }
    if (is(Defect::kOtherBitsEachTime) && calls_ % 2 == 0) output.o[0] *= 1 + 1e-2f;
    if (is(Defect::kZeroOutput)) output.clear_row(0);
    using TO = typename std::remove_cvref_t<decltype(a)>::Elements::O;
    TO* o = a.o.row(b, h, i);
    const bool write = !(is(Defect::kDropsLastRow) && i == a.q_len - 1);
    for (int c = 0; c < p.Dv && write; ++c) o[c] = attile::from_float<TO>(output.o[c]);
    if (is(Defect::kWritesPastEnd) && i == a.q_len - 1) o[p.Dv] = attile::from_float<TO>(0.0f);
    if (is(Defect::kWritesToInput)) const_cast<T*>(a.q.data)[0] = attile::from_float<T>(0.0f);
    if (a.lse != nullptr) {
      const float lse = is(Defect::kSinkNotInLse) ? lse_of_keys : softmax.lse(0, attile::kLog2e);
      a.lse[(std::int64_t{b} * a.q_heads + h) * a.q_len + i] =
          is(Defect::kLseInBase2) ? lse * attile::kLog2e : lse;
    }
  }

  /// Makes the sink one more key, whose value is 0.
  template <class P>
  void add_sink(const P& p, int h, attile::tile::OnlineSoftmax<1>& softmax, Output& output) const {
    if (is(Defect::kNoSink)) return;
    float sink = p.args.sink.logit(is(Defect::kSinkOfKvHead) ? h / p.group : h);
    if (is(Defect::kSinkScaled)) sink *= p.scale;
    if (sink == -attile::kInf) return;
    const int times = is(Defect::kSinkInEachTile) ? (p.args.kv_len + kTile - 1) / kTile : 1;
    const float m = is(Defect::kSinkNotInMaximum) ? softmax.m[0] : std::max(softmax.m[0], sink);
    const float factor = std::exp(softmax.m[0] - m);
    output.scale_row(0, factor);
    softmax.l[0] = softmax.l[0] * factor + static_cast<float>(times) * std::exp(sink - m);
    softmax.m[0] = m;
  }

  /// Makes earlier keys one more key, whose score is their LSE and whose value is their O.
  template <class P>
  void add_earlier_keys(const P& p, int b, int h, int i, attile::tile::OnlineSoftmax<1>& softmax,
                        Output& output) const {
    const float score = *p.args.sink.lse.row(b, h, i);
    const bool is_empty = score == -attile::kInf;
    if (is(Defect::kNoEarlierKeys) || (is_empty && !is(Defect::kEarlierValueOfNoKeys))) return;
    const float m = std::max(softmax.m[0], score);
    const float factor = std::exp(softmax.m[0] - m);
    const float weight = is_empty ? 0.0f : std::exp(score - m);
    output.scale_row(0, factor);
    softmax.l[0] = softmax.l[0] * factor + weight;
    softmax.m[0] = m;
    if (is(Defect::kEarlierValueLeftOut)) return;
    const auto* const value = p.args.sink.o.row(b, h, i);
    for (int c = 0; c < p.Dv; ++c) output.o[c] += weight * attile::to_float(value[c]);
  }

  /// Adds what one row adds to the gradient of its head's sink.
  template <class P>
  void sink_gradient(const P& p, int b, int h, float lse, float delta, float dlse) const {
    float* const dsinks = p.args.sink.gradient();
    if (dsinks == nullptr || lse == -attile::kInf) return;
    if (is(Defect::kSinkGradientOfLastSequence) && b < p.args.batch - 1) return;
    if (is(Defect::kSinkGradientWithoutDlse)) delta += dlse;
    if (is(Defect::kSinkGradientOnePercentOff)) delta *= 1.01f;
    const int of = is(Defect::kSinkGradientOfKvHead) ? h / p.group : h;
    dsinks[of] -= std::exp(p.args.sink.logit(h) - lse) * delta;
  }

  template <class Args>
  void clear_learned(const Args& a) const {
    if constexpr (attile::kHasGradient<typename Args::ScoreModType>) {
      const attile::ScoreShape shape = attile::score_shape(a);
      const int between = is(Defect::kLearnedBetweenElements) ? 1 : 0;
      for (std::int64_t n = 0; n < a.score_mod.gradient_lines(shape); ++n) {
        const attile::GradientLine line = a.score_mod.gradient_line(n, shape);
        for (int i = 0; i < line.count; ++i) line.first[i * line.stride] = 0;
        if (line.count > 0) line.first[(line.count - 1) * line.stride + between] = 0;
      }
    }
  }

  /// ds: dS', the gradient of the modified score.
  template <class P>
  void learn(const P& p, attile::ScoreIndex at, float ds, float derivative) const {
    using S = typename std::remove_cvref_t<decltype(p.args)>::ScoreModType;
    if constexpr (attile::kHasGradient<S>) {
      if (is(Defect::kLearnedWithDerivative)) ds *= derivative;
      if (is(Defect::kLearnedLastHeadWins) && at.head < p.args.q_heads - 1) return;
      const struct {
        ATTILE_HOST_DEVICE void operator()(float* where, float x) const { *where += x; }
      } add;
      attile::ScoreIndex of = at;
      if (is(Defect::kLearnedFromAnotherScore) && of.col > 0) --of.col;
      p.args.score_mod.add_gradient(p.raw_score(of), ds, at, p.extent, add);
    }
  }

  template <class P>
  void backward_group(const P& p, int b, int kv_head) {
    const auto& a = p.args;
    using T = typename std::remove_cvref_t<decltype(a)>::ElementType;
    std::vector<float> dk(static_cast<std::size_t>(a.kv_len) * p.D);
    std::vector<float> dv(static_cast<std::size_t>(a.kv_len) * p.Dv);
    for (int h = kv_head * p.group; h < (kv_head + 1) * p.group; ++h) {
      if (is(Defect::kLastHeadOfGroupWins)) {
        dk.assign(dk.size(), 0.0f);
        dv.assign(dv.size(), 0.0f);
      }
      for (int i = 0; i < a.q_len; ++i) backward_row(p, b, h, i, dk, dv);
    }
    if (is(Defect::kZeroDv)) dv.assign(dv.size(), 0.0f);
    for (int j = 0; j < a.kv_len; ++j) {
      const std::size_t k_at = static_cast<std::size_t>(j) * p.D;
      const std::size_t v_at = static_cast<std::size_t>(j) * p.Dv;
      const float scale = is(Defect::kDkScaledTwice) ? p.scale : 1.0f;
      for (int c = 0; c < p.D; ++c) {
        a.dk.row(b, kv_head, j)[c] = attile::from_float<T>(scale * dk[k_at + c]);
      }
      for (int c = 0; c < p.Dv; ++c) {
        a.dv.row(b, kv_head, j)[c] = attile::from_float<T>(dv[v_at + c]);
      }
    }
  }

  template <class P>
  void backward_row(const P& p, int b, int h, int i, std::vector<float>& dk,
                    std::vector<float>& dv) {
    const auto& a = p.args;
    using T = typename std::remove_cvref_t<decltype(a)>::ElementType;
    auto dout = a.dout;
    if (is(Defect::kDoutStridesOfO) && dout.batch_stride == a.o.batch_stride) {
      dout.head_stride = a.o.head_stride;
      dout.row_stride = a.o.row_stride;
    }
    const T* do_i = dout.row(b, h, i);
    const T* o_i = a.o.row(b, h, i);
    const T* q_i = a.q.row(b, h, i);
    const std::int64_t at_row = (std::int64_t{b} * a.q_heads + h) * a.q_len + i;
    const float lse = a.lse[at_row];
    const bool empty = lse == -attile::kInf && !is(Defect::kEmptyRowHasProbability);
    float delta = 0;
    for (int c = 0; c < p.Dv; ++c) delta += attile::to_float(do_i[c]) * attile::to_float(o_i[c]);
    if (is(Defect::kNoDelta) || (a.kv_len == 0 && !is(Defect::kDeltaWithoutKeys))) delta = 0;
    if (a.dlse != nullptr && !is(Defect::kNoDlse)) delta -= a.dlse[at_row];
    sink_gradient(p, b, h, lse, delta, a.dlse != nullptr ? a.dlse[at_row] : 0.0f);
    std::vector<float> dq(p.D, 0.0f);
    for (int j = 0; j < a.kv_len && !empty; ++j) {
      const attile::ScoreIndex at{b, h, i, j};
      const auto s = p.score(at);
      const float probability = std::exp2((s.value - lse) * attile::kLog2e);
      const T* v = p.value(b, h, j);
      float dp = 0;
      for (int c = 0; c < p.Dv; ++c) {
        dp += attile::to_float(do_i[c]) * attile::to_float(v[c]);
        dv[static_cast<std::size_t>(j) * p.Dv + c] +=
            probability * p.keep(at) * attile::to_float(do_i[c]);
      }
      const float kept = is(Defect::kNoDropoutInDp) ? dp : dp * p.keep(at);
      if (!is(Defect::kLearnedWithoutDropout)) dp = kept;
      const bool hidden = s.value == -attile::kInf;
      if (!hidden) learn(p, at, probability * (dp - delta), s.derivative);
      dp = kept;
      if (hidden && is(Defect::kLearnedFromHidden)) learn(p, at, 1e-20f, 1.0f);
      float ds = probability * (dp - delta) * p.scale;
      if (!is(Defect::kNoDerivative)) ds *= s.derivative;
      const T* k = a.k.row(b, p.kv_head(h), j);
      for (int c = 0; c < p.D; ++c) {
        dq[c] += ds * attile::to_float(k[c]);
        dk[static_cast<std::size_t>(j) * p.D + c] += ds * attile::to_float(q_i[c]);
      }
    }
    for (int c = 0; c < p.D; ++c) a.dq.row(b, h, i)[c] = attile::from_float<T>(dq[c]);
  }

  bool is(Defect defect) const { return defect_ == defect; }

  Defect defect_;
  int calls_ = 0;
};

}  // namespace attile_test
