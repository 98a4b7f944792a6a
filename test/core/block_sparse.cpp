// SPDX-License-Identifier: MIT
#include <attile/core/block_lists.h>
#include <attile/core/block_sparse.h>
#include <attile/host.h>

#include <cstddef>
#include <string>
#include <vector>

#include "support/block_lists.h"
#include "support/catch.h"
#include "support/masks.h"

namespace {

using namespace attile;
using namespace attile_test;

/// Makes lists of a mask, and asks them about every score and every block.
template <int QBlock, int KvBlock, class M>
void check_lists(const M& inner, Extent e) {
  const ScoreShape shape{1, 2, e};
  BlockSparse<M, QBlock, KvBlock> mask;
  std::size_t bytes = 0;
  REQUIRE(host::prepare_block_lists(nullptr, bytes, inner, shape, mask));
  REQUIRE(bytes > 0);
  std::vector<int> memory(bytes / sizeof(int) + 1, -7);
  REQUIRE(host::prepare_block_lists(memory.data(), bytes, inner, shape, mask));
  CHECK(mask.fault(shape, true) == nullptr);
  for (int head = 0; head < 2; ++head) {
    for (int row = 0; row < e.q_len; ++row) {
      for (int col = 0; col < e.kv_len; ++col) {
        const ScoreIndex at{0, head, row, col};
        if (mask.visible(at, e) != inner.visible(at, e)) {
          FAIL("score " << row << ", " << col << " of " << e.q_len << " x " << e.kv_len);
        }
      }
    }
    for (int row = 0; row < mask.q_blocks; ++row) {
      for (int col = 0; col < mask.kv_blocks; ++col) {
        int shown = 0, hidden = 0;
        for (int i = row * QBlock; i < min((row + 1) * QBlock, e.q_len); ++i) {
          for (int j = col * KvBlock; j < min((col + 1) * KvBlock, e.kv_len); ++j) {
            ++(inner.visible({0, head, i, j}, e) ? shown : hidden);
          }
        }
        const BlockList of_row = mask.listed_columns(0, head, row);
        const BlockList of_column = mask.listed_rows(0, head, col);
        REQUIRE(of_row.has_full(col) == (shown > 0 && hidden == 0));
        REQUIRE(of_row.has_partial(col) == (shown > 0 && hidden > 0));
        REQUIRE(of_column.has_full(row) == of_row.has_full(col));
        REQUIRE(of_column.has_partial(row) == of_row.has_partial(col));
      }
    }
  }
}

TEST_CASE("block_sparse.prepared_lists_say_what_the_mask_says") {
  const auto check = [](const auto& mask) {
    for (const Extent e : {Extent{130, 200}, {64, 64}, {1, 70}, {129, 65}, {0, 3}, {5, 0}}) {
      check_lists<64, 64>(mask, e);
      check_lists<64, 128>(mask, e);
    }
  };
  check(NoMask{});
  check(Causal{});
  check(SlidingWindow{3, 70});
  check(Prefix{100, nullptr});
  visit_other_masks(check);
}

TEST_CASE("block_sparse.full_blocks_do_not_ask_the_inner_mask") {
  BlockLists lists{1, 1, 2, 2};
  lists.fill([](int, int, int row, int col) {
    return row == 0 ? BlockLists::kFull : col == 0 ? BlockLists::kPartial : BlockLists::kNone;
  });
  BlockSparse<Causal, 64, 64> mask;
  lists.describe(mask);
  const Extent e{128, 128};
  CHECK(mask.visible({0, 0, 0, 127}, e));
  CHECK(mask.visible({0, 0, 64, 63}, e));
  CHECK(!mask.visible({0, 0, 127, 64}, e));
  CHECK(mask.listed_columns(0, 0, 0).steps(4).full_first == 0);
  CHECK(mask.listed_columns(0, 0, 0).steps(4).last == 8);
  CHECK(mask.listed_columns(0, 0, 1).steps(4).full_first == 4);
  CHECK(mask.listed_columns(0, 0, 1).steps(4).last == 4);
}

TEST_CASE("block_sparse.wrong_counts_and_entries_name_no_block") {
  const int count = 100, negative = -3, entries[] = {1, -1, 1 << 30};
  const BlockList list{&count, entries, &negative, entries, 3};
  const TileRange steps = list.steps(2);
  CHECK(steps.full_first == 6);
  CHECK(steps.last == 6);
  CHECK(list.tile(2, steps, 0) == 2);
  CHECK(list.tile(2, steps, 1) == 3);
  for (const int step : {2, 3, 4, 5}) CHECK(list.tile(2, steps, step) >= 6);
  CHECK(list.has(1));
  CHECK(!list.has(0));
}

TEST_CASE("block_sparse.faults_are_refused") {
  using Blocks = BlockSparse<Causal>;
  BlockLists lists{2, 1, 2, 3};
  lists.fill([](int, int, int, int) { return BlockLists::kFull; });
  Blocks good;
  lists.describe(good);
  const ScoreShape shape{2, 4, {200, 300}};
  const auto why = [&](auto change, bool is_backward = true) {
    Blocks mask = good;
    change(mask);
    const char* text = mask.fault(shape, is_backward);
    return std::string(text == nullptr ? "" : text);
  };
  CHECK(why([](Blocks&) {}) == "");
  CHECK(why([](Blocks& m) { m.batches = 3; }) == "BlockSparse: batches must be 1 or batch");
  CHECK(why([](Blocks& m) { m.heads = 2; }) == "BlockSparse: heads must be 1 or q_heads");
  CHECK(why([](Blocks& m) { m.q_blocks = 1; }) ==
        "BlockSparse: q_blocks are fewer than q_len takes");
  CHECK(why([](Blocks& m) { m.kv_blocks = 2; }) ==
        "BlockSparse: kv_blocks are fewer than kv_len takes");
  CHECK(why([](Blocks& m) { m.kv_blocks = 1 << 23; }) == "");
  CHECK(why([](Blocks& m) { m.kv_blocks = (1 << 23) + 1; }) ==
        "BlockSparse: q_blocks and kv_blocks must not hold more than 2^30 rows or columns");
  CHECK(why([](Blocks& m) { m.kv_indices = nullptr; }) ==
        "BlockSparse: kv_num_blocks and kv_indices must not be null");
  CHECK(why([](Blocks& m) { m.q_num_blocks = nullptr; }) ==
        "BlockSparse: a backward pass needs q_num_blocks and q_indices");
  CHECK(why([](Blocks& m) { m.q_num_blocks = m.q_indices = nullptr; }, false) == "");
  CHECK(why([](Blocks& m) { m.full_kv_indices = nullptr; }) ==
        "BlockSparse: full_*_num_blocks and full_*_indices are both given or both null");
  CHECK(why([](Blocks& m) { m.full_q_num_blocks = m.full_q_indices = nullptr; }) ==
        "BlockSparse: a backward pass needs full_q_* where full_kv_* are given, and not else");

  BackwardArgs<float, Blocks> args{
      .batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = 200, .kv_len = 300, .head_dim = 8};
  args.mask = good;
  args.mask.heads = 3;
  CHECK(check_arguments(args, 0, 0).why == std::string("BlockSparse: heads must be 1 or q_heads"));
}

TEST_CASE("block_sparse.lists_that_cannot_be_made_are_refused") {
  const auto why = [](const ScoreShape& shape, const auto& inner) {
    const char* const text = check_block_lists(inner, shape, 128, 64).why;
    return std::string(text == nullptr ? "" : text);
  };
  CHECK(why({2, 3, {300, 200}}, Causal()) == "");
  CHECK(why({0, 1, {0, 0}}, Causal()) == "");
  CHECK(why({-1, 1, {1, 1}}, Causal()) == "the shape of the scores has a negative size");
  CHECK(why({1, 1, {1, -1}}, Causal()) == "the shape of the scores has a negative size");
  CHECK(why({1, 0, {1, 1}}, Causal()) == "heads must be at least 1: 1 for lists in common");
  CHECK(why({1, 1, {1, (1 << 30) + 1}}, Causal()) == "q_len and kv_len must be at most 2^30");
  const std::string many = "block lists must have at most 2^33 blocks, of at most 2^31 - 1 heads";
  CHECK(why({1, 1 << 10, {128 << 10, 64 << 13}}, Causal()) == "");
  CHECK(why({1, (1 << 10) + 1, {128 << 10, 64 << 13}}, Causal()) == many);
  CHECK(why({1 << 20, 1 << 12, {0, 0}}, Causal()) == many);
  CHECK(why({1, 1, {1, 1}}, KeyPadding()) != "");
}

TEST_CASE("block_sparse.tiles_fit_the_blocks") {
  using Blocks = BlockSparse<NoMask, 64, 192>;
  CHECK(fitting_rows<Blocks>(192) == 64);
  CHECK(fitting_columns<Blocks>(128) == 64);
  CHECK(fitting_columns<Blocks>(80) == 64);
  CHECK(fitting_columns<Blocks>(48) == 48);
  CHECK(fitting_rows<Causal>(192) == 192);
  CHECK(fitting_rows<BlockSparse<NoMask, 384, 64>>(192) == 192);
}

}  // namespace
