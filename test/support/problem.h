// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/reference.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/fp8.h"
#include "support/policies.h"
#include "support/random.h"
#include "support/tensors.h"

namespace attile_test {

/// The tensors of one case in host memory, inputs filled, outputs poisoned, and what its policies
/// point to. TO: the type of O.
template <attile::Element T, attile::Element TO = T>
class ProblemData {
 public:
  explicit ProblemData(const Case& c)
      : case_(c),
        policies_(c),
        lse_(rows_of_statistics()),
        dlse_(rows_of_statistics()),
        q(make("q", Role::kQ, buffers_)),
        k(make("k", Role::kK, buffers_)),
        v(make("v", Role::kV, buffers_)),
        o(make("o", Role::kO, &o_)),
        dout(make("dout", Role::kDout, buffers_)),
        dq(make("dq", Role::kDq, buffers_)),
        dk(make("dk", Role::kDk, buffers_)),
        dv(make("dv", Role::kDv, buffers_)),
        earlier_o(make("earlier o", Role::kO, &earlier_o_)),
        earlier_bf16_o(make("earlier o", Role::kO, &earlier_bf16_o_)) {
    if (c.layout == Layout::kPacked) {
      pack(q, k, v);
      pack(dq, dk, dv);
    }
    if (c.layout == Layout::kOneCache) share_cache();
    for (TestTensor<T>* t : {&q, &k, &v, &dout}) fill(*t);
    for (const TestTensor<T>* t : {&q, &k, &v, &dout}) t->buffer->fill_gaps_of_input();
    const Random random(11);
    statistic("dlse", dlse_).for_each([&](float& x, std::int64_t i) { x = random.normal(i); });
    dlse_.fill_gaps_of_input();
    if (!has_earlier_keys(c.policy)) return;
    earlier_lse_ = Buffer<float>(rows_of_statistics());
    fill_earlier_lse(earlier_lse());
    fill_earlier_o(earlier_o);
    fill_earlier_o(earlier_bf16_o);
  }
  ProblemData(const ProblemData&) = delete;
  ProblemData& operator=(const ProblemData&) = delete;

  /// What the forward pass gave, as the inputs of the backward pass.
  void set_forward_result(const attile::reference::ForwardResult& result) {
    o.for_each([&](TO& x, std::int64_t i) {
      x = attile::from_float<TO>(without_keys(o, i) ? no_number(i) : float(result.o[i]));
    });
    o.buffer->fill_gaps_of_input();
    lse().for_each([&](float& x, std::int64_t i) { x = static_cast<float>(result.lse[i]); });
    lse_.fill_gaps_of_input();
  }

  /// Poisons the outputs of the forward pass, or gives them what earlier keys have left there.
  void clear_outputs() {
    o.buffer->repoison();
    lse_.repoison();
    if (!in_place_) return;
    fill_earlier_o(o);
    if (case_.lse) fill_earlier_lse(lse());
  }
  /// Makes queries, keys and values such that they can be stored in fp8.
  void round_inputs_to(Fp8Types fp8) {
    const auto round = [](const TestTensor<T>& t, Fp8Type type, const auto& scale_of) {
      if (type == Fp8Type::kNone) return;
      t.for_each([&](T& x, std::int64_t i) {
        const int head = static_cast<int>(i / t.shape.dim / t.shape.rows % t.shape.heads);
        x = rounded_to(type, x, scale_of(head));
      });
    };
    const int group = k.shape.heads > 0 ? q.shape.heads / k.shape.heads : 1;
    round(q, fp8.q, [&](int head) { return q_scale_of(head / group); });
    round(k, fp8.k, k_scale_of);
    round(v, fp8.v, v_scale_of);
  }

  TestTensor<float> lse() { return statistic("lse", lse_); }
  TestTensor<float> dlse() { return statistic("dlse", dlse_); }
  Buffer<float>& lse_buffer() { return lse_; }
  Buffer<float>& dlse_buffer() { return dlse_; }
  Buffer<T>& buffer(int i) { return buffers_[i]; }
  Buffer<float>& learned_buffer() { return policies_.gradient_buffer(); }
  Buffer<float>& dsinks_buffer() { return policies_.dsinks(); }

  std::vector<Region> regions() {
    std::vector<Region> all = policies_.regions();
    for (Buffer<T>& b : buffers_) all.push_back(b.region());
    all.push_back(o_.region());
    all.push_back(earlier_o_.region());
    all.push_back(earlier_bf16_o_.region());
    all.push_back(earlier_lse_.region());
    all.push_back(lse_.region());
    all.push_back(dlse_.region());
    return all;
  }

 private:
  static constexpr int kTensors = 8;

  Buffer<T> buffers_[kTensors];  // by role; O has its own
  Buffer<TO> o_;
  Buffer<float> earlier_o_, earlier_lse_;
  Buffer<__nv_bfloat16> earlier_bf16_o_;

 protected:
  bool in_place_ = false;  // O and LSE of earlier keys lie where the result does
  Case case_;
  PolicyData policies_;
  Buffer<float> lse_, dlse_;

