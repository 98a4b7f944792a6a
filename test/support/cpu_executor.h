// SPDX-License-Identifier: MIT
#pragma once

#include <attile/host.h>

#include <cstddef>
#include <vector>

#include "support/cases.h"
#include "support/policy_lists.h"
#include "support/tensors.h"

namespace attile_test {

/// attile::host, for the suite.
struct CpuExecutor {
  static constexpr bool kRepeatsBackward = true;

  attile::host::Options options{};

  bool takes(const Case&) const { return true; }

  template <class Args>
  attile::Check forward(const Args& args, const std::vector<Region>&) const {
    return attile::host::forward(args, options);
  }
  template <class Args>
  attile::Check backward(const Args& args, const std::vector<Region>&) const {
    return attile::host::backward(args, options);
  }
};

/// The same of a sample of the cases, where not everything is built.
struct SampledCpuExecutor : CpuExecutor {
  static constexpr std::size_t kEvery = kTestFull ? 1 : 3;
};

}  // namespace attile_test
