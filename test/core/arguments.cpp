// SPDX-License-Identifier: MIT
#include <attile/core/check.h>

#include <cmath>
#include <string>
#include <utility>

#include "support/bad_arguments.h"
#include "support/catch.h"
#include "support/good_arguments.h"

namespace {

using namespace attile_test;

/// Expects a sentence (or, when there is none, no refusal) and counts.
struct Expect {
  int D, Dv;
  int* count;

  template <class Args>
  void operator()(const char* name, const char* why, const Args& args) const {
    INFO(name);
    const attile::Check check = attile::check_arguments(args, D, Dv);
    CHECK(std::string(check.why) == (why != nullptr ? why : ""));
    CHECK(check.error == (why != nullptr ? cudaErrorInvalidValue : cudaSuccess));
    CHECK(bool(check) == (why == nullptr));
    ++*count;
  }
};

TEST_CASE("arguments.bad") {
  int count = 0;
  visit_bad_forward(Expect{0, 0, &count});
  visit_bad_backward(Expect{0, 0, &count});
  visit_bad_for_kernel(Expect{64, 64, &count});
  visit_bad_for_any_dim(Expect{0, 0, &count});
  CHECK(count == 303);
}

TEST_CASE("arguments.bad_for_a_kernel") {
  int count = 0;
  visit_bad_forward(Expect{64, 64, &count});
  visit_bad_backward(Expect{64, 32, &count});
  const auto wide = [&](auto args) {
    args.head_dim = 40;
    args.head_dim_v = 0;
    Expect{64, 32, &count}("head_dim 40, Dv 32", "head_dim_v is larger than the Dv of the kernel",
                           args);
    args.head_dim = SmallProblem::kDim;
    args.head_dim_v = 0;
    Expect{8, 4, &count}("head_dim_v is that of the kernel", nullptr, args);
  };
  SmallProblem problem;
  wide(problem.forward());
  wide(problem.backward());
}

TEST_CASE("arguments.good") {
  int count = 0;
  visit_good(Expect{0, 0, &count});
  visit_good(Expect{64, 64, &count});
  visit_good(Expect{8, 8, &count});
}

TEST_CASE("arguments.misaligned_half") {
  SmallProblem problem;
  attile::ForwardArgs<__half> a{};
  a.batch = a.q_heads = a.kv_heads = a.q_len = a.kv_len = 1;
  a.head_dim = 8;
  auto* data = reinterpret_cast<__half*>(problem.q);
  a.q.data = data + 1;  // 2 bytes are enough for a half
  a.k.data = data + 9;
  a.v.data = data + 17;
  a.o.data = data + 25;
  CHECK(attile::check_arguments(a, 0, 0));
  a.k.data = reinterpret_cast<__half*>(reinterpret_cast<char*>(data) + 17);
  CHECK(std::string(attile::check_arguments(a, 0, 0).why) ==
        "k is not aligned to its element type");
}

TEST_CASE("arguments.scales") {
  using F = __nv_fp8_e4m3;
  SmallProblem problem;
  attile::ForwardArgs<attile::Elements<__half, F, F>> a{};
  a.batch = a.q_heads = a.kv_heads = a.q_len = a.kv_len = 1;
  a.head_dim = 8;
  auto* data = reinterpret_cast<__half*>(problem.q);
  a.q.data = data;
  a.k.data = reinterpret_cast<F*>(data + 8) + 1;  // any byte is aligned
  a.v.data = reinterpret_cast<F*>(data + 16);
  a.o.data = data + 24;
  CHECK(attile::check_arguments(a, 0, 0));
  const float scale = 1.0f;
  const auto* const odd = reinterpret_cast<const float*>(reinterpret_cast<const char*>(&scale) + 2);
  a.k_scale = {&scale}, a.v_scale = {&scale};
  CHECK(attile::check_arguments(a, 0, 0));
  a.k_scale.data = odd;
  CHECK(std::string(attile::check_arguments(a, 0, 0).why) == "k_scale is not aligned to 4 bytes");
  a.k_scale = {}, a.v_scale.data = odd;
  CHECK(std::string(attile::check_arguments(a, 0, 0).why) == "v_scale is not aligned to 4 bytes");

  attile::ForwardArgs<attile::Elements<F, F, F, __half>> all{};
  all.batch = all.q_heads = all.kv_heads = 1, all.q_len = 2, all.kv_len = 3, all.head_dim = 2;
  F codes[3][6] = {};
  __half o[4];
  all.q = attile::bhsd<const F>(codes[0], {.rows = 2, .heads = 1, .dim = 2}),
  all.k = attile::bhsd<const F>(codes[1], {.rows = 3, .heads = 1, .dim = 2});
  all.v = attile::bhsd<const F>(codes[2], {.rows = 3, .heads = 1, .dim = 2}),
  all.o = attile::bhsd(o, {.rows = 2, .heads = 1, .dim = 2});
  CHECK(attile::check_arguments(all, 0, 0));
  all.q_scale.data = odd;
  CHECK(std::string(attile::check_arguments(all, 0, 0).why) == "q_scale is not aligned to 4 bytes");
  all.q_scale = {};
  all.v_col_stride = 3;
  const char* const no_axis =
      "v has no contiguous axis: neither v_col_stride nor v.row_stride is 1";
  CHECK(std::string(attile::check_arguments(all, 0, 0).why) == no_axis);
  all.v.row_stride = 1;
  CHECK(attile::check_arguments(all, 0, 0));
  // The stride of an axis with one element is not looked at.
  all.v.row_stride = 5, all.kv_len = 1;
  CHECK(attile::check_arguments(all, 0, 0));
}

TEST_CASE("arguments.head_dims") {
  attile::ForwardArgs<float> a{};
  const auto dims = [&](int D, int Dv) {
    const attile::HeadDims d = attile::head_dims(a, D, Dv);
    return std::pair(d.qk, d.v);
  };
  CHECK(dims(64, 64) == std::pair(64, 64));
  CHECK(dims(192, 128) == std::pair(192, 128));
  a.head_dim = 40;
  CHECK(dims(64, 64) == std::pair(40, 40));
  CHECK(dims(0, 0) == std::pair(40, 40));
  CHECK(dims(192, 128) == std::pair(40, 40));
  CHECK(dims(64, 32) == std::pair(40, 40));  // and so refused
  CHECK(dims(64, 0) == std::pair(40, 40));
  a.head_dim = 192;
  CHECK(dims(192, 128) == std::pair(192, 128));
  CHECK(dims(192, 192) == std::pair(192, 192));
  CHECK(dims(192, 256) == std::pair(192, 192));
  CHECK(dims(0, 0) == std::pair(192, 192));
  a.head_dim_v = 136;
  CHECK(dims(192, 128) == std::pair(192, 136));  // given, and so refused
  a.head_dim = 40;
  a.head_dim_v = 56;
  CHECK(dims(64, 64) == std::pair(40, 56));
  CHECK(dims(0, 0) == std::pair(40, 56));
  a.head_dim = 0;
  CHECK(dims(192, 128) == std::pair(192, 56));
}

TEST_CASE("arguments.scale") {
  attile::ForwardArgs<float> a{};
  CHECK(attile::scale_of(a, 64) == 0.125f);
  CHECK(attile::scale_of(a, 40) == 1.0f / std::sqrt(40.0f));
  a.scale = 3.0f;
  CHECK(attile::scale_of(a, 64) == 3.0f);
}

}  // namespace
