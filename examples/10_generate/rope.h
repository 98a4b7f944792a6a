// SPDX-License-Identifier: MIT
// The tables of a rotary position embedding.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace generate {

/// Holds cosines and sines: (rows, dim / 2), for position and pair.
struct RopeTables {
  std::vector<float> cos, sin;

  RopeTables(int rows, int dim) {
    for (int position = 0; position < rows; ++position) {
      for (int pair = 0; pair < dim / 2; ++pair) {
        const double angle = position * std::pow(10000.0, -2.0 * pair / dim);
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
    }
  }
};

}  // namespace generate
