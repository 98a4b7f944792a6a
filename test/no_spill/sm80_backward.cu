// SPDX-License-Identifier: MIT
// Default tiles leave every thread enough registers: what ptxas says of these kernels must have no
// spill. A sample of policies; with ATTILE_TEST_FULL all combinations of the library's.
#include <attile/attile.cuh>

namespace {

using namespace attile;

constexpr int kSharedKb = arch::shared_kb(arch::kArchitectures[0]);

template <int D, class T, class M, class S, class P, DqMode kMode>
using Kernel = sm80::DefaultBackwardTraits<BackwardArgs<T, M, S, P>, D, D, kMode, kSharedKb>;

/// Naming a kernel is what has it compiled.
template <class T, class M, class S, class P>
bool each_dim() {
  constexpr auto kOne = DqMode::kAccumulate;
  constexpr auto kInOrder = DqMode::kInOrder;
  return backward_columns_kernel<Kernel<64, T, M, S, P, kOne>> != nullptr &&
         backward_columns_kernel<Kernel<128, T, M, S, P, kOne>> != nullptr &&
         backward_columns_kernel<Kernel<256, T, M, S, P, kOne>> != nullptr &&
         backward_in_order_kernel<Kernel<64, T, M, S, P, kInOrder>> != nullptr &&
         backward_in_order_kernel<Kernel<128, T, M, S, P, kInOrder>> != nullptr &&
         backward_in_order_kernel<Kernel<256, T, M, S, P, kInOrder>> != nullptr;
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

// Both types take the same registers: fp16 is a sample throughout.
bool compiled() {
  return each_dim<__half, SlidingWindow, NoScoreMod, NoDropout>() &&
#if ATTILE_TEST_FULL
         each_policy<__nv_bfloat16, NoMask, Causal, SlidingWindow, Prefix,
                     And<SlidingWindow, Prefix>, Document, CausalDocument>();
#else
         each_dim<__nv_bfloat16, Causal, NoScoreMod, NoDropout>() &&
         each_dim<__nv_bfloat16, Causal, AdditiveBias<float>, NoDropout>() &&
         each_dim<__nv_bfloat16, CausalDocument, SoftcapAlibi, PhiloxDropout>();
#endif
}
