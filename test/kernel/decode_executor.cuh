// SPDX-License-Identifier: MIT
#pragma once

#include <attile/decode.cuh>

#include <cstddef>
#include <vector>

#include "kernel/suite_executor.cuh"

namespace attile_test {

/// How a decode kernel of the suite splits keys: kFixed parts have one step of its keys each.
using SplitKind = attile::Splits::Kind;

/// Kernels of the family sm80 for few rows.
template <int Br, int Bc, class Tuning = attile::sm80::DecodeTuning<>>
struct DecodeTiles {
  template <class Args, class Dim>
  using Forward = attile::sm80::DecodeTraits<Br, Bc, Dim::D, typename Args::Elements,
                                             typename Args::Policies, Dim::Dv, Tuning>;
};

// Key groups of warps, with two stages.
using TwoGroupsOfTwo = attile::sm80::DecodeTuning<attile::sm80::DecodeTuningValues{
    .warps = 4, .key_groups = 2, .stages = 2}>;
using OneGroupOfTwo = attile::sm80::DecodeTuning<attile::sm80::DecodeTuningValues{
    .warps = 2, .key_groups = 1, .stages = 2}>;

/// The default tiles for devices on which a block can have that many KB.
template <int kSharedKb>
struct DefaultDecodeTiles {
  template <class Args, class Dim>
  using Forward = attile::sm80::DefaultDecodeTraits<Args, Dim::D, Dim::Dv, kSharedKb>;
};

/// Whether a second call would go on from the first one's result.
template <class Args>
bool is_in_place(const Args& args) {
  if constexpr (attile::kIsEarlierKeys<typename Args::SinkType>) {
    return static_cast<const void*>(args.o.data) == args.sink.o.data;
  }
  return false;
}

/// Runs decode kernels for the suite. Scratch memory has NaN where nothing has to be ready, and is
/// used twice in a row.
template <class Dim, class TileChoice, SplitKind kSplits>
struct DecodeExecutor {
  static constexpr bool kRepeatsBackward = false;
  static constexpr int kTf32Products = Dim::kTf32Products;

  bool takes(const Case& c) const { return Dim::take(c); }

  template <class Args>
  attile::Check forward(Args host_args, const std::vector<Region>& regions) const {
    using Traits = typename TileChoice::template Forward<Args, Dim>;
    if constexpr (kSplits == SplitKind::kFill) host_args.splits = attile::Splits::fill();
    if constexpr (kSplits == SplitKind::kFixed) {
      host_args.splits = attile::Splits::fixed(Traits::kBc);
    }
    if (const attile::Check check = attile::check<Traits>(host_args); !check) return check;
    return run_on_device(host_args, regions, [](const Args& args) {
      if constexpr (kSplits == SplitKind::kNone) return attile::forward<Traits>(args);
      return with_workspace([&](void* workspace, std::size_t& bytes) {
        if (workspace == nullptr) return attile::forward<Traits>(workspace, bytes, args);
        if (const auto error = attile::reset_workspace(workspace, bytes)) return error;
        const auto error = attile::forward<Traits>(workspace, bytes, args);
        if (error != cudaSuccess || is_in_place(args)) return error;
        return attile::forward<Traits>(workspace, bytes, args);
      });
    });
  }
};

/// The one call, with whatever kernel it chooses. Fixed parts have kFixedKeys keys.
template <class Dim, SplitKind kSplits>
struct DecodeCall {
  static constexpr bool kRepeatsBackward = false;
  static constexpr int kTf32Products = Dim::kTf32Products;
  static constexpr int kFixedKeys = 512;  ///< a multiple of every default Bc

  bool takes(const Case& c) const { return Dim::take(c); }

  template <class Args>
  attile::Check forward(Args host_args, const std::vector<Region>& regions) const {
    using attile::Splits;
    if constexpr (kSplits == SplitKind::kFill) host_args.splits = Splits::fill();
    if constexpr (kSplits == SplitKind::kFixed) host_args.splits = Splits::fixed(kFixedKeys);
    if (const auto check = attile::check_decode<Dim::D, Dim::Dv>(host_args); !check) return check;
    return run_on_device(host_args, regions, [](const Args& args) {
      if constexpr (kSplits == SplitKind::kNone) return attile::decode<Dim::D, Dim::Dv>(args);
      return with_workspace([&](void* workspace, std::size_t& bytes) {
        const auto call = [&] { return attile::decode<Dim::D, Dim::Dv>(workspace, bytes, args); };
        if (workspace == nullptr) return call();
        if (const auto error = attile::reset_workspace(workspace, bytes)) return error;
        return call();
      });
    });
  }
};

template <class Dim, class TileChoice, SplitKind kSplits, attile::Element T, Policy kPolicy>
struct KernelsOf<DecodeExecutor<Dim, TileChoice, kSplits>, T, kPolicy> {
  using Forward = typename TileChoice::template Forward<ForwardArgsOf<T, kPolicy>, Dim>;
};

}  // namespace attile_test
