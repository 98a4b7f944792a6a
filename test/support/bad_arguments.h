// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>

#include "support/learned_factor.h"
#include "support/shifted.h"

// Arguments that have to be refused, each with its sentence. Every visitor is called as
// visit(name, sentence, args); the types of args differ by pass and policy.
namespace attile_test {

/// A small right problem and its memory.
struct SmallProblem {
  static constexpr int kBatch = 2, kQHeads = 4, kKvHeads = 2, kQLen = 3, kKvLen = 5, kDim = 8;
  static constexpr int kQElements = kBatch * kQHeads * kQLen * kDim;
  static constexpr int kKvElements = kBatch * kKvHeads * kKvLen * kDim;
  static constexpr int kRows = kBatch * kQHeads * kQLen;

  float q[kQElements] = {}, k[kKvElements] = {}, v[kKvElements] = {};
  float o[kQElements] = {}, dout[kQElements] = {}, lse[kRows] = {}, dlse[kRows] = {};
  float dq[kQElements] = {}, dk[kKvElements] = {}, dv[kKvElements] = {};
  int ids[kBatch * kKvLen] = {};
  float slopes[kQHeads] = {};
  float bias[kKvLen] = {}, bias_gradient[kKvLen] = {};  // one for each column

  template <class Args>
  void describe(Args& a) {
    a.q = attile::bshd<const float>(q, {.rows = kQLen, .heads = kQHeads, .dim = kDim});
    a.k = attile::bhsd<const float>(k, {.rows = kKvLen, .heads = kKvHeads, .dim = kDim});
    a.v = attile::bshd<const float>(v, {.rows = kKvLen, .heads = kKvHeads, .dim = kDim});
    a.lse = lse;
    a.batch = kBatch;
    a.q_heads = kQHeads;
    a.kv_heads = kKvHeads;
    a.q_len = kQLen;
    a.kv_len = kKvLen;
    a.head_dim = kDim;
    a.head_dim_v = kDim;
  }

  template <class M = attile::NoMask, class S = attile::NoScoreMod, class P = attile::NoDropout>
  attile::ForwardArgs<float, M, S, P> forward() {
    attile::ForwardArgs<float, M, S, P> a{};
    describe(a);
    a.o = attile::bshd(o, {.rows = kQLen, .heads = kQHeads, .dim = kDim});
    return a;
  }

