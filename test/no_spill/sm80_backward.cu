// SPDX-License-Identifier: MIT
#include <type_traits>

#include "policies.h"

using namespace attile;
using namespace attile::no_spill;

struct NamedKernels {
  template <int D, class T, class M, class S, class P, DqMode kMode>
  using Traits = sm80::DefaultBackwardTraits<BackwardArgs<T, M, S, P>, D, D, kMode, kSharedKb>;

  template <int D, class T, class M, class S, class P>
  static bool named() {
    bool result = true;
    // Of the sample one policy takes one way to add dQ, and the other the other.
    constexpr bool kAccumulates = ATTILE_TEST_FULL || std::is_same_v<S, NoScoreMod>;
    constexpr bool kInOrder = ATTILE_TEST_FULL || !kAccumulates;
    if constexpr (kAccumulates && detail::kSm80Backward<T, DqMode::kAccumulate, D, kSharedKb>) {
      result = backward_kv_kernel<Traits<D, T, M, S, P, DqMode::kAccumulate>> != nullptr;
    }
    // Of fp32 the largest tiles for 163 KB are left out: 4 to 12 bytes (docs/tuning.md).
    if constexpr (kInOrder && (sizeof(T) == 2 || D <= 128 || kSharedKb > 163)) {
      result &= backward_in_order_kernel<Traits<D, T, M, S, P, DqMode::kInOrder>> != nullptr;
    }
    return result;
  }

  template <class T, class M, class S, class P>
  bool operator()() const {
    bool result = named<128, T, M, S, P>();
    if constexpr (!ATTILE_TEST_FEW || sizeof(T) == 2) {
      result &= named<256, T, M, S, P>();
    }
    if constexpr (!ATTILE_TEST_FEW) {
      result &= named<64, T, M, S, P>();
    }
    return result;
  }
};

/// Names the kernels that read a bias by columns, or copy its elements.
template <int D, class M, detail::TileSet kSet>
bool reads() {
  using Args = BackwardArgs<__half, M, AdditiveBias<__half>>;
  using Traits = sm80::DefaultBackwardTraits<Args, D, D, DqMode::kAccumulate, kSharedKb, kSet>;
  return backward_kv_kernel<Traits> != nullptr;
}

bool compiled() {
  using enum detail::TileSet;
  const NamedKernels named;
#if ATTILE_TEST_FEW
  return reads<64, NoMask, kColumns>() && each_fp32_policy(named) && each_16_bit_policy(named);
#else
  return reads<64, NoMask, kColumns>() && reads<64, Causal, kElements>() &&
         reads<128, Causal, kColumns>() && reads<128, NoMask, kElements>() &&
         each_fp32_policy(named) && each_16_bit_policy(named);
#endif
}
