// SPDX-License-Identifier: MIT
#pragma once

#include <attile/flash1.cuh>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "support/gpu_executor.h"
#include "support/suite_cases.h"

namespace attile_test {

namespace flash1 = attile::flash1;
using attile::portable::Tuning;
using attile::portable::TuningValues;

/// l, m and the state of the random numbers, filled with NaN, each with a guard behind it.
class StateMemory {
 public:
  template <class Args>
  explicit StateMemory(const Args& a)
      : l_(bytes_of(a)), m_(bytes_of(a)), rng_(2 * sizeof(std::uint64_t)) {}

  flash1::State state() const {
    return {static_cast<float*>(l_.get()), static_cast<float*>(m_.get()),
            static_cast<std::uint64_t*>(rng_.get())};
  }
  cudaError_t check() const {
    for (const GuardedWorkspace* part : {&l_, &m_, &rng_}) {
      if (const auto error = part->check()) return error;
    }
    return cudaSuccess;
  }

 private:
  template <class Args>
  static std::size_t bytes_of(const Args& a) {
    const attile::RowShape shape = a.sequences.q_shape(a.batch, a.q_len);
    return sizeof(float) * shape.batches * a.q_heads * shape.rows;
  }

  GuardedWorkspace l_, m_, rng_;
};

/// Dropout that draws from the saved state alone.
inline attile::PhiloxDropout from_state(const attile::PhiloxDropout& dropout,
                                        const flash1::State& state) {
  return {.probability = dropout.probability,
          .seed_pointer = state.rng,
          .offset_pointer = state.rng + 1};
}
inline attile::NoDropout from_state(const attile::NoDropout&, const flash1::State&) { return {}; }

/// kBr = 0: the default tiles.
template <int kD, int kAbove = 0, int kBr = 0, int kBc = 0>
struct Flash1Executor {
  static constexpr bool kRepeatsBackward = true;

  template <class Args>
  struct Tiles {
    using E = typename Args::Elements;
    using P = typename Args::Policies;
    using S = attile::NoScoreMod;
    using D = attile::NoDropout;
    using Forward =
        flash1::ForwardTraits<kBr, kBc, kD, E, P, S, D, kD, Tuning<TuningValues{.threads = 128}>>;
    using Backward =
        flash1::BackwardTraits<kBr, kBc, kD, E, P, S, D, kD, Tuning<TuningValues{.threads = 128}>>;
  };
  template <class Args>
  struct Defaults {
    using Forward = flash1::DefaultForwardTraits<Args, kD>;
    using Backward = flash1::DefaultBackwardTraits<Args, kD>;
  };
  template <class Args>
  using Choice = std::conditional_t<kBr == 0, Defaults<Args>, Tiles<Args>>;

  bool takes(const Case& c) const {
    const int v = c.head_dim_v > 0 ? c.head_dim_v : c.head_dim;
    const int most = c.head_dim > v ? c.head_dim : v;
    return most <= kD && most > kAbove && !has_sums(c);
  }

  template <class Args>
  static cudaError_t run_forward(const Args& args, const flash1::State& state) {
    using Traits = typename Choice<Args>::Forward;
    return with_workspace([&](void* workspace, std::size_t& bytes) {
      return flash1::forward<Traits>(workspace, bytes, args, state);
    });
  }

  template <class Args>
  attile::Check forward(const Args& host_args, const std::vector<Region>& regions) const {
    return run_on_device(host_args, regions, [](const Args& args) {
      const StateMemory memory(args);
      if (const auto error = run_forward(args, memory.state())) return error;
      return memory.check();
    });
  }

  template <class Args>
  attile::Check backward(const Args& host_args, const std::vector<Region>& regions) const {
    using T = typename Args::ElementType;
    using Traits = typename Choice<Args>::Backward;
    return run_on_device(host_args, regions, [](Args args) {
      const StateMemory memory(args);
      const int dim = attile::head_dims(args, 0, 0).v;
      const attile::RowShape shape = args.sequences.q_shape(args.batch, args.q_len);
      const GuardedWorkspace o(sizeof(T) * shape.batches * args.q_heads * shape.rows * dim);
      if (const auto error =
              run_forward(forward_of(args, static_cast<T*>(o.get())), memory.state())) {
        return error;
      }
      args.lse = nullptr;  // l and m take its place
      args.dropout = from_state(args.dropout, memory.state());
      if (const auto error = with_workspace([&](void* workspace, std::size_t& bytes) {
            return flash1::backward<Traits>(workspace, bytes, args, memory.state());
          })) {
        return error;
      }
      return memory.check();
    });
  }
};

}  // namespace attile_test