  template <class M = attile::NoMask, class S = attile::NoScoreMod, class P = attile::NoDropout>
  attile::BackwardArgs<float, M, S, P> backward() {
    attile::BackwardArgs<float, M, S, P> a{};
    describe(a);
    a.o = attile::bshd<const float>(o, {.rows = kQLen, .heads = kQHeads, .dim = kDim});
    a.dout = attile::bhsd<const float>(dout, {.rows = kQLen, .heads = kQHeads, .dim = kDim});
    a.dlse = dlse;
    a.dq = attile::bshd(dq, {.rows = kQLen, .heads = kQHeads, .dim = kDim});
    a.dk = attile::bhsd(dk, {.rows = kKvLen, .heads = kKvHeads, .dim = kDim});
    a.dv = attile::bshd(dv, {.rows = kKvLen, .heads = kKvHeads, .dim = kDim});
    return a;
  }
};

namespace detail {

inline constexpr int kLow = std::numeric_limits<int>::min();
inline constexpr int kHigh = std::numeric_limits<int>::max();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// What both passes refuse.
template <class Bad>
void bad_sizes(const Bad& bad) {
  bad("batch forgotten", "batch is not given", [](auto& a) { a.batch = attile::kUnset; });
  bad("q_heads forgotten", "q_heads is not given", [](auto& a) { a.q_heads = attile::kUnset; });
  bad("kv_heads forgotten", "kv_heads is not given", [](auto& a) { a.kv_heads = attile::kUnset; });
  bad("q_len forgotten", "q_len is not given", [](auto& a) { a.q_len = attile::kUnset; });
  bad("kv_len forgotten", "kv_len is not given", [](auto& a) { a.kv_len = attile::kUnset; });
  bad("batch -1", "batch is negative", [](auto& a) { a.batch = -1; });
  bad("batch lowest", "batch is negative", [](auto& a) { a.batch = kLow + 1; });
  bad("q_len -1", "q_len is negative", [](auto& a) { a.q_len = -1; });
  bad("q_len lowest", "q_len is negative", [](auto& a) { a.q_len = kLow + 1; });
  bad("kv_len -1", "kv_len is negative", [](auto& a) { a.kv_len = -1; });
  bad("kv_len lowest", "kv_len is negative", [](auto& a) { a.kv_len = kLow + 1; });
  bad("q_heads 0", "q_heads must be at least 1", [](auto& a) { a.q_heads = 0; });
  bad("q_heads -4", "q_heads must be at least 1", [](auto& a) { a.q_heads = -4; });
  bad("kv_heads 0", "kv_heads must be at least 1", [](auto& a) { a.kv_heads = 0; });
  bad("kv_heads -2", "kv_heads must be at least 1", [](auto& a) { a.kv_heads = -2; });
  bad("both heads 0", "q_heads must be at least 1", [](auto& a) { a.q_heads = a.kv_heads = 0; });
  const char* multiple = "q_heads must be a multiple of kv_heads";
  bad("heads 3 of 2", multiple, [](auto& a) { a.q_heads = 3; });
  bad("heads 4 of 3", multiple, [](auto& a) { a.kv_heads = 3; });
  bad("heads 4 of 8", multiple, [](auto& a) { a.kv_heads = 8; });
  const char* long_q = "q_len must be at most 2^30";
  bad("q_len 2^30 + 1", long_q, [](auto& a) { a.q_len = (1 << 30) + 1; });
  bad("q_len highest", long_q, [](auto& a) { a.q_len = kHigh; });
  const char* long_kv = "kv_len must be at most 2^30";
  bad("kv_len 2^30 + 1", long_kv, [](auto& a) { a.kv_len = (1 << 30) + 1; });
  bad("kv_len highest", long_kv, [](auto& a) { a.kv_len = kHigh; });
  const char* batch_heads = "batch * q_heads must be below 2^31";
  bad("65536 batches of 65536 heads", batch_heads, [](auto& a) { a.batch = a.q_heads = 65536; });
  bad("2^30 batches of 2 heads", batch_heads, [](auto& a) {
    a.batch = 1 << 30;
    a.q_heads = 2;
  });
  bad("batch highest", batch_heads, [](auto& a) { a.batch = kHigh; });
  bad("head_dim -1", "head_dim is negative", [](auto& a) { a.head_dim = -1; });
  bad("head_dim lowest", "head_dim is negative", [](auto& a) { a.head_dim = kLow; });
  bad("head_dim_v -1", "head_dim_v is negative", [](auto& a) { a.head_dim_v = -1; });
  bad("head_dim_v lowest", "head_dim_v is negative", [](auto& a) { a.head_dim_v = kLow; });
  const char* scale = "scale must be 2^-100 to 2^100";
  bad("scale 0", scale, [](auto& a) { a.scale = 0.0f; });
  bad("scale -0", scale, [](auto& a) { a.scale = -0.0f; });
  bad("scale -1", scale, [](auto& a) { a.scale = -1.0f; });
  bad("scale nan", scale, [](auto& a) { a.scale = kNan; });
  bad("scale inf", scale, [](auto& a) { a.scale = attile::kInf; });
  bad("scale -inf", scale, [](auto& a) { a.scale = -attile::kInf; });
  bad("scale too small", scale, [](auto& a) { a.scale = 0x0.ffffffp-100f; });
  bad("scale too large", scale, [](auto& a) { a.scale = 0x1.000002p100f; });
  bad("batch -1 and null q", "batch is negative", [](auto& a) {
    a.batch = -1;
    a.q.data = nullptr;
  });
}

template <class Bad>
void bad_inputs(const Bad& bad) {
  bad("q null", "q is null", [](auto& a) { a.q.data = nullptr; });
  bad("k null", "k is null", [](auto& a) { a.k.data = nullptr; });
  bad("v null", "v is null", [](auto& a) { a.v.data = nullptr; });
  bad("o null", "o is null", [](auto& a) { a.o.data = nullptr; });
  const auto misaligned = [&](const char* name, const char* why, auto member) {
    for (const int bytes : {1, 2, 3}) {
      bad(name, why, [=](auto& a) { member(a) = shifted(member(a), bytes); });
    }
  };
  misaligned(
      "q misaligned", "q is not aligned to its element type",
      [](auto& a) -> auto& { return a.q.data; });
  misaligned(
      "k misaligned", "k is not aligned to its element type",
      [](auto& a) -> auto& { return a.k.data; });
  misaligned(
      "v misaligned", "v is not aligned to its element type",
      [](auto& a) -> auto& { return a.v.data; });
  misaligned(
      "o misaligned", "o is not aligned to its element type",
      [](auto& a) -> auto& { return a.o.data; });
  misaligned(
      "lse misaligned", "lse is not aligned to 4 bytes", [](auto& a) -> auto& { return a.lse; });
}

/// Strides by which a tensor to write overlaps itself; member(args) is the tensor.
template <class Bad, class Member>
void bad_strides(const Bad& bad, const char* why, const Member& member) {
  bad("row stride 0", why, [=](auto& a) { member(a).row_stride = 0; });
  bad("row stride 7", why, [=](auto& a) { member(a).row_stride = SmallProblem::kDim - 1; });
  bad("row stride -7", why, [=](auto& a) { member(a).row_stride = 1 - SmallProblem::kDim; });
  bad("head stride 0", why, [=](auto& a) { member(a).head_stride = 0; });
  bad("head stride 1", why, [=](auto& a) { member(a).head_stride = 1; });
  bad("batch stride 0", why, [=](auto& a) { member(a).batch_stride = 0; });
  bad("batch stride of a row", why,
      [=](auto& a) { member(a).batch_stride = member(a).row_stride; });
}

template <class Bad>
void bad_policies(const Bad& bad) {
  using attile::Alibi;
  using attile::And;
  using attile::Causal;
  using attile::Document;
  using attile::kInf;
  using attile::NoMask;
  using attile::Prefix;
  using attile::Softcap;
  using attile::Then;
  bad.template with<Prefix>("prefix -1", "Prefix: length must not be negative",
                            [](auto& a) { a.mask.length = -1; });
  const char* document = "Document: q_ids and kv_ids must not be null";
  bad.template with<Document>("document without q_ids", document,
                              [&](auto& a) { a.mask.kv_ids = bad.problem.ids; });
  bad.template with<Document>("document without kv_ids", document,
                              [&](auto& a) { a.mask.q_ids = bad.problem.ids; });
  bad.template with<Document>("document without ids", document, [](auto&) {});
  bad.template with<And<Causal, Document>>("causal and document", document, [](auto&) {});
  bad.template with<attile::KeyPadding>("key padding", "KeyPadding: lengths must not be null",
                                        [](auto&) {});
  bad.template with<And<Causal, attile::SortedDocument>>(
      "causal and sorted document", "SortedDocument: table must not be null", [](auto&) {});
  bad.template with<attile::RowIntervals>("row intervals", "RowIntervals: table must not be null",
                                          [](auto&) {});
  bad.template with<And<Prefix, Causal>>("prefix -5 and causal",
                                         "Prefix: length must not be negative",
                                         [](auto& a) { a.mask.first.length = -5; });
  const char* slopes = "Alibi: slopes must not be null";
  bad.template with<NoMask, Alibi>("alibi", slopes, [](auto&) {});
  bad.template with<NoMask, Then<Softcap, Alibi>>("softcap then alibi", slopes, [](auto&) {});
  const char* cap = "Softcap: cap must be finite and > 0";
  for (const float value : {0.0f, -0.0f, -1.0f, kNan, kInf, -kInf}) {
    bad.template with<NoMask, Softcap>("softcap", cap, [=](auto& a) { a.score_mod.cap = value; });
  }
  bad.template with<NoMask, Then<Softcap, Alibi>>("softcap 0 then alibi", cap, [&](auto& a) {
    a.score_mod.first.cap = 0;
    a.score_mod.second.slopes = bad.problem.slopes;
  });
  bad.template with<NoMask, attile::AdditiveBias<float>>(
      "bias", "AdditiveBias: bias must not be null", [](auto&) {});
  bad.template with<NoMask, attile::LearnedBias<float>>(
      "learned bias", "AdditiveBias: bias must not be null",
      [&](auto& a) { a.score_mod.gradient.data = bad.problem.bias_gradient; });
  bad.template with<NoMask, attile::AdditiveBias<float>>(
      "bias misaligned", "AdditiveBias: bias is not aligned to its element type",
      [&](auto& a) { a.score_mod.bias = shifted(bad.problem.slopes, 2); });
  bad.template with<NoMask, Alibi>(
      "slopes misaligned", "Alibi: slopes is not aligned to 4 bytes",
      [&](auto& a) { a.score_mod.slopes = shifted(bad.problem.slopes, 2); });
  bad.template with<attile::KeyPadding>(
      "key padding misaligned", "KeyPadding: lengths is not aligned to 4 bytes",
      [&](auto& a) { a.mask.lengths = shifted(bad.problem.ids, 1); });
  bad.template with<Prefix>("prefix misaligned", "Prefix: lengths is not aligned to 4 bytes",
                            [&](auto& a) { a.mask.lengths = shifted(bad.problem.ids, 1); });
  bad.template with<Document>("document misaligned",
                              "Document: q_ids or kv_ids is not aligned to 4 bytes", [&](auto& a) {
                                a.mask.q_ids = bad.problem.ids;
                                a.mask.kv_ids = shifted(bad.problem.ids, 1);
                              });
  const char* sinks = "Sink: sinks must not be null";
  bad.template with<attile::Sink<>>("sink", sinks, [](auto&) {});
  bad.template with<attile::Sink<>>("sink, no keys", sinks, [](auto& a) { a.kv_len = 0; });
  bad.template with<Causal, attile::Sink<>>(
      "sink misaligned", "Sink: sinks is not aligned to its element type",
      [&](auto& a) { a.sink.sinks = shifted(bad.problem.slopes, 2); });
  const char* probability = "PhiloxDropout: probability must be >= 0 and < 1 - 2^-17";
  for (const float value : {-0.1f, -kInf, 1.0f, 1.5f, kInf, kNan, 1.0f - 0x1p-17f, 0.9999999f}) {
    bad.template with<NoMask, attile::NoScoreMod, attile::PhiloxDropout>(
        "dropout", probability, [=](auto& a) { a.dropout.probability = value; });
  }
  for (const int first : {8, -16, kHigh, kLow}) {
    bad.template with<NoMask, attile::NoScoreMod, attile::PartDropout>(
        "dropout", "PartDropout: first_col must be a multiple of 16, and not negative",
        [=](auto& a) { a.dropout.first_col = first; });
  }
}

template <class Bad>
void bad_learned_gradients(const Bad& bad) {
  using attile::NoMask;
  using Learned = attile::LearnedBias<float>;
  SmallProblem& p = bad.problem;
  const auto with = [&](const char* name, const char* why, float* gradient) {
    bad.template with<NoMask, Learned>(name, why, [&](auto& a) {
      a.score_mod = {{p.bias}, {gradient}};
    });
  };
  const char* null = "LearnedBias: gradient must not be null";
  with("learned gradient null", null, nullptr);
  bad.template with<NoMask, attile::Then<attile::Softcap, Learned>>(
      "softcap and learned gradient null", null,
      [&](auto& a) { a.score_mod.second.bias = {p.bias}; });
  bad.template with<NoMask, Learned>("no rows, learned gradient null", null,
                                     [](auto& a) { a.q_len = 0; });
  with("learned gradient misaligned", "LearnedBias: gradient is not aligned to 4 bytes",
       shifted(p.bias_gradient, 2));
  with("learned gradient is bias", "LearnedBias: gradient is the memory of the bias", p.bias);
  bad.template with<NoMask, Learned>(
      "learned gradient strides",
      "LearnedBias: elements of gradient share memory (see its strides; 0 sums)", [&](auto& a) {
        a.score_mod = {{p.bias}, {p.bias_gradient, 0, 4, 0, 1}};
      });
  with("learned gradient in q", "a gradient is the memory of an input", p.q);
  with("learned gradient in dv", "two gradients share their memory", p.dv);
  using Two = attile::Then<Learned, attile::Then<attile::Softcap, LearnedFactor<true>>>;
  const auto with_two = [&](const char* name, const char* why, float* gradient) {
    bad.template with<NoMask, Two>(name, why, [&](auto& a) {
      a.score_mod.first = {{p.bias}, {p.bias_gradient}};
      a.score_mod.second.second = {p.slopes, {gradient}};
    });
  };
  with_two("second learned gradient in k", "a gradient is the memory of an input", p.k);
  with_two("second learned gradient in dq", "two gradients share their memory", p.dq);
  with_two("both learned gradients the same", "two gradients share their memory", p.bias_gradient);
  const char* users_null = "the gradient of score_mod is null";
  bad.template with<NoMask, LearnedFactor<true>>("user's gradient null", users_null, [](auto&) {});
  bad.template with<NoMask, attile::Then<Learned, LearnedFactor<true>>>(
      "learned bias, user's gradient null", users_null, [&](auto& a) {
        a.score_mod.first = {{p.bias}, {p.bias_gradient}};
      });
  bad.template with<NoMask, LearnedFactor<true>>(
      "user's gradient misaligned", "the gradient of score_mod is not aligned to 4 bytes",
      [&](auto& a) { a.score_mod.gradient.data = shifted(p.bias_gradient, 1); });
}

template <class Bad>
void bad_sink_gradients(const Bad& bad) {
  SmallProblem& p = bad.problem;
  const auto with = [&](const char* name, const char* why, float* dsinks) {
    bad.template with<attile::Sink<>>(name, why, [&](auto& a) { a.sink = {p.slopes, dsinks}; });
  };
  with("dsinks misaligned", "Sink: dsinks is not aligned to 4 bytes", shifted(p.bias_gradient, 2));
  with("dsinks is sinks", "Sink: dsinks is the memory of sinks", p.slopes);
  with("dsinks in k", "a gradient is the memory of an input", p.k);
  with("dsinks in dlse", "a gradient is the memory of an input", p.dlse);
  with("dsinks in dv", "two gradients share their memory", p.dv);
  bad.template with<attile::LearnedBias<>, attile::Sink<>>(
      "dsinks in a modifier's gradient", "two gradients share their memory", [&](auto& a) {
        a.score_mod = {{p.bias}, {p.bias_gradient}};
        a.sink = {p.slopes, p.bias_gradient};
      });
}

template <class Bad>
void bad_earlier_keys(const Bad& bad) {
  SmallProblem& p = bad.problem;
  constexpr int kQLen = SmallProblem::kQLen, kQHeads = SmallProblem::kQHeads;
  const auto with = [&]<class T>(const char* name, const char* why, T* o, const float* lse,
                                 const auto& spoil) {
    bad.template with<attile::EarlierKeys<std::remove_const_t<T>>>(name, why, [&](auto& a) {
      a.sink.o =
          attile::bshd<const T>(o, {.rows = kQLen, .heads = kQHeads, .dim = SmallProblem::kDim});
      a.sink.lse = attile::bhs(lse, {.rows = kQLen, .heads = kQHeads});
      spoil(a);
    });
  };
  const auto nothing = [](auto&) {};
  float* const null = nullptr;
  with("earlier o null", "EarlierKeys: o is null", null, p.dlse, nothing);
  with("earlier lse null", "EarlierKeys: lse is null", p.dout, null, nothing);
  with("earlier o null, no keys", "EarlierKeys: o is null", null, p.dlse,
       [](auto& a) { a.kv_len = 0; });
  with("earlier o misaligned", "EarlierKeys: o is not aligned to its element type",
       shifted(p.dout, 1), p.dlse, nothing);
  with("earlier lse misaligned", "EarlierKeys: lse is not aligned to its element type", p.dout,
       shifted(p.dlse, 2), nothing);
  with("o in earlier lse", "o is the memory of the lse of EarlierKeys", p.dout, p.o, nothing);
  with("lse in earlier o", "lse is the memory of the o of EarlierKeys", p.lse, p.dlse, nothing);
  with("o in earlier o of other strides",
       "o is the memory of the o of EarlierKeys, but has other strides", p.o, p.dlse,
       [](auto& a) { a.sink.o.row_stride += 1; });
  with("o in earlier o of another type",
       "o is the memory of the o of EarlierKeys, which has another element type",
       reinterpret_cast<__half*>(p.o), p.dlse, nothing);
  with("lse in earlier lse of other strides",
       "lse is the memory of the lse of EarlierKeys, which has other strides", p.dout, p.lse,
       [](auto& a) {
         a.sink.lse = {a.sink.lse.data, 12, 1, 4};
       });
}

/// bad(name, why, spoil): visits the right arguments of one pass, spoilt; `with` names policies.
template <bool kBackward, class Visit>
struct Bad {
  SmallProblem& problem;
  const Visit& visit;

