// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

// Synchronisation of a kernel with the next one of the stream, where `launch_dependent`
// (launch.cuh) launches that one: "programmatic dependent launch" in the CUDA C++ Programming
// Guide, "griddepcontrol" in the PTX ISA (compute capability 9.0).

namespace attile::arch {

/// Lets the next kernel begin as soon as every block of this one has called it or has ended; until
/// then the next kernel's blocks take no resources from blocks of this one that have not begun. It
/// makes no writes of this kernel visible to the next.
ATTILE_DEVICE void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#else
  // `launch_dependent` launches as `launch` does: nobody waits for a signal.
#endif
}

/// Waits until the previous kernel has ended. From then on its writes are visible to this thread
/// and to those that synchronise with it; before, they could be read too early. It does nothing
/// where that kernel has ended, or this one was not launched by `launch_dependent`.
ATTILE_DEVICE void await_dependencies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#else
  // `launch_dependent` launches as `launch` does: the previous kernel has ended.
#endif
}

/// Returns f(). Where `is_early`, that is called ahead of `await_dependencies`, and reads device
/// memory that the previous kernel may still write: of each number there it may find the earlier
/// one or the later one. What comes of it may be used for what changes no result, such as
/// `prefetch`, or has to be compared with what f returns after the wait.
template <class F>
ATTILE_DEVICE auto read_early(bool is_early, const F& f) {
  static_cast<void>(is_early);
  return f();
}

/// Returns whether a kernel that `launch_dependent` launches may begin before the previous one has
/// ended.
ATTILE_DEVICE constexpr bool may_begin_early() {
#if __CUDA_ARCH__ >= 900
  return true;
#else
  return false;
#endif
}

}  // namespace attile::arch
