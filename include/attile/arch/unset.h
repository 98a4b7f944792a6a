// SPDX-License-Identifier: MIT
#pragma once

// ATTILE_BEGINS_UNSET(Type, array): an object of Type begins with whatever its registers hold. The
// simulated machine, which has a header of its own in this place, fills the array with NaN, so that
// a kernel that does not clear a register tile shows.
#define ATTILE_BEGINS_UNSET(Type, array) Type() = default;
