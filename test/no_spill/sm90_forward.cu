// SPDX-License-Identifier: MIT
#include <type_traits>

#include "policies.h"

using namespace attile;
using namespace attile::no_spill;

// On other architectures the kernels are empty.
struct NamedKernels {
  template <int D, int Dv, sm90::TileSet kTileSet, class T, class M, class S, class P>
  static constexpr auto kKernel =
      forward_kernel<sm90::DefaultForwardTraits<ForwardArgs<T, M, S, P>, D, Dv, kTileSet>>;

  template <int D, int Dv, class T, class M, class S, class P>
  static constexpr bool each_rows() {
    using enum sm90::TileSet;
    bool result = kKernel<D, Dv, kAny, T, M, S, P> != nullptr;
    if constexpr (ATTILE_TEST_FULL || (std::is_same_v<S, NoScoreMod> && D == 128)) {
      result &= kKernel<D, Dv, kPackedHeads, T, M, S, P> != nullptr;
    }
    if constexpr (ATTILE_TEST_FULL || (std::is_same_v<S, NoScoreMod> && D == 256)) {
      result &= kKernel<D, Dv, kLong, T, M, S, P> != nullptr;
    }
    return result;
  }

  template <class T, class M, class S, class P>
  bool operator()() const {
    bool result = each_rows<128, 128, T, M, S, P>() && each_rows<256, 256, T, M, S, P>();
    if constexpr (ATTILE_TEST_FULL || std::is_same_v<S, NoScoreMod>) {
      result &= each_rows<64, 64, T, M, S, P>() && each_rows<96, 96, T, M, S, P>() &&
                each_rows<192, 128, T, M, S, P>() && each_rows<192, 192, T, M, S, P>();
    }
    return result;
  }
};

bool compiled() {
  using E4m3 = __nv_fp8_e4m3;
  using Bf16 = __nv_bfloat16;
#if ATTILE_TEST_FEW
  // Beside those with every policy the plain ones, and a scheduler's warp that loads Q, too.
  using enum sm90::TileSet;
  using InTeams = ForwardArgs<Bf16, Causal, NoScoreMod, NoDropout, Packed>;
  const bool plain =
      NamedKernels::kKernel<128, 128, kAny, Bf16, Causal, NoScoreMod, NoDropout> != nullptr;
  const bool fp8 = NamedKernels::kKernel<128, 128, kAny, Elements<E4m3, E4m3, E4m3, Bf16>, Causal,
                                         NoScoreMod, NoDropout> != nullptr;
  return plain && fp8 && forward_kernel<sm90::DefaultForwardTraits<InTeams, 64>> != nullptr &&
         each_16_bit_policy(NamedKernels{});
#else
  using Sinks = ForwardArgs<Bf16, Causal, NoScoreMod, NoDropout, Uniform, Sink<>>;
  using SinkTraits = sm90::DefaultForwardTraits<Sinks, 64, 64, sm90::TileSet::kLong>;
  // Their scheduler's warp loads Q of a team, too.
  using InTeams = ForwardArgs<Bf16, Causal, NoScoreMod, NoDropout, Packed>;
  using Documents = ForwardArgs<Bf16, NoMask, NoScoreMod, NoDropout, PackedBatches>;
  // Their warp for elements copies those at a sequence's end.
  using OwnElements = ForwardArgs<Bf16, Causal, AdditiveBias<Bf16>, PhiloxDropout, Padded>;
  const bool packed =
      forward_kernel<sm90::DefaultForwardTraits<InTeams, 64>> != nullptr &&
      forward_kernel<sm90::DefaultForwardTraits<Documents, 64>> != nullptr &&
      forward_kernel<sm90::DefaultForwardTraits<OwnElements, 64, 64, sm90::TileSet::kElements>> !=
          nullptr;
  return packed && forward_kernel<SinkTraits> != nullptr && each_16_bit_policy(NamedKernels{}) &&
         each_fp8_policy<Elements<E4m3, E4m3, E4m3, Bf16>,
                         Elements<E4m3, E4m3, E4m3, Bf16, Fp8Sums::kUnpromoted>>(NamedKernels{});
#endif
}
