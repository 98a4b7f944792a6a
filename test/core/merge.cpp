// SPDX-License-Identifier: MIT
#include <attile/core/merge.h>

#include <string>

#include "support/catch.h"
#include "support/shifted.h"

namespace core_merge {

using attile::bhs;
using attile::bshd;
using attile::kUnset;
using attile_test::shifted;

using Args = attile::MergeArgs<float, float, attile::Padded, attile::Sink<>>;

/// Memory of a small call, which nobody accesses.
constexpr int kBatch = 2, kHeads = 2, kRows = 3, kDim = 8;
float memory[7][256];

Args good() {
  Args a{};
  a.parts[0] = {.o = bshd<const float>(memory[0], {.rows = kRows, .heads = kHeads, .dim = kDim}),
                .lse = bhs<const float>(memory[1], {.rows = kRows, .heads = kHeads})};
  a.parts[1] = {.o = bshd<const float>(memory[2], {.rows = kRows, .heads = kHeads, .dim = kDim}),
                .lse = bhs<const float>(memory[3], {.rows = kRows, .heads = kHeads}),
                .count = 2,
                .o_stride = 96,
                .lse_stride = 12};
  a.part_tensors = 2;
  a.o = bshd(memory[4], {.rows = kRows, .heads = kHeads, .dim = kDim});
  a.lse = memory[5];
  a.batch = kBatch, a.q_heads = kHeads, a.q_len = kRows, a.head_dim_v = kDim;
  a.sink.sinks = memory[6];
  return a;
}

/// The sentence for the small call with a change; empty where it is taken.
template <class Change>
std::string why(const Change& change) {
  Args a = good();
  change(a);
  return attile::check_arguments(a).why;
}

TEST_CASE("merge.takes") {
  CHECK(why([](auto&) {}) == "");
  CHECK(why([](auto& a) { a.lse = nullptr; }) == "");
  CHECK(why([](auto& a) { a.part_tensors = 1, a.parts[1] = {}; }) == "");
  CHECK(why([](auto& a) { a.parts[0].o.batch_stride = a.parts[0].o.row_stride = 0; }) == "");
  CHECK(why([](auto& a) { a.o.data = memory[2]; }) == "");  // in place
  CHECK(why([](auto& a) { a.batch = 0, a.parts[0] = {}, a.o = {}, a.sink = {}; }) == "");
  CHECK(why([](auto& a) { a.q_len = 0, a.parts[0] = {}, a.o = {}, a.sink = {}; }) == "");
  // In place, with strides of an axis of one element that differ.
  CHECK(why([](auto& a) { a.o.data = memory[2], a.batch = 1, a.o.batch_stride = 7; }) == "");
}

TEST_CASE("merge.refuses_sizes") {
  CHECK(why([](auto& a) { a.batch = kUnset; }) == "batch is not given");
  CHECK(why([](auto& a) { a.q_heads = kUnset; }) == "q_heads is not given");
  CHECK(why([](auto& a) { a.q_len = kUnset; }) == "q_len is not given");
  CHECK(why([](auto& a) { a.head_dim_v = 0; }) == "head_dim_v is not given");
  CHECK(why([](auto& a) { a.head_dim_v = -1; }) == "head_dim_v is negative");
  CHECK(why([](auto& a) { a.head_dim_v = 1 << 30; }) ==
        "q_heads times head_dim_v must be below 2^31");
  CHECK(why([](auto& a) { a.part_tensors = kUnset; }) == "part_tensors is not given");
  CHECK(why([](auto& a) { a.part_tensors = 0; }) == "part_tensors must be 1 to 8");
  CHECK(why([](auto& a) { a.part_tensors = 9; }) == "part_tensors must be 1 to 8");
  CHECK(why([](auto& a) { a.parts[1].count = 0; }) ==
        "the count of a tensor of parts must be at least 1");
  CHECK(why([](auto& a) { a.sink.sinks = nullptr; }) == "Sink: sinks must not be null");
  int lengths[2];
  CHECK(why([&](auto& a) { a.sequences.seqused_q = shifted(lengths, 2); }) ==
        "Padded: seqused_q is not aligned to 4 bytes");
}

TEST_CASE("merge.refuses_tensors") {
  CHECK(why([](auto& a) { a.parts[0].o.data = nullptr; }) == "the O of a part is null");
  CHECK(why([](auto& a) { a.parts[1].lse.data = nullptr; }) == "the LSE of a part is null");
  CHECK(why([](auto& a) { a.part_tensors = 3; }) == "the O of a part is null");
  CHECK(why([](auto& a) { a.parts[1].o.data = shifted(memory[2], 2); }) ==
        "the O of a part is not aligned to its element type");
  CHECK(why([](auto& a) { a.parts[0].lse.data = shifted(memory[1], 2); }) ==
        "the LSE of a part is not aligned to its element type");
  CHECK(why([](auto& a) { a.o.data = nullptr; }) == "o is null");
  CHECK(why([](auto& a) { a.o.row_stride = 4; }) ==
        "o overlaps itself: two of its rows share memory (see its strides)");
  CHECK(why([](auto& a) { a.lse = shifted(a.lse, 2); }) == "lse is not aligned to 4 bytes");
}

TEST_CASE("merge.refuses_memory_that_is_still_read") {
  CHECK(why([](auto& a) { a.lse = memory[4]; }) == "lse is the memory of o");
  CHECK(why([](auto& a) { a.lse = memory[1]; }) == "lse is the memory of the LSE of a part");
  CHECK(why([](auto& a) { a.lse = memory[2]; }) == "lse is the memory of the O of a part");
  CHECK(why([](auto& a) { a.o.data = memory[3]; }) == "o is the memory of the LSE of a part");
  CHECK(why([](auto& a) {
          a.o = attile::bhsd(memory[0], {.rows = kRows, .heads = kHeads, .dim = kDim});
        }) == "o is the memory of the O of a part, but has other strides");
  __half elements[1];
  float parts[1], lse[1];
  const attile::MergeArgs<__half, float> args{.parts = {{.o = {parts}, .lse = {lse}}},
                                              .part_tensors = 1,
                                              .o = {reinterpret_cast<__half*>(parts)},
                                              .batch = 1,
                                              .q_heads = 1,
                                              .q_len = 1,
                                              .head_dim_v = 1};
  CHECK(std::string(attile::check_arguments(args).why) ==
        "o is the memory of the O of a part, which has another element type");
  auto apart = args;
  apart.o.data = elements;
  CHECK(attile::check_arguments(apart));
}

}  // namespace core_merge
