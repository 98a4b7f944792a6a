// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

// What a kernel says to the one behind it in the stream, where that is launched by
// `launch_dependent` (launch.cuh): "programmatic dependent launch" of the CUDA C++ Programming
// Guide, "griddepcontrol" of the PTX ISA (compute capability 9.0).

namespace attile::arch {

/// The kernel behind may begin when every block has come here or ended; until then its blocks take
/// no room from those of this kernel that have not begun. Tells it nothing of what was written.
ATTILE_DEVICE void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Waits until the kernel before has ended: what it wrote is there from here on, for this thread
/// and those that it tells. Nothing where it has ended, or the kernel was not launched so.
ATTILE_DEVICE void await_dependencies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace attile::arch