 public:
  TestTensor<T> q, k, v;
  TestTensor<TO> o;
  TestTensor<T> dout, dq, dk, dv;
  TestTensor<float> earlier_o;
  TestTensor<__nv_bfloat16> earlier_bf16_o;

  /// The LSE of earlier keys, each row's of all heads in one piece.
  TestTensor<float> earlier_lse() {
    TestTensor<float> t = statistic("earlier lse", earlier_lse_);
    t.placement = place(Layout::kBshd, {}, allocated({}, t.shape));
    return t;
  }

 private:
  bool has_lengths() const { return has_own_lengths(case_.policy); }
  std::int64_t rows_of_statistics() const {
    const Shape queries = allocated({}, {case_.batch, case_.q_heads, case_.q_len, 1});
    return queries.elements();
  }
  /// LSE, or its gradient.
  TestTensor<float> statistic(const char* name, Buffer<float>& buffer) {
    const Shape shape{case_.batch, case_.q_heads, case_.q_len, 1};
    return {name,
            {},
            &buffer,
            shape,
            place(Layout::kBhsd, {}, allocated({}, shape)),
            false,
            has_lengths() ? &policies_.q_rows : nullptr};
  }
  /// What a tensor of that shape is a view of.
  Shape allocated(Role role, Shape shape) const {
    if (!has_lengths()) return shape;
    const PackedRows& rows = is_key_or_value(role) ? policies_.kv_rows : policies_.q_rows;
    return {rows.batches, shape.heads, rows.rows, shape.dim};
  }

  Shape shape_of(Role role) const {
    const int dim_v = case_.head_dim_v > 0 ? case_.head_dim_v : case_.head_dim;
    const bool v_wide =
        role == Role::kV || role == Role::kO || role == Role::kDout || role == Role::kDv;
    return is_key_or_value(role)
               ? Shape{case_.batch, case_.kv_heads, case_.kv_len, v_wide ? dim_v : case_.head_dim}
               : Shape{case_.batch, case_.q_heads, case_.q_len, v_wide ? dim_v : case_.head_dim};
  }

  TestTensor<T> make(const char* name, Role role, Buffer<T> (&buffers)[kTensors]) {
    return make(name, role, &buffers[static_cast<int>(role)]);
  }
  template <class X>
  TestTensor<X> make(const char* name, Role role, Buffer<X>* to) {
    const Shape shape = shape_of(role);
    const Placement placement = place(case_.layout, role, allocated(role, shape));
    Buffer<X>& buffer = *to;
    buffer = Buffer<X>(placement.elements);
    const PackedRows& rows = is_key_or_value(role) ? policies_.kv_rows : policies_.q_rows;
    return {name,
            role,
            &buffer,
            shape,
            placement,
            case_.layout == Layout::kBhsd,
            has_lengths() ? &rows : nullptr};
  }

  /// The LSE of a row's earlier keys: in turn of none, far above those of its keys, far below, and
  /// about the same.
  static float earlier_lse_of(std::int64_t row) {
    const float some[] = {-attile::kInf, 60.0f, -60.0f};
    return row % 7 < 3 ? some[row % 7] : 4.0f + Random(31).normal(row);
  }
  static void fill_earlier_lse(const TestTensor<float>& t) {
    t.for_each([](float& x, std::int64_t i) { x = earlier_lse_of(i); });
  }
  /// Rows that have seen nothing keep their poison.
  template <class X>
  static void fill_earlier_o(const TestTensor<X>& t) {
    const Random random(32);
    t.for_each([&](X& x, std::int64_t i) {
      if (earlier_lse_of(i / t.shape.dim) == -attile::kInf) return;
      x = attile::from_float<X>(random.normal(i));
    });
  }

  /// (batch, row, q heads then k heads then v heads, dim) in the first one's buffer.
  void pack(TestTensor<T>& q_like, TestTensor<T>& k_like, TestTensor<T>& v_like) {
    const std::int64_t D = case_.head_dim;
    const std::int64_t row = D * (case_.q_heads + 2 * case_.kv_heads);
    const Shape shape = allocated(Role::kQ, q_like.shape);
    const std::int64_t batch = row * shape.rows;
    *q_like.buffer = Buffer<T>(batch * shape.batch);
    k_like.buffer = v_like.buffer = q_like.buffer;
    q_like.placement = {0, batch, D, row, 0};
    k_like.placement = {D * case_.q_heads, batch, D, row, 0};
    v_like.placement = {D * (case_.q_heads + case_.kv_heads), batch, D, row, 0};
  }

  /// (page, k then v, row, head, dim) in the buffer of k.
  void share_cache() {
    const std::int64_t half = k.placement.batch_stride;
    k.placement.batch_stride = v.placement.batch_stride = 2 * half;
    v.placement.first = half;
    *k.buffer = Buffer<T>(2 * k.placement.elements);
    v.buffer = k.buffer;
  }

  void fill(const TestTensor<T>& t) {
    const Random random(static_cast<std::uint64_t>(t.role) + 1);
    t.for_each([&](T& x, std::int64_t i) {
      const int row = static_cast<int>(i / t.shape.dim % t.shape.rows);
      const int c = static_cast<int>(i % t.shape.dim);
      const bool spoilt = t.role == Role::kDout && without_keys(t, i);
      x = attile::from_float<T>(spoilt ? no_number(i) : value(t.role, random.normal(i), row, c));
    });
  }

