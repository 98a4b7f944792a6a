// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/math.h>
#include <attile/core/status.h>
#include <attile/kernel/problem/problem.cuh>

#include <cstddef>
#include <cstdint>

namespace attile {

/// Holds the one argument of a forward kernel: the problem, and how its rows are cut into tiles.
template <class Traits>
struct ForwardParams : Problem<Traits> {
  int q_tiles;  ///< the tiles of q_len rows

  /// Returns the number of slots of tiles of query rows (TileSlots), of all query heads.
  static std::int64_t tile_count(const typename Traits::Args& args) {
    return QSlots<Traits>(args.sequences, args.batch, args.q_len).count() * args.q_heads;
  }

  /// Takes arguments that passed `check_arguments`; `complete` does the rest.
  explicit ForwardParams(const typename Traits::Args& args)
      : Problem<Traits>(args), q_tiles(ceil_div(args.q_len, Traits::kBr)) {}

  /// Returns the bytes of scratch memory of a call. None is needed, but a persistent kernel with
  /// sequences of their own lengths, or with a mask under which that pays, takes it for a counter,
  /// by which blocks share the work evenly.
  static std::size_t workspace_bytes(const typename Traits::Args&) { return 16; }
  /// Takes the scratch memory of a call. Returns how many bytes of it the kernel wants to be 0.
  std::size_t use(void*) { return 0; }

  /// Adds what a family needs and can fail; returns why its kernel does not take the arguments.
  [[nodiscard]] Check complete([[maybe_unused]] const typename Traits::Args& args) {
    if constexpr (requires { Traits::check_reads(args.score_mod); }) {
      return Traits::check_reads(args.score_mod);
    } else {
      return {};
    }
  }
};

}  // namespace attile
