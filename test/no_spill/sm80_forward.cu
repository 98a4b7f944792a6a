// SPDX-License-Identifier: MIT
#include <type_traits>

#include "policies.h"

using namespace attile;
using namespace attile::no_spill;

struct NamedKernels {
  template <int D, class T, class M, class S, class P>
  static constexpr auto kKernel =
      forward_kernel<sm80::DefaultForwardTraits<ForwardArgs<T, M, S, P>, D, D, kSharedKb>>;

  template <class T, class M, class S, class P>
  bool operator()() const {
    // What does the least has the fewest registers: of the sample one kernel.
    bool result = kKernel<128, T, M, S, P> != nullptr;
    if constexpr (ATTILE_TEST_FULL || (!ATTILE_TEST_FEW && !std::is_same_v<S, NoScoreMod>)) {
      result &= kKernel<64, T, M, S, P> != nullptr && kKernel<256, T, M, S, P> != nullptr;
    }
    return result;
  }
};

/// Names the kernels that read a bias by columns, or copy its elements.
template <int D, class M, detail::TileSet kSet>
bool reads() {
  using Args = ForwardArgs<__half, M, AdditiveBias<__half>>;
  if constexpr (detail::kHasSm80Set<Args, D, D, kSharedKb, kSet>) {
    return forward_kernel<sm80::DefaultForwardTraits<Args, D, D, kSharedKb, kSet>> != nullptr;
  }
  return true;
}

bool compiled() {
  using enum detail::TileSet;
  const NamedKernels named;
  using E4m3 = __nv_fp8_e4m3;
  using E5m2 = __nv_fp8_e5m2;
  using Bf16 = __nv_bfloat16;
#if ATTILE_TEST_FEW
  return reads<128, NoMask, kElements>() && each_fp32_policy(named) && each_16_bit_policy(named) &&
         NamedKernels::kKernel<128, Elements<E4m3, E4m3, E4m3, Bf16>, And<Causal, Document>,
                               Then<Softcap, Alibi>, PhiloxDropout> != nullptr;
#else
  return reads<64, NoMask, kColumns>() && reads<64, Causal, kElements>() &&
         reads<128, Causal, kColumns>() && reads<128, NoMask, kElements>() &&
         each_fp32_policy(named) && each_16_bit_policy(named) &&
         each_fp8_policy<Elements<Bf16, E4m3, E4m3>, Elements<E4m3, E4m3, E4m3, Bf16>,
                         Elements<E5m2, E5m2, __half, __half>>(named);
#endif
}