  /// Whether an element is one of those that kNanGradient is about: of a sequence without keys.
  bool without_keys(const TestTensor<T>& t, std::int64_t index) const {
    if (case_.data != Data::kNanGradient) return false;
    const std::int64_t sequence = index / t.shape.dim / t.shape.rows / t.shape.heads;
    return has_lengths() ? policies_.kv_rows.length[sequence] == 0 : case_.kv_len == 0;
  }
  static float no_number(std::int64_t index) {
    return index % 2 == 0 ? attile::kInf : std::numeric_limits<float>::quiet_NaN();
  }

  float value(Role role, float normal, int row, int c) const {
    const float nan = attile::float_of(0x7FFFFFFFu);  // the one that a GPU's arithmetic gives
    const float root = std::sqrt(static_cast<float>(case_.head_dim));
    const bool marked_row = row == case_.kv_len / 2;
    switch (case_.data) {
      case Data::kNormal:
      case Data::kNanGradient:
        return normal;
      case Data::kZero:
        return role == Role::kQ ? 0.0f : normal;
      case Data::kNegative:
        if (role == Role::kQ) return 1.0f + 0.05f * normal;
        return role == Role::kK ? -200.0f / root * (1.0f + 0.05f * normal) : normal;
      case Data::kVeryNegative: {
        const float size = 2.45e5f / (40.0f * root * std::sqrt(128.0f));
        if (role == Role::kQ) return 40.0f * std::sqrt(128.0f) / root * (1.0f + 1e-3f * normal);
        return role == Role::kK ? -size * (1.0f + 1e-3f * normal) : normal;
      }
      case Data::kOverflow:
        return role == Role::kQ ? 5.0f * normal : role == Role::kK ? 3.0f * normal : normal;
      case Data::kLarge:
        return role == Role::kQ || role == Role::kK ? 100.0f * normal : normal;
      case Data::kNanQuery:
        return role == Role::kQ && row == case_.q_len / 2 && c == 1 ? nan : normal;
      case Data::kNanKey:
        return role == Role::kK && marked_row && c == 1 ? nan : normal;
      case Data::kNanValue:
        return role == Role::kV && marked_row && c == 1 ? nan : normal;
    }
    return normal;
  }
};

/// A case as arguments with its policies.
template <attile::Element T, Policy kPolicy>
class Problem : public ProblemData<T, OutputOf<T, kPolicy>> {
 public:
  using ForwardArgs = ForwardArgsOf<T, kPolicy>;

  using ProblemData<T, OutputOf<T, kPolicy>>::ProblemData;

  /// The arguments that executors get: the same, or with Case::in_place those of a pass in place,
  /// where the types allow it.
  ForwardArgs executor_args() {
    ForwardArgs a = forward_args();
    if constexpr (requires { a.sink.o = a.o; }) {
      this->in_place_ = this->case_.in_place;
      if (!this->in_place_) return a;
      a.sink.o = a.o;
      const attile::RowShape shape = a.sequences.q_shape(a.batch, a.q_len);
      if (a.lse != nullptr)
        a.sink.lse = attile::bhs<const float>(a.lse, {.rows = shape.rows, .heads = a.q_heads});
    }
    return a;
  }
  ForwardArgs forward_args() {
    ForwardArgs a{};
    a.o = this->o.view();
    a.lse = this->case_.lse ? this->lse_.data() : nullptr;
    describe(a);
    return a;
  }

  auto backward_args() {
    BackwardArgsOf<T, kPolicy> a{};
    a.o = this->o.view();
    a.lse = this->lse_.data();
    a.dout = this->dout.view();
    a.dlse = this->case_.dlse ? this->dlse_.data() : nullptr;
    a.dq = this->dq.view();
    a.dk = this->dk.view();
    a.dv = this->dv.view();
    describe(a);
    return a;
  }

 private:
  template <class Args>
  void describe(Args& a) {
    const Case& c = this->case_;
    a.q = this->q.view();
    a.k = this->k.view();
    a.v = this->v.view();
    a.batch = c.batch;
    a.q_heads = c.q_heads;
    a.kv_heads = c.kv_heads;
    a.q_len = c.q_len;
    a.kv_len = c.kv_len;
    a.head_dim = c.head_dim;
    a.head_dim_v = c.head_dim_v;
    if (c.scale > 0) a.scale = c.scale;
    this->policies_(a.mask);
    this->policies_(a.score_mod);
    this->policies_(a.dropout);
    this->policies_(a.sequences);
    this->policies_(a.sink);
    if constexpr (attile::kIsEarlierKeys<typename Args::SinkType>) {
      if constexpr (requires { a.sink.o = this->earlier_o.view(); }) {
        a.sink.o = this->earlier_o.view();
      } else {
        a.sink.o = this->earlier_bf16_o.view();
      }
      a.sink.lse = this->earlier_lse().view();
    }
  }
};

}  // namespace attile_test
