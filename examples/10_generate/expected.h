// SPDX-License-Identifier: MIT
// What a step has to compute, by plain loops over tokens in fp64, without a cache.
#pragma once

#include <attile/core/element.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "model.cuh"
#include "rope.h"

namespace generate {

/// One head of a row.
using HeadRow = std::array<double, kDim>;

/// Returns one head of the row of Q or K of the token at `position`, rotated, in the bf16 that
/// attention reads. Pair p is the elements p and p + dim / 2.
inline HeadRow rotated(int layer, int token, int head, int position, const RopeTables& rope) {
  const auto rounded = [](double x) {
    return static_cast<double>(attile::to_float(attile::from_float<bf16>(static_cast<float>(x))));
  };
  HeadRow row;
  for (int p = 0; p < kDim / 2; ++p) {
    const double x = attile::to_float(projected(layer, token, head, p));
    const double y = attile::to_float(projected(layer, token, head, p + kDim / 2));
    const double cos = rope.cos[position * (kDim / 2) + p];
    const double sin = rope.sin[position * (kDim / 2) + p];
    row[p] = rounded(x * cos - y * sin);
    row[p + kDim / 2] = rounded(y * cos + x * sin);
  }
  return row;
}

/// Returns one head of O of the rows from position `first` on. Each sees the keys up to its own.
inline std::vector<HeadRow> expected_outputs(const std::vector<int>& tokens, int layer, int q_head,
                                             int first, const RopeTables& rope) {
  const int length = static_cast<int>(tokens.size());
  const int kv_head = q_head / (kQHeads / kKvHeads);
  std::vector<HeadRow> k, v(length), outputs;
  for (int j = 0; j < length; ++j) {
    k.push_back(rotated(layer, tokens[j], kKHead + kv_head, j, rope));
    for (int d = 0; d < kDim; ++d) {
      v[j][d] = attile::to_float(projected(layer, tokens[j], kVHead + kv_head, d));
    }
  }
  for (int i = first; i < length; ++i) {
    const HeadRow q = rotated(layer, tokens[i], q_head, i, rope);
    std::vector<double> scores;
    for (int j = 0; j <= i; ++j) {
      scores.push_back(kScale * std::inner_product(q.begin(), q.end(), k[j].begin(), 0.0));
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    HeadRow o{};
    for (int j = 0; j <= i; ++j) {
      const double weight = std::exp(scores[j] - largest);
      sum += weight;
      for (int d = 0; d < kDim; ++d) o[d] += weight * v[j][d];
    }
    for (double& x : o) x /= sum;
    outputs.push_back(o);
  }
  return outputs;
}

}  // namespace generate
