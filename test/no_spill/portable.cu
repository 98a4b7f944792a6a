// SPDX-License-Identifier: MIT
#include "policies.h"

using namespace attile;
using namespace attile::no_spill;

/// Names the kernels with the tiles that the one call takes on every device. Those of 64 columns,
/// and the larger ones for 227 KB, spill up to 164 bytes (bench/log/tuning-portable.md).
template <class T, class M>
bool named() {
  using Forward = portable::DefaultForwardTraits<ForwardArgs<T, M>, 128>;
  using Args = BackwardArgs<T, M>;
  using Accumulating = portable::DefaultBackwardTraits<Args, 128, 128, DqMode::kAccumulate>;
  using InOrder = portable::DefaultBackwardTraits<Args, 128, 128, DqMode::kInOrder>;
  using TwoPass = portable::DefaultBackwardTraits<Args, 128, 128, DqMode::kTwoPass>;
  bool result = forward_kernel<Forward> != nullptr && backward_kv_kernel<InOrder> != nullptr &&
                portable::backward_q_kernel<TwoPass> != nullptr;
  if constexpr (!ATTILE_TEST_FEW) {
    result &= backward_kv_kernel<Accumulating> != nullptr && backward_kv_kernel<TwoPass> != nullptr;
  }
  return result;
}

bool compiled() {
#if ATTILE_TEST_FULL
  if (!named<float, NoMask>()) return false;
#endif
  return named<float, Causal>();
}
