// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/block_sparse.h>

#include <array>
#include <cstddef>
#include <vector>

namespace attile_test {

/// The lists of a BlockSparse, those of columns first.
template <class M, int QBlock, int KvBlock>
std::array<const int**, 8> lists_of(attile::BlockSparse<M, QBlock, KvBlock>& m) {
  return {&m.kv_num_blocks, &m.kv_indices, &m.full_kv_num_blocks, &m.full_kv_indices,
          &m.q_num_blocks,  &m.q_indices,  &m.full_q_num_blocks,  &m.full_q_indices};
}

/// Block lists in memory of their own, each in no order, with entries behind its end that nobody
/// may follow.
struct BlockLists {
  enum State { kNone, kPartial, kFull };

  int batches = 0, heads = 0, q_blocks = 0, kv_blocks = 0;
  std::array<std::vector<int>, 8> lists{};  ///< in the order of lists_of

  std::vector<std::vector<int>*> all() {
    std::vector<std::vector<int>*> result;
    for (auto& list : lists) result.push_back(&list);
    return result;
  }
  template <class M>
  void describe(M& m) const {
    m.batches = batches, m.heads = heads, m.q_blocks = q_blocks, m.kv_blocks = kv_blocks;
    const auto of_mask = lists_of(m);
    for (std::size_t i = 0; i < lists.size(); ++i) *of_mask[i] = lists[i].data();
  }

  /// Makes the lists of blocks whose state `state(batch, head, row, column)` returns.
  template <class F>
  void fill(const F& state) {
    const std::size_t lines = std::size_t(batches) * heads;
    for (int i = 0; i < 8; ++i) {
      const bool is_count = i % 2 == 0;
      const std::size_t own = lines * (i < 4 ? q_blocks : kv_blocks);
      lists[i].assign(is_count ? own : own * (i < 4 ? kv_blocks : q_blocks), is_count ? 0 : -9);
    }
    for (int b = 0; b < batches; ++b) {
      for (int h = 0; h < heads; ++h) {
        // From the last to the first column, from the first to the last row.
        for (int row = 0; row < q_blocks; ++row) {
          for (int col = kv_blocks - 1; col >= 0; --col) {
            const State here = state(b, h, row, col);
            if (here == kNone) continue;
            const int list = here == kPartial ? 0 : 2;
            const std::size_t of_head = std::size_t(b) * heads + h;
            add(list, of_head * q_blocks + row, kv_blocks, col);
            add(4 + list, of_head * kv_blocks + col, q_blocks, row);
          }
        }
      }
    }
  }

 private:
  void add(int list, std::size_t line, int room, int block) {
    int& count = lists[list][line];
    lists[list + 1][line * room + count++] = block;
  }
};

}  // namespace attile_test
