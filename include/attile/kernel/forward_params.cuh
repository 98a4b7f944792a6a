// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/math.h>
#include <attile/core/status.h>
#include <attile/kernel/problem.cuh>

#include <cstdint>

namespace attile {

/// The one argument of a forward kernel: the problem, and how its rows are cut into tiles.
template <class Traits>
struct ForwardParams : Problem<Traits> {
  int q_tiles;  ///< of each sequence and head

  /// Tiles of query rows, of all sequences and heads.
  static std::int64_t tile_count(const typename Traits::Args& args) {
    return std::int64_t{args.batch} * args.q_heads * ceil_div(args.q_len, Traits::kBr);
  }

  /// Of arguments that passed `check_arguments`; the rest is `complete`'s.
  explicit ForwardParams(const typename Traits::Args& args)
      : Problem<Traits>(args), q_tiles(ceil_div(args.q_len, Traits::kBr)) {}

  /// What a family adds that can fail, or why its kernel does not take the arguments.
  [[nodiscard]] Check complete(const typename Traits::Args&) { return {}; }
};

}  // namespace attile
