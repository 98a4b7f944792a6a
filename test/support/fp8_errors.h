// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/fp8.h>
#include <attile/reference.h>
#include <attile/tolerance.h>

#include "support/fp8.h"

namespace attile_test {

/// What products of fp8 add to the tolerances of O and LSE.
struct Fp8Errors {
  double o = 0, lse = 0;
};

/// has_v: whether V is in fp8, too.
template <class Args>
Fp8Errors fp8_errors(Fp8Products products, bool has_v, const Args& args) {
  namespace reference = attile::reference;
  if (products == Fp8Products::kNone) return {};
  const auto shifts = reference::forward_score_shifts(args);
  Fp8Errors errors{reference::fp8_score_error(shifts.o), reference::fp8_score_error(shifts.lse)};
  if (products == Fp8Products::kScores || !has_v) return errors;
  const auto sums = products == Fp8Products::kPromoted ? attile::Fp8Sums::kPromoted
                                                       : attile::Fp8Sums::kUnpromoted;
  errors.o += reference::fp8_probability_error(reference::forward_roots(args).o) +
              reference::fp8_sum_error(reference::forward_magnitudes(args).o, sums, args.kv_len);
  return errors;
}

}  // namespace attile_test
