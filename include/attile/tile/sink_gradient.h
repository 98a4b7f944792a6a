// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/tile/online_softmax.h>

namespace attile::tile {

/// Returns D = rowsum(dO * O) of a row with a sink, which is `sum` wherever that is finite. An LSE
/// that equals the sink says that there are no keys, so that O = 0 and D = 0 whatever dO is, or
/// that they weigh less than a rounding of LSE: inf * 0, or a NaN, does not reach the sink's
/// gradient.
ATTILE_HOST_DEVICE constexpr float delta_beside_sink(float sum, float lse, float sink) {
  const bool finite = -kInf < sum && sum < kInf;
  return !finite && lse == sink ? 0.0f : sum;
}

/// Returns what a row adds to the gradient of its sink: -e^(sink - LSE) delta, in a product of type
/// Real.
/// Units    delta: D - dLSE. A row without gradient has lse = +inf and delta = 0. A sink that
///          weighs nothing, such as one of -inf, gets 0 whatever delta is.
template <class Real>
ATTILE_HOST_DEVICE Real sink_gradient_of_row(float sink, float lse, float delta) {
  const float weight = softmax_weight(sink, lse, kLog2e);
  return weight == 0.0f ? Real(0) : -Real(weight) * Real(delta);
}

}  // namespace attile::tile
