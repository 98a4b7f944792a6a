// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/status.h>

#include <functional>
#include <string>
#include <vector>

#include "support/cases.h"
#include "support/fp8.h"
#include "support/policies.h"
#include "support/tensors.h"

// One suite of cases for every executor. An executor is
// clang-format off
//   struct Executor {
//     static constexpr bool kRepeatsBackward;  // the same gradients, bit by bit, each time
//     static constexpr bool kRepeatsSums;      // not required: gradients of modifiers, too
//     static constexpr int kTf32Products;      // not required: TF32 products for one of fp32
//     static constexpr Fp8Types kFp8;          // not required: the types of inputs in fp8
//     static constexpr Fp8Products kFp8Products;  // not required: what is multiplied in fp8
//     bool takes(const Case&) const;           // whether it was built for such a case
//     attile::Check forward(const ForwardArgs&, const std::vector<Region>&);
//     attile::Check backward(const BackwardArgs&, const std::vector<Region>&);
//   };
// clang-format on
// whose passes are templates over the arguments' policies. The arguments point into the regions,
// which are host memory: an executor with memory of its own copies the regions there and back
// whole, so that a write between two rows shows here.
namespace attile_test {

/// One pass of an executor.
template <class Args>
using Pass = std::function<attile::Check(const Args&, const std::vector<Region>&)>;

/// What an executor says of itself.
struct Promises {
  int tf32_products = 0;
  bool repeats_backward = false, repeats_sums = true;
  Fp8Types fp8{};
  Fp8Products fp8_products = Fp8Products::kNone;
};

template <class Executor>
constexpr Promises promises_of() {
  Promises promises{.repeats_backward = Executor::kRepeatsBackward};
  if constexpr (requires { Executor::kTf32Products; }) {
    promises.tf32_products = Executor::kTf32Products;
  }
  if constexpr (requires { Executor::kFp8; }) promises.fp8 = Executor::kFp8;
  if constexpr (requires { Executor::kFp8Products; }) {
    promises.fp8_products = Executor::kFp8Products;
  }
  if constexpr (requires { Executor::kRepeatsSums; }) {
    promises.repeats_sums = Executor::kRepeatsSums;
  }
  return promises;
}

/// Runs a case's forward pass twice and says what is wrong with it. Compiled once for each element
/// type and policy, in yardstick_*.cpp: the fp64 reference takes longer to compile than a kernel.
template <attile::Element T, Policy kPolicy>
std::string faults_of_forward(const Case& c, const Promises& promises,
                              const Pass<ForwardArgsOf<T, kPolicy>>& pass);

/// The same of its backward pass, given O and LSE of the exact forward pass.
template <attile::Element T, Policy kPolicy>
std::string faults_of_backward(const Case& c, const Promises& promises,
                               const Pass<BackwardArgsOf<T, kPolicy>>& pass);

template <attile::Element T, Policy kPolicy, class Executor>
std::string forward_faults(Executor& executor, const Case& c) {
  return faults_of_forward<T, kPolicy>(
      c, promises_of<Executor>(),
      [&](const auto& args, const auto& regions) { return executor.forward(args, regions); });
}
template <attile::Element T, Policy kPolicy, class Executor>
std::string backward_faults(Executor& executor, const Case& c) {
  return faults_of_backward<T, kPolicy>(
      c, promises_of<Executor>(),
      [&](const auto& args, const auto& regions) { return executor.backward(args, regions); });
}

}  // namespace attile_test
