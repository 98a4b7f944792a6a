// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>

#include <limits>

#include "support/bad_arguments.h"

namespace attile_test {

/// Arguments of both passes that are unusual and right: visit(name, null, args).
template <class Visit>
void visit_good(const Visit& visit) {
  using attile::Document;
  using attile::NoMask;
  using attile::NoScoreMod;
  using attile::PhiloxDropout;
  SmallProblem problem;
  const detail::BadForward<Visit> forward{problem, visit};
  const detail::BadBackward<Visit> backward{problem, visit};
  const auto both = [&](const char* name, const auto& change) {
    forward(name, nullptr, change);
    backward(name, nullptr, change);
  };
  both("as it is", [](auto&) {});
  both("head_dim_v from head_dim", [](auto& a) { a.head_dim_v = 0; });
  both("scale", [](auto& a) { a.scale = 0.125f; });
  both("smallest scale", [](auto& a) { a.scale = 0x1p-100f; });
  both("largest scale", [](auto& a) { a.scale = 0x1p100f; });
  both("inputs repeated", [](auto& a) {
    a.q.batch_stride = a.k.head_stride = a.v.row_stride = 0;
    a.k.row_stride = 1;
  });
  both("inputs backwards", [](auto& a) {
    a.q.row_stride = -a.q.row_stride;
    a.k.head_stride = -a.k.head_stride;
  });
  both("k is v", [](auto& a) { a.k = a.v; });
  both("q is k", [](auto& a) { a.q = a.k; });
  both("no keys", [](auto& a) {
    a.kv_len = 0;
    a.k.data = a.v.data = nullptr;
  });
  forward("no keys, o of q's address", "o is the memory of q: it cannot be computed in place",
          [&](auto& a) {
            a.kv_len = 0;
            a.o.data = problem.q;
          });
  forward.template with<attile::EarlierKeys<>>("earlier keys in place", nullptr, [](auto& a) {
    a.sink = {a.o, attile::bhs<const float>(a.lse, {.rows = a.q_len, .heads = a.q_heads})};
  });
  forward.template with<attile::EarlierKeys<>>(
      "earlier keys in place, strides that are not read", nullptr, [](auto& a) {
        a.batch = 1;
        a.sink = {a.o, attile::bhs<const float>(a.lse, {.rows = a.q_len, .heads = a.q_heads})};
        a.sink.o.batch_stride = a.sink.lse.batch_stride = 7;
      });
  forward.template with<attile::EarlierKeys<>>("earlier keys, no rows", nullptr, [](auto& a) {
    a.q_len = 0;
    a.q.data = nullptr;
    a.o.data = nullptr;
    a.lse = nullptr;
  });
  forward("no rows", nullptr, [](auto& a) {
    a.q_len = 0;
    a.q.data = nullptr;
    a.o.data = nullptr;
    a.lse = nullptr;
  });
  backward("no rows", nullptr, [](auto& a) {
    a.q_len = 0;
    a.q.data = a.o.data = a.dout.data = nullptr;
    a.dq.data = nullptr;
    a.lse = nullptr;
  });
  backward("no keys, no gradients of them", nullptr, [](auto& a) {
    a.kv_len = 0;
    a.dk.data = a.dv.data = nullptr;
  });
  forward("no batch", nullptr, [](auto& a) {
    a.batch = 0;
    a.q.data = a.k.data = a.v.data = nullptr;
    a.o.data = nullptr;
  });
  backward("no batch", nullptr, [](auto& a) {
    a.batch = 0;
    a.q.data = a.k.data = a.v.data = a.o.data = a.dout.data = nullptr;
    a.dq.data = a.dk.data = a.dv.data = nullptr;
    a.lse = nullptr;
  });
  forward("no lse", nullptr, [](auto& a) { a.lse = nullptr; });
  backward("no dlse", nullptr, [](auto& a) { a.dlse = nullptr; });
  forward("one batch, stride 0", nullptr, [](auto& a) {
    a.batch = 1;
    a.o.batch_stride = 0;
  });
  forward("o backwards", nullptr, [&](auto& a) {
    a.o.data = problem.o + (SmallProblem::kQLen - 1) * a.o.row_stride;
    a.o.row_stride = -a.o.row_stride;
  });
  backward("dout of one number", nullptr,
           [](auto& a) { a.dout.batch_stride = a.dout.head_stride = a.dout.row_stride = 0; });
  backward("one row, stride 0", nullptr, [](auto& a) {
    a.q_len = 1;
    a.dq.row_stride = 0;
  });
  forward.template with<attile::Prefix>("prefix of a batch", nullptr, [&](auto& a) {
    a.mask.length = -1;
    a.mask.lengths = problem.ids;
  });
  forward.template with<Document>("documents", nullptr,
                                  [&](auto& a) { a.mask.q_ids = a.mask.kv_ids = problem.ids; });
  forward.template with<Document>("documents of no keys", nullptr, [](auto& a) { a.kv_len = 0; });
  forward.template with<attile::SlidingWindow>("window of any size", nullptr, [](auto& a) {
    a.mask.left = detail::kLow;
    a.mask.right = detail::kHigh;
  });
  backward.template with<NoMask, attile::Softcap>("smallest cap", nullptr, [](auto& a) {
    a.score_mod.cap = std::numeric_limits<float>::min();
  });
  using Sink = attile::Sink<>;
  forward.template with<Sink>("sink, no gradient", nullptr,
                              [&](auto& a) { a.sink.sinks = problem.slopes; });
  backward.template with<Sink>("sink, gradient not wanted", nullptr,
                               [&](auto& a) { a.sink.sinks = problem.slopes; });
  backward.template with<Sink>("no rows, gradient of sinks", nullptr, [&](auto& a) {
    a.q_len = 0;
    a.sink.dsinks = problem.bias_gradient;
  });
  backward.template with<Sink>("no keys, gradient of sinks", nullptr, [&](auto& a) {
    a.kv_len = 0;
    a.sink = {problem.slopes, problem.bias_gradient};
  });
  using Learned = attile::LearnedBias<float>;
  forward.template with<NoMask, Learned>("learned bias, no gradient", nullptr,
                                         [&](auto& a) { a.score_mod.bias.bias = problem.bias; });
  backward.template with<NoMask, Learned>("learned bias of columns", nullptr, [&](auto& a) {
    a.score_mod = {{problem.bias}, {problem.bias_gradient}};
  });
  backward.template with<NoMask, Learned>("learned bias, no keys, null", nullptr,
                                          [&](auto& a) { a.kv_len = 0; });
  backward.template with<NoMask, NoScoreMod, PhiloxDropout>(
      "dropout 0", nullptr, [](auto& a) { a.dropout.probability = 0.0f; });
  backward.template with<NoMask, NoScoreMod, PhiloxDropout>(
      "largest dropout", nullptr,
      [](auto& a) { a.dropout.probability = 1.0f - 0x1p-17f - 0x1p-24f; });
}

}  // namespace attile_test
