// SPDX-License-Identifier: MIT
// error: attile: bshd(data, {.rows = n, .heads = h, .dim = d}): extents are named
// error: attile: bhsd(data, {.rows = n, .heads = h, .dim = d}): extents are named
// error: attile: bhs(data, {.rows = n, .heads = h}): extents are named
// error: no instance of overloaded function "attile::bshd" matches the argument list
// error: no instance of constructor "attile::detail::Given::Given"
#include <attile/core/tensor.h>

float data[64];
const auto rows_of_heads = attile::bshd(data, 2, 4, 8);
const auto heads_of_rows = attile::bhsd(data, 2, 4, 8);
const auto numbers = attile::bhs(data, 2, 4);
const auto by_position = attile::bshd(data, {2, 4, 8});
const auto without_heads = attile::bshd(data, {.rows = 2, .dim = 8});
