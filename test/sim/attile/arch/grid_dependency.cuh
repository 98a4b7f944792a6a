// SPDX-License-Identifier: MIT
#pragma once

#include "sim/machine.h"

// The simulated counterpart of include/attile/arch/grid_dependency.cuh. Kernels run one after
// another here.

namespace attile::arch {

inline void launch_dependents() {}
inline void await_dependencies() { sim::await_dependencies(); }
constexpr bool may_begin_early() { return true; }
template <class F>
auto read_early(bool is_early, const F& f) {
  if (!is_early) return f();
  sim::begin_early_reads();
  const auto found = f();
  return sim::end_early_reads() ? found : decltype(f()){};
}

}  // namespace attile::arch
