// SPDX-License-Identifier: MIT
// Default tiles leave every thread enough registers: what ptxas says of these kernels must have no
// spill. A sample of policies; with ATTILE_TEST_FULL all combinations of the library's.
#include <attile/attile.cuh>

namespace {

using namespace attile;

constexpr int kSharedKb = arch::shared_kb(arch::kArchitectures[0]);

template <int D, class T, class M, class S, class P>
using Kernel = sm80::DefaultForwardTraits<ForwardArgs<T, M, S, P>, D, D, kSharedKb>;

/// Naming a kernel is what has it compiled.
template <class T, class M, class S, class P>
bool each_dim() {
  return forward_kernel<Kernel<64, T, M, S, P>> != nullptr &&
         forward_kernel<Kernel<128, T, M, S, P>> != nullptr &&
         forward_kernel<Kernel<256, T, M, S, P>> != nullptr;
}

using SoftcapAlibi = Then<Softcap, Alibi>;
using CausalDocument = And<Causal, Document>;

template <class T, class M, class... S>
bool each_modifier() {
  return ((each_dim<T, M, S, NoDropout>() && each_dim<T, M, S, PhiloxDropout>()) && ...);
}

template <class T, class... M>
bool each_policy() {
  return (each_modifier<T, M, NoScoreMod, Softcap, Alibi, AdditiveBias<float>, SoftcapAlibi>() &&
          ...);
}

}  // namespace

// Both 16-bit types take the same registers: fp16 is a sample throughout, and fp32 one of its own.
bool compiled() {
  return each_dim<__half, SlidingWindow, NoScoreMod, NoDropout>() &&
         each_dim<float, Causal, NoScoreMod, NoDropout>() &&
#if ATTILE_TEST_FULL
         each_policy<__nv_bfloat16, NoMask, Causal, SlidingWindow, Prefix,
                     And<SlidingWindow, Prefix>, Document, CausalDocument>();
#else
         each_dim<__nv_bfloat16, Causal, NoScoreMod, NoDropout>() &&
         each_dim<__nv_bfloat16, Causal, AdditiveBias<float>, NoDropout>() &&
         each_dim<__nv_bfloat16, CausalDocument, SoftcapAlibi, PhiloxDropout>();
#endif
}
