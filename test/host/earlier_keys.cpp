// SPDX-License-Identifier: MIT
// Calls that go on from earlier keys, on the CPU.
#include "support/earlier_keys.h"

#include <attile/host.h>
#include <attile/host/merge.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/catch.h"

namespace host_earlier_keys {

using namespace attile_test;
using attile::Causal;
using attile::NoDropout;
using attile::PartDropout;
using attile::Uniform;

const auto kOnCpu = [](const auto& args, const std::vector<Region>&) {
  return std::string(attile::host::forward(args).why);
};

TEST_CASE("earlier_keys.parts_are_the_whole") {
  check_parts_of_sequences<float, Uniform, attile::Padded, attile::Packed, attile::Cached,
                           attile::Paged>(kOnCpu);
  check_parts_of_sequences<__half, Uniform, attile::Packed>(kOnCpu);
  check_parts<KeysInParts<__half, Uniform, NoDropout, Causal>>(
      {2, 4, 1, 33, 64, {16, 96, 130, 210}}, kOnCpu);
}

TEST_CASE("earlier_keys.parts_drop_what_the_whole_does") {
  check_parts<KeysInParts<float, Uniform, PartDropout, Causal>>(
      {2, 4, 2, 20, 32, {16, 64, 144, 200}}, kOnCpu);
  check_parts<KeysInParts<__nv_bfloat16, attile::Packed, PartDropout>>(
      {3, 2, 1, 9, 32, {32, 48, 101}}, kOnCpu);
}

TEST_CASE("earlier_keys.128k_keys_in_16_parts") {
  std::vector<int> ends;
  for (int part = 1; part <= 16; ++part) ends.push_back(part * 8192);
  check_parts<KeysInParts<float>>({1, 2, 1, 3, 8, ends}, kOnCpu);
  check_parts<KeysInParts<__half, Uniform, NoDropout, Causal>>({1, 2, 1, 3, 8, ends}, kOnCpu);
}

/// What calls over parts have written in fp32 is what `merge` takes.
TEST_CASE("earlier_keys.fp32_parts_are_merged") {
  using Problem = KeysInParts<__half, attile::Padded>;
  const PartsCase c{5, 4, 2, 9, 32, {48, 64, 203}};
  Problem problem(c);
  const std::int64_t rows = std::int64_t{c.batch} * c.q_len * c.q_heads;
  std::vector<std::vector<float>> o(3, std::vector<float>(rows * c.head_dim)),
      lse(3, std::vector<float>(rows));
  attile::MergeArgs<__half, float, attile::Padded> merge{.part_tensors = 3};
  const auto run = [&](auto args, int part) {
    args.o = attile::bshd(o[part].data(), {.rows = c.q_len, .heads = c.q_heads, .dim = c.head_dim});
    args.lse = lse[part].data();
    REQUIRE(std::string(attile::host::forward(args).why) == "");
    merge.parts[part] = {
        .o = args.o,
        .lse = attile::bhs<const float>(lse[part].data(), {.rows = c.q_len, .heads = c.q_heads})};
  };
  using Part = attile::ForwardArgs<Problem::Types, attile::Padded>;
  run(problem.first(), 0);
  run(problem.described<Part>(1), 1);
  run(problem.described<Part>(2), 2);
  const auto whole = problem.whole();
  merge.o = whole.o, merge.lse = whole.lse, merge.sequences = whole.sequences;
  merge.batch = c.batch, merge.q_heads = c.q_heads, merge.q_len = c.q_len;
  merge.head_dim_v = c.head_dim;
  REQUIRE(std::string(attile::host::merge(merge).why) == "");
  problem.check();
}

/// The gradients of the keys of a part take O and LSE of all keys, and nothing of the other parts:
/// no sink either, whose gradient the pass over the first part computes. Those of Q add up.
TEST_CASE("earlier_keys.gradients_of_parts") {
  using Problem = KeysInParts<float, Uniform, PartDropout, Causal>;
  const PartsCase c{2, 4, 2, 20, 32, {16, 64, 144, 200}};
  Problem problem(c);
  REQUIRE(problem.run_parts(kOnCpu) == std::string());
  using First = attile::BackwardArgs<float, PartDropout, attile::Sink<>>;
  using Between = attile::BackwardArgs<float, PartDropout>;
  using Last = attile::BackwardArgs<float, Causal, PartDropout>;
  using Whole = attile::BackwardArgs<float, Causal, PartDropout, attile::Sink<>>;
  const std::size_t q_size = problem.q.storage().size() - 2 * Buffer<float>::kGuard;
  const std::size_t k_size = problem.k.storage().size() - 2 * Buffer<float>::kGuard;
  const Random random(8);
  std::vector<float> dout(q_size), dq(q_size), dk(k_size), dv(k_size), dsinks(c.q_heads);
  for (std::size_t i = 0; i < q_size; ++i) dout[i] = random.normal(i);
  const auto describe = [&](auto& a) {
    const auto forward = problem.whole();
    a.o = forward.o, a.lse = forward.lse;
    a.dout = {dout.data(), a.q.batch_stride, a.q.head_stride, a.q.row_stride};
    a.dq = {dq.data(), a.q.batch_stride, a.q.head_stride, a.q.row_stride};
    const std::int64_t first = a.k.data - problem.k.data();
    a.dk = {dk.data() + first, a.k.batch_stride, a.k.head_stride, a.k.row_stride};
    a.dv = {dv.data() + first, a.k.batch_stride, a.k.head_stride, a.k.row_stride};
    if constexpr (requires { a.sink.dsinks; }) a.sink = {problem.sinks.data(), dsinks.data()};
  };
  std::vector<double> sum(q_size);
  double largest = 0;
  const auto run = [&](auto args) {
    describe(args);
    REQUIRE(std::string(attile::host::backward(args).why) == "");
    for (std::size_t i = 0; i < q_size; ++i) {
      sum[i] += dq[i];
      largest = std::max<double>(largest, std::abs(dq[i]));
    }
  };
  const int last = problem.parts() - 1;
  run(problem.described<First>(0));
  for (int part = 1; part < last; ++part) run(problem.described<Between>(part));
  run(problem.described<Last>(last));

  Whole whole = problem.described<Whole>(-1);
  describe(whole);
  const auto exact = attile::reference::backward(whole);
  const auto plain = attile::reference::plain_backward(whole, {.keep_scores = true});
  // What the O and LSE of parts are off by, a plain computation does not know of.
  const auto allowed = [&](const std::vector<double>& x, const std::vector<double>& y) {
    return attile::reference::tolerance<float>(x, y) +
           problem.parts() * 0x1p-20 * attile::reference::largest_finite(x);
  };
  const auto dense = [&](const attile::Tensor<float>& t, int heads, int rows, const auto& of) {
    std::vector<double> x;
    for (int b = 0; b < c.batch; ++b) {
      for (int h = 0; h < heads; ++h) {
        for (int i = 0; i < rows; ++i) {
          for (int e = 0; e < c.head_dim; ++e) x.push_back(of[t.row(b, h, i) - t.data + e]);
        }
      }
    }
    return x;
  };
  using attile::reference::max_error;
  CHECK(max_error(dense(whole.dq, c.q_heads, c.q_len, sum), exact.dq) <=
        allowed(exact.dq, plain.dq) + problem.parts() * 0x1p-24 * largest);
  CHECK(max_error(dense(whole.dk, c.kv_heads, problem.kv_len, dk), exact.dk) <=
        allowed(exact.dk, plain.dk));
  CHECK(max_error(dense(whole.dv, c.kv_heads, problem.kv_len, dv), exact.dv) <=
        allowed(exact.dv, plain.dv));
  CHECK(max_error({dsinks.begin(), dsinks.end()}, exact.dsinks) <=
        allowed(exact.dsinks, plain.dsinks));
}

}  // namespace host_earlier_keys
