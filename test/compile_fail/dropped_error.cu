// SPDX-License-Identifier: MIT
// promises: ignoring return value from routine declared with "nodiscard" attribute
#include <attile/forward.cuh>

#pragma nv_diag_error 2809

void run(const attile::ForwardArgs<float>& args) { attile::forward<64>(args); }
