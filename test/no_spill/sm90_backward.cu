// SPDX-License-Identifier: MIT
#include <type_traits>

#include "policies.h"

using namespace attile;
using namespace attile::no_spill;

// On other architectures the kernels are empty.
struct NamedKernels {
  template <int D, DqMode kMode, class T, class M, class S, class P>
  static constexpr auto kKernel =
      detail::kv_kernel<sm90::DefaultBackwardTraits<BackwardArgs<T, M, S, P>, D, D, kMode>>();

  template <class T, class M, class S, class P>
  bool operator()() const {
    bool result = kKernel<64, DqMode::kAccumulate, T, M, S, P> != nullptr &&
                  kKernel<128, DqMode::kInOrder, T, M, S, P> != nullptr &&
                  kKernel<256, DqMode::kAccumulate, T, M, S, P> != nullptr;
    if constexpr (!ATTILE_TEST_FEW) {
      result &= kKernel<128, DqMode::kAccumulate, T, M, S, P> != nullptr;
      using Args = BackwardArgs<T, M, S, P>;
      if constexpr (detail::kHasBackwardColumns<Args, 64, 64>) {
        constexpr auto kSet = sm90::TileSet::kColumns;
        using Columns = sm90::DefaultBackwardTraits<Args, 64, 64, DqMode::kAccumulate, kSet>;
        result &= detail::kv_kernel<Columns>() != nullptr;
      }
      if constexpr (ATTILE_TEST_FULL || std::is_same_v<S, NoScoreMod>) {
        result &= kKernel<96, DqMode::kAccumulate, T, M, S, P> != nullptr &&
                  kKernel<64, DqMode::kInOrder, T, M, S, P> != nullptr;
        result &= kKernel<192, DqMode::kAccumulate, T, M, S, P> != nullptr;
      }
    }
    return result;
  }
};

bool compiled() { return each_16_bit_policy(NamedKernels{}); }
