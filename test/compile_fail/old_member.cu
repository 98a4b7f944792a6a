// SPDX-License-Identifier: MIT
// promises: attile: a score modifier declares kHasGradient, which was kLearns
#include <attile/forward.cuh>

struct Shift {
  static constexpr bool kLearns = true;

  template <class Real>
  ATTILE_HOST_DEVICE attile::ModifiedScore<Real> operator()(Real s, attile::ScoreIndex,
                                                            attile::Extent) const {
    return {s + Real(1), Real(1)};
  }
};

using Behind = attile::Then<attile::Softcap, Shift>;
cudaError_t run(const attile::ForwardArgs<float, Behind>& args) {
  return attile::forward<64>(args);
}
