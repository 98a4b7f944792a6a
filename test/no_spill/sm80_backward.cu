// SPDX-License-Identifier: MIT
#include "policies.h"

using namespace attile;
using namespace attile::no_spill;

struct NamedKernels {
  template <int D, class T, class M, class S, class P, DqMode kMode>
  using Traits = sm80::DefaultBackwardTraits<BackwardArgs<T, M, S, P>, D, D, kMode, kSharedKb>;

  template <int D, class T, class M, class S, class P>
  static bool named() {
    return backward_columns_kernel<Traits<D, T, M, S, P, DqMode::kAccumulate>> != nullptr &&
           backward_in_order_kernel<Traits<D, T, M, S, P, DqMode::kInOrder>> != nullptr;
  }

  template <class T, class M, class S, class P>
  bool operator()() const {
    return named<64, T, M, S, P>() && named<128, T, M, S, P>() && named<256, T, M, S, P>();
  }
};

bool compiled() { return each_16_bit_policy(NamedKernels{}); }
