// SPDX-License-Identifier: MIT
#include <attile/core/append.h>

#include <string>

#include "support/catch.h"
#include "support/shifted.h"

namespace core_append {

using attile::bshd;
using attile::Cached;
using attile::kUnset;
using attile::Paged;
using attile::Rotary;
using attile::RotaryLayout;
using attile_test::shifted;

using Args = attile::AppendArgs<float, Cached, Rotary<>>;

/// Memory of a small call, which nobody accesses.
constexpr int kBatch = 2, kHeads = 2, kRows = 3, kKeys = 5, kDim = 8, kElements = 512;
float memory[8][kElements];
int numbers[8];

Args good() {
  Args a{};
  a.k_new = bshd<const float>(memory[0], {.rows = kRows, .heads = kHeads, .dim = kDim});
  a.v_new = bshd<const float>(memory[1], {.rows = kRows, .heads = kHeads, .dim = kDim});
  a.k = bshd(memory[2], {.rows = kKeys, .heads = kHeads, .dim = kDim});
  a.v = bshd(memory[3], {.rows = kKeys, .heads = kHeads, .dim = kDim});
  a.q = bshd<const float>(memory[4], {.rows = kRows, .heads = 2 * kHeads, .dim = kDim});
  a.q_out = bshd(memory[5], {.rows = kRows, .heads = 2 * kHeads, .dim = kDim});
  a.batch = kBatch, a.q_heads = 2 * kHeads, a.kv_heads = kHeads;
  a.q_len = kRows, a.kv_len = kKeys, a.head_dim = kDim;
  a.rotary = {.cos = memory[6], .sin = memory[7], .rows = kKeys, .dims = 4};
  return a;
}

/// The sentence for the small call with a change; empty where it is taken.
template <class Change>
std::string why(const Change& change) {
  Args a = good();
  change(a);
  return attile::check_arguments(a).why;
}

TEST_CASE("append.takes") {
  CHECK(why([](auto&) {}) == "");
  CHECK(why([](auto& a) { a.q.data = nullptr, a.q_out.data = nullptr, a.q_heads = kUnset; }) == "");
  CHECK(why([](auto& a) {
          a.q_out = bshd(memory[4], {.rows = kRows, .heads = 2 * kHeads, .dim = kDim});
        }) == "");
  CHECK(why([](auto& a) { a.k_new.row_stride = 0, a.v_new = a.k_new; }) == "");
  CHECK(why([](auto& a) { a.rotary.rows = 1, a.rotary.seqlens = numbers; }) == "");
  CHECK(why([](auto& a) { a.batch = 0, a.k.data = nullptr, a.rotary = {}; }) == "");
  CHECK(why([](auto& a) { a.q_len = 0, a.k_new.data = nullptr; }) == "");
  // No sequence has a cache: every row is dropped.
  CHECK(why([](auto& a) { a.sequences.caches = 0, a.k.data = a.v.data = nullptr; }) == "");
  // In place, with strides of an axis of one element that differ.
  CHECK(why([](auto& a) {
          a.q_out = bshd(memory[4], {.rows = kRows, .heads = 2 * kHeads, .dim = kDim});
          a.batch = 1, a.q_out.batch_stride = 7;
        }) == "");
}

TEST_CASE("append.refuses_sizes") {
  CHECK(why([](auto& a) { a.batch = kUnset; }) == "batch is not given");
  CHECK(why([](auto& a) { a.q_heads = kUnset; }) == "q_heads is not given");
  CHECK(why([](auto& a) { a.kv_heads = kUnset; }) == "kv_heads is not given");
  CHECK(why([](auto& a) { a.q_len = kUnset; }) == "q_len is not given");
  CHECK(why([](auto& a) { a.kv_len = kUnset; }) == "kv_len is not given");
  CHECK(why([](auto& a) { a.q_heads = 3; }) == "q_heads must be a multiple of kv_heads");
  CHECK(why([](auto& a) { a.head_dim = 0; }) == "head_dim is not given");
  CHECK(why([](auto& a) { a.head_dim = -1; }) == "head_dim is negative");
  CHECK(why([](auto& a) { a.head_dim_v = -1; }) == "head_dim_v is negative");
  CHECK(why([](auto& a) { a.head_dim_v = 1 << 28; }) ==
        "q_heads and kv_heads times head_dim must be below 2^31");
  CHECK(why([](auto& a) { a.sequences.seqused_k = shifted(numbers, 2); }) ==
        "CachedKeys: seqused_k is not aligned to 4 bytes");
  CHECK(why([](auto& a) { a.sequences.caches = 1; }) ==
        "CachedKeys: caches is less than batch, and cache_batch_idx is null");
}

TEST_CASE("append.refuses_tensors") {
  CHECK(why([](auto& a) { a.k_new.data = nullptr; }) == "k_new is null");
  CHECK(why([](auto& a) { a.v_new.data = shifted(a.v_new.data, 2); }) ==
        "v_new is not aligned to its element type");
  CHECK(why([](auto& a) { a.k.data = nullptr; }) == "k is null");
  CHECK(why([](auto& a) { a.v.head_stride = 4; }) ==
        "v overlaps itself: two of its rows share memory (see its strides)");
  CHECK(why([](auto& a) { a.q_out.row_stride = 0; }) ==
        "q_out overlaps itself: two of its rows share memory (see its strides)");
  CHECK(why([](auto& a) { a.q_out.data = nullptr; }) ==
        "q_out is null: where q is to be rotated in place, q_out is q");
  CHECK(why([](auto& a) { a.q.data = nullptr; }) == "q is null, and q_out is not");
  CHECK(why([](auto& a) { a.dropped = shifted(numbers, 2); }) ==
        "dropped is not aligned to 4 bytes");
  CHECK(why([](auto& a) { a.v = a.k; }) == "k is the memory of v: one would overwrite the other");
  CHECK(why([](auto& a) { a.k_new.data = a.k.data; }) == "k_new is the memory of the cache");
  CHECK(why([](auto& a) { a.v_new.data = a.k.data; }) == "v_new is the memory of the cache");
  CHECK(why([](auto& a) { a.q.data = a.v.data; }) == "q is the memory of the cache");
  CHECK(why([](auto& a) { a.q_out.data = a.v.data; }) == "q_out is the memory of the cache");
  CHECK(why([](auto& a) { a.q_out.data = memory[0]; }) == "q_out is the memory of k_new");
  CHECK(why([](auto& a) { a.q_out.data = memory[1]; }) == "q_out is the memory of v_new");
  CHECK(why([](auto& a) {
          a.q_out = {memory[4], kRows * 8 * kDim, kDim, 8 * kDim};
        }) == "q_out is the memory of q, but has other strides");
}

TEST_CASE("append.refuses_rotary") {
  CHECK(why([](auto& a) { a.rotary.cos = nullptr; }) == "Rotary: cos is null");
  CHECK(why([](auto& a) { a.rotary.sin = nullptr; }) == "Rotary: sin is null");
  CHECK(why([](auto& a) { a.rotary.rows = kUnset; }) == "Rotary: rows is not given");
  CHECK(why([](auto& a) { a.rotary.dims = kUnset; }) == "Rotary: dims is not given");
  CHECK(why([](auto& a) { a.rotary.rows = -1; }) == "Rotary: rows is negative");
  CHECK(why([](auto& a) { a.rotary.dims = 0; }) == "Rotary: dims must be even, and at least 2");
  CHECK(why([](auto& a) { a.rotary.dims = 3; }) == "Rotary: dims must be even, and at least 2");
  CHECK(why([](auto& a) { a.rotary.dims = 10; }) == "Rotary: dims is larger than head_dim");
  CHECK(why([](auto& a) { a.rotary.row_stride = -2; }) == "Rotary: row_stride is negative");
  CHECK(why([](auto& a) { a.rotary.cos = shifted(a.rotary.cos, 2); }) ==
        "Rotary: cos is not aligned to its element type");
  CHECK(why([](auto& a) { a.rotary.sin = shifted(a.rotary.sin, 2); }) ==
        "Rotary: sin is not aligned to its element type");
  CHECK(why([](auto& a) { a.rotary.seqlens = shifted(numbers, 2); }) ==
        "Rotary: seqlens is not aligned to 4 bytes");
  CHECK(why([](auto& a) { a.rotary.rows = kKeys - 1; }) ==
        "Rotary: rows is less than kv_len, so that positions would lack angles");
  const Args rotated = good();
  attile::AppendArgs<float, Cached> plain{.k_new = rotated.k_new,
                                          .v_new = rotated.v_new,
                                          .k = rotated.k,
                                          .v = rotated.v,
                                          .batch = kBatch,
                                          .kv_heads = kHeads,
                                          .q_len = kRows,
                                          .kv_len = kKeys,
                                          .head_dim = kDim};
  CHECK(std::string(attile::check_arguments(plain).why).empty());
  plain.q = rotated.q, plain.q_out = rotated.q_out, plain.q_heads = 4;
  CHECK(std::string(attile::check_arguments(plain).why) ==
        "q or q_out is given, and nothing rotates them: the arguments have NoRotary");
}

/// A turn by a quarter, and which elements are pairs.
TEST_CASE("append.pairs") {
  const auto [first, second] = attile::rotate(3, 5, 0, 1);
  CHECK((first == -5 && second == 3));
  const auto is = [](attile::PairOffsets at, int a, int b) {
    return at.first == a && at.second == b;
  };
  Rotary<> halves{.dims = 6};
  CHECK((halves.rotates(2) && !halves.rotates(3)));
  CHECK((is(halves.offsets(0, 1), 0, 3) && is(halves.offsets(2, 1), 2, 5)));
  CHECK((is(halves.offsets(3, 1), 6, 7) && is(halves.offsets(4, 1), 8, 9)));
  CHECK((halves.angle(2, 1) == 7 && !halves.has(-1)));
  halves.dims = 16, halves.rows = 4, halves.row_stride = 20;
  CHECK((is(halves.offsets(4, 4), 4, 12) && is(halves.offsets(8, 4), 16, 20)));
  CHECK((halves.angle(2, 1) == 41 && halves.has(3) && !halves.has(4)));
  const Rotary<> interleaved{.dims = 6, .layout = RotaryLayout::kInterleaved};
  CHECK((is(interleaved.offsets(1, 1), 2, 3) && is(interleaved.offsets(3, 1), 6, 7)));
}

}  // namespace core_append