  template <class M = attile::NoMask, class S = attile::NoScoreMod, class P = attile::NoDropout,
            class Spoil>
  void with(const char* name, const char* why, const Spoil& spoil) const {
    if constexpr (kBackward) {
      auto args = problem.backward<M, S, P>();
      spoil(args);
      visit(name, why, args);
    } else {
      auto args = problem.forward<M, S, P>();
      spoil(args);
      visit(name, why, args);
    }
  }
  template <class Spoil>
  void operator()(const char* name, const char* why, const Spoil& spoil) const {
    with(name, why, spoil);
  }
};

template <class Visit>
using BadForward = Bad<false, Visit>;
template <class Visit>
using BadBackward = Bad<true, Visit>;

}  // namespace detail

/// Forward arguments that every executor refuses.
template <class Visit>
void visit_bad_forward(const Visit& visit) {
  SmallProblem problem;
  const detail::BadForward<Visit> bad{problem, visit};
  detail::bad_sizes(bad);
  detail::bad_inputs(bad);
  detail::bad_strides(
      bad, "o overlaps itself: two of its rows share memory (see its strides)",
      [](auto& a) -> auto& { return a.o; });
  bad("o in q", "o is the memory of q: it cannot be computed in place",
      [&](auto& a) { a.o.data = problem.q; });
  bad("o in k", "o is the memory of k, which other rows still read",
      [&](auto& a) { a.o.data = problem.k; });
  bad("o in v", "o is the memory of v, which other rows still read",
      [&](auto& a) { a.o.data = problem.v; });
  detail::bad_policies(bad);
  detail::bad_earlier_keys(bad);
}

/// Backward arguments that every executor refuses.
template <class Visit>
void visit_bad_backward(const Visit& visit) {
  SmallProblem problem;
  const detail::BadBackward<Visit> bad{problem, visit};
  detail::bad_sizes(bad);
  detail::bad_inputs(bad);
  bad("dout null", "dout is null", [](auto& a) { a.dout.data = nullptr; });
  bad("lse null", "lse is null", [](auto& a) { a.lse = nullptr; });
  bad("dq null", "dq is null", [](auto& a) { a.dq.data = nullptr; });
  bad("dk null", "dk is null", [](auto& a) { a.dk.data = nullptr; });
  bad("dv null", "dv is null", [](auto& a) { a.dv.data = nullptr; });
  bad("dout misaligned", "dout is not aligned to its element type",
      [](auto& a) { a.dout.data = shifted(a.dout.data, 1); });
  bad("dlse misaligned", "dlse is not aligned to 4 bytes",
      [](auto& a) { a.dlse = shifted(a.dlse, 2); });
  bad("dq misaligned", "dq is not aligned to its element type",
      [](auto& a) { a.dq.data = shifted(a.dq.data, 1); });
  bad("dk misaligned", "dk is not aligned to its element type",
      [](auto& a) { a.dk.data = shifted(a.dk.data, 2); });
  bad("dv misaligned", "dv is not aligned to its element type",
      [](auto& a) { a.dv.data = shifted(a.dv.data, 3); });
  detail::bad_strides(
      bad, "dq overlaps itself: two of its rows share memory (see its strides)",
      [](auto& a) -> auto& { return a.dq; });
  detail::bad_strides(
      bad, "dk overlaps itself: two of its rows share memory (see its strides)",
      [](auto& a) -> auto& { return a.dk; });
  detail::bad_strides(
      bad, "dv overlaps itself: two of its rows share memory (see its strides)",
      [](auto& a) -> auto& { return a.dv; });
  float* const inputs[] = {problem.q,    problem.k,   problem.v,   problem.o,
                           problem.dout, problem.lse, problem.dlse};
  for (float* const input : inputs) {
    const char* why = "a gradient is the memory of an input";
    bad("dq in an input", why, [=](auto& a) { a.dq.data = input; });
    bad("dk in an input", why, [=](auto& a) { a.dk.data = input; });
    bad("dv in an input", why, [=](auto& a) { a.dv.data = input; });
  }
  const char* shared = "two gradients share their memory";
  bad("dq is dk", shared, [](auto& a) { a.dq.data = a.dk.data; });
  bad("dk is dv", shared, [](auto& a) { a.dk.data = a.dv.data; });
  bad("dv is dq", shared, [](auto& a) { a.dv.data = a.dq.data; });
  detail::bad_learned_gradients(bad);
  detail::bad_sink_gradients(bad);
  detail::bad_policies(bad);
}

/// Arguments of both passes that kernels for D = 64, Dv = 64 refuse.
template <class Visit>
void visit_bad_for_kernel(const Visit& visit) {
  SmallProblem problem;
  const auto both = [&](const char* name, const char* why, const auto& spoil) {
    detail::BadForward<Visit>{problem, visit}(name, why, spoil);
    detail::BadBackward<Visit>{problem, visit}(name, why, spoil);
  };
  const char* large = "head_dim is larger than the D of the kernel";
  both("head_dim 65", large, [](auto& a) { a.head_dim = 65; });
  both("head_dim highest", large, [](auto& a) { a.head_dim = detail::kHigh; });
  const char* large_v = "head_dim_v is larger than the Dv of the kernel";
  both("head_dim_v 65", large_v, [](auto& a) { a.head_dim_v = 65; });
  both("head_dim_v highest", large_v, [](auto& a) { a.head_dim_v = detail::kHigh; });
  both("head_dim 0, head_dim_v 65", large_v, [](auto& a) {
    a.head_dim = 0;
    a.head_dim_v = 65;
  });
}

/// Arguments of both passes that an executor for any head_dim refuses.
template <class Visit>
void visit_bad_for_any_dim(const Visit& visit) {
  SmallProblem problem;
  const auto spoil = [](auto& a) { a.head_dim = 0; };
  detail::BadForward<Visit>{problem, visit}("head_dim 0", "head_dim is not given", spoil);
  detail::BadBackward<Visit>{problem, visit}("head_dim 0", "head_dim is not given", spoil);
}

}  // namespace attile_test
