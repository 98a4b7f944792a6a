// SPDX-License-Identifier: MIT
#pragma once

#include <attile/attile.cuh>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "sim/one_head.h"
#include "sim/suite.h"
#include "support/block_lists.h"
#include "support/catch.h"
#include "support/random.h"

// Block lists whose memory holds anything: kernels read and write what is theirs, and end.

namespace attile_test {

/// Lists in device memory, each in an allocation of its own, of random counts and entries: too
/// large, negative, with `repeats` repeated, and transposed lists that contradict the others.
template <class M>
class WrongLists {
 public:
  WrongLists(int q_len, int kv_len, int seed, bool repeats) {
    mask.q_blocks = attile::ceil_div(q_len, M::kQBlock);
    mask.kv_blocks = attile::ceil_div(kv_len, M::kKvBlock);
    const auto lists = lists_of(mask);
    const int rows = mask.q_blocks, columns = mask.kv_blocks;
    const Random random(static_cast<std::uint64_t>(seed));
    int number = 0;
    for (std::size_t i = 0; i < lists.size(); ++i) {
      const int lines = i < 4 ? rows : columns, room = i < 4 ? columns : rows;
      const bool is_count = i % 2 == 0;
      std::vector<int> list(static_cast<std::size_t>(is_count ? lines : lines * room));
      for (std::size_t at = 0; at < list.size(); ++at) {
        int& x = list[at];
        const double kind = random.uniform(number++);
        const int inside = static_cast<int>(random.uniform(number++) * (room + (is_count ? 1 : 0)));
        constexpr int kAny[] = {-1, -2147483647 - 1, 2147483647, 1 << 24, 65536};
        x = kind < 0.6 ? inside : kAny[static_cast<int>((kind - 0.6) / 0.4 * 5)];
        if (is_count || repeats) continue;
        // Even entries are in partial lists, odd ones in full lists.
        const int own = static_cast<int>(at) % room;
        if (x >= 0 && x < room) x = own % 2 == static_cast<int>(i / 2 % 2) ? own : -1;
      }
      memory_[i] = std::make_unique<example::DeviceArray<int>>(list);
      *lists[i] = memory_[i]->get();
    }
  }

  M mask{};

 private:
  std::array<std::unique_ptr<example::DeviceArray<int>>, 8> memory_;
};

/// Runs a backward pass of several such lists. In order, a kv block whose list repeats rows adds to
/// their dQ again when it may be another's turn: then that is a race, and nothing else.
template <class Traits>
void backward_of_wrong_lists(int rows, int keys) {
  const OneHead<Traits> head(rows, keys, 1.0f);
  for (int seed = 0; seed < (kTestFull ? 8 : 4); ++seed) {
    const bool repeats = seed % 2 == 1;
    const bool may_race = repeats && Traits::kDqMode == attile::DqMode::kInOrder;
    const WrongLists<typename Traits::MaskType> lists(rows, keys, seed, repeats);
    const cudaError_t error = head.try_backward(lists.mask);
    int others = 0;
    for (const sim::Report& report : sim::take_reports()) {
      others += !may_race || report.kind != "race" ? 1 : 0;
      if (others == 1) CHECK(report.kind + ": " + report.text == "");
    }
    CHECK(others == 0);
    if (!may_race) REQUIRE(error == cudaSuccess);
  }
}

/// The same of a forward pass. Each element of O is an average of ones, or 0 where a row sees none.
template <class Traits>
void forward_of_wrong_lists(int rows, int keys) {
  using T = typename Traits::ElementType;
  constexpr int kD = Traits::kD;
  const auto q = filled<T>(static_cast<std::size_t>(rows) * kD, 1.0f);
  const auto kv = filled<T>(static_cast<std::size_t>(keys) * kD, 1.0f);
  const auto o = filled<T>(static_cast<std::size_t>(rows) * kD, 9.0f);
  const auto lse = filled<float>(static_cast<std::size_t>(rows), 9.0f);
  for (int seed = 0; seed < (kTestFull ? 6 : 3); ++seed) {
    const WrongLists<typename Traits::MaskType> lists(rows, keys, seed, true);
    typename Traits::Args args;
    args.q = attile::bhsd<const T>(q.get(), {.rows = rows, .heads = 1, .dim = kD});
    args.k = args.v = attile::bhsd<const T>(kv.get(), {.rows = keys, .heads = 1, .dim = kD});
    args.o = attile::bhsd(o.get(), {.rows = rows, .heads = 1, .dim = kD});
    args.lse = lse.get();
    args.batch = args.q_heads = args.kv_heads = 1;
    args.q_len = rows, args.kv_len = keys, args.head_dim = kD;
    args.mask = lists.mask;
    REQUIRE(attile::forward<Traits>(args) == cudaSuccess);
    CHECK(machine_reports() == "");
    for (const T x : o.download()) {
      const float value = attile::to_float(x);
      REQUIRE((value == 0.0f || (value > 0.99f && value < 1.01f)));
    }
  }
}

}  // namespace attile_test
