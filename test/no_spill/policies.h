// SPDX-License-Identifier: MIT
#pragma once

#include <attile/attile.cuh>

// What the tests of spills compile: default tiles leave every thread enough registers, so ptxas
// must have no spill to tell of. A sample of policies; with ATTILE_TEST_FEW of these the kernels
// with the least registers to spare, and with ATTILE_TEST_FULL all combinations of the library's,
// with the head dimensions and modes that each file names. Of what none names some kernels spill,
// all of them in order (docs/tuning.md).
#ifndef ATTILE_TEST_FEW
#define ATTILE_TEST_FEW 0
#endif

namespace attile::no_spill {

inline constexpr int kSharedKb = arch::shared_kb(arch::kArchitectures[0]);

/// `named.operator()<T, M, S, P>()` names the kernels for these policies, which is what has them
/// compiled; true.
template <class T, class M, class... S, class Named>
bool each_modifier(const Named& named) {
  return ((named.template operator()<T, M, S, NoDropout>() &&
           named.template operator()<T, M, S, PhiloxDropout>()) &&
          ...);
}

template <class T, class... M, class Named>
bool each_policy(const Named& named) {
  return (each_modifier<T, M, NoScoreMod, Softcap, Alibi, AdditiveBias<float>, LearnedBias<float>,
                        Then<Softcap, Alibi>>(named) &&
          ...);
}

/// fp32 has tiles of its own, and takes the most registers where there is the most to do.
template <class Named>
bool each_fp32_policy(const Named& named) {
  bool result =
      named
          .template operator()<float, And<Causal, Document>, Then<Softcap, Alibi>, PhiloxDropout>();
  if constexpr (!ATTILE_TEST_FEW) {
    result &= named.template operator()<float, Causal, NoScoreMod, NoDropout>();
  }
  return result;
}

/// Elements of fp8, which types E have, take registers on their way to a product.
template <class... E, class Named>
bool each_fp8_policy(const Named& named) {
  return ((named.template operator()<E, Causal, NoScoreMod, NoDropout>() &&
           named.template
           operator()<E, And<Causal, Document>, Then<Softcap, Alibi>, PhiloxDropout>()) &&
          ...);
}

/// Both 16-bit types take the same registers: fp16 is a sample throughout.
template <class Named>
bool each_16_bit_policy(const Named& named) {
  using Bf16 = __nv_bfloat16;
  using CausalDocument = And<Causal, Document>;
#if ATTILE_TEST_FULL
  return named.template operator()<__half, SlidingWindow, NoScoreMod, NoDropout>() &&
         named.template operator()<__half, Policies<Causal, Sink<>>, NoScoreMod, NoDropout>() &&
         each_policy<Bf16, NoMask, Causal, SlidingWindow, Prefix, And<SlidingWindow, Prefix>,
                     Document, CausalDocument>(named);
#elif ATTILE_TEST_FEW
  return named.template operator()<Bf16, CausalDocument, Then<Softcap, Alibi>, PhiloxDropout>();
#else
  return named.template operator()<__half, Causal, NoScoreMod, NoDropout>() &&
         named.template operator()<Bf16, CausalDocument, Then<Softcap, Alibi>, PhiloxDropout>();
#endif
}

}  // namespace attile::no_spill
