// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/modifier_gradient_sums.h>
#include <attile/core/score_mod.h>

#include <cstdint>
#include <vector>

namespace attile_test {

/// The gradient of a score modifier that learns, by its lines: where its elements lie, and how much
/// they are if s and dS' are 1 for each score that is visible.
struct LearnedPlaces {
  std::vector<float*> at;
  std::vector<double> visible;

  template <class Args>
  explicit LearnedPlaces(const Args& args) {
    if constexpr (attile::kHasGradient<typename Args::ScoreModType>) {
      const attile::ScoreShape shape = attile::score_shape(args);
      attile::ModifierGradientSums<double> sums(args.score_mod, shape);
      for_each_visible(args, [&](const attile::ScoreIndex& i) {
        args.score_mod.add_gradient(1.0, 1.0, i, shape.extent, sums.add());
      });
      visible = sums.values();
      for (std::int64_t n = 0; n < args.score_mod.gradient_lines(shape); ++n) {
        const attile::GradientLine line = args.score_mod.gradient_line(n, shape);
        for (int i = 0; i < line.count; ++i) at.push_back(line.first + i * line.stride);
      }
    }
  }

 private:
  template <class Args, class Visit>
  static void for_each_visible(const Args& args, const Visit& visit) {
    const attile::Extent extent{args.q_len, args.kv_len};
    for (int b = 0; b < args.batch; ++b) {
      for (int h = 0; h < args.q_heads; ++h) {
        for (int i = 0; i < args.q_len; ++i) {
          for (int j = 0; j < args.kv_len; ++j) {
            const attile::ScoreIndex at{b, h, i, j};
            if (!args.mask.visible(at, extent)) continue;
            if (args.score_mod(0.0, at, extent).value != -attile::kInf) visit(at);
          }
        }
      }
    }
  }
};

}  // namespace attile_test
