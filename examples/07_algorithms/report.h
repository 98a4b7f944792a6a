// SPDX-License-Identifier: MIT
// What 07_algorithms prints.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "accuracy.h"
#include "result.h"

namespace algorithms {

namespace detail {

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[160];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

/// "1.2e-06", or for gradients "1.2e-06 2.3e-06 3.4e-06".
inline std::string errors_text(const std::vector<Error>& errors, double Error::*which) {
  std::string text;
  for (const Error& e : errors) text += (text.empty() ? "" : " ") + format("%.1e", e.*which);
  return text;
}

}  // namespace detail

inline void print_table(const Result& result) {
  using detail::format;
  const Problem& p = result.problem;
  std::printf("batch %d, %d heads, length %d, head_dim %d, %s%s\n", p.batch, p.heads, p.len, p.dim,
              name(p.type), p.causal ? ", causal" : "");
  std::printf("  %-8s %-8s %10s %7s %8s %10s %9s %9s  %-23s  %s\n", "pass", "", "ms", "spread",
              "TFLOP/s", "GFLOP done", "GB moved", "GB held", "error (O LSE, dQ dK dV)",
              "from flash2");
  for (const PassResult& r : result.passes) {
    std::printf("  %-8s %-8s ", name(r.pass.direction), name(r.pass.algorithm));
    if (!r.why_not.empty()) {
      std::printf("%s\n", r.why_not.c_str());
      continue;
    }
    const std::string spread = r.ms.size() > 1 ? format("%.1f %%", 100 * r.spread()) : "1 run";
    std::printf("%10.3f %7s %8.2f %10.2f %9.3f %9.3f  %-23s  %s%s\n", r.median_ms(), spread.c_str(),
                nominal_flops(p, r.pass.direction) / r.median_ms() * 1e-9, r.cost.flops * 1e-9,
                r.cost.bytes * 1e-9, static_cast<double>(r.memory) * 1e-9,
                detail::errors_text(r.errors, &Error::fp64).c_str(),
                detail::errors_text(r.errors, &Error::flash2).c_str(),
                r.within() ? "" : "  BEYOND THE BOUND");
  }
  std::printf("\n");
}

inline void print_legend() {
  std::printf(
      "ms          median of 7 rounds, all algorithms in turn; spread: (most - least) / median\n"
      "TFLOP/s     of 4 B H S^2 D FLOPs forward, half of it causal, and 2.5 times that backward\n"
      "GFLOP done  of the products that the algorithm does\n"
      "GB moved    by formula: loads and stores of device memory, whatever the caches keep\n"
      "GB held     tensors, statistics, P and workspace of the pass\n"
      "error       of 8 rows of the last head against fp64; dK and dV above length %d from the\n"
      "            LSE and O of flash2. from flash2: difference of whole tensors. Both relative\n"
      "            to the largest value, the larger of two calls: before and after the rounds\n"
      "\n%s",
      kExactLen, kCaveats);
}

inline void print_json(const std::vector<Result>& results) {
  std::printf("[");
  const char* comma = "";
  for (const Result& result : results) {
    const Problem& p = result.problem;
    for (const PassResult& r : result.passes) {
      std::printf(
          "%s\n {\"algorithm\": \"%s\", \"direction\": \"%s\", \"batch\": %d, \"heads\": %d, "
          "\"len\": %d, \"head_dim\": %d, \"type\": \"%s\", \"causal\": %s, "
          "\"nominal_flops\": %.0f, \"flops\": %.0f, \"bytes\": %.0f, \"memory\": %zu",
          comma, name(r.pass.algorithm), name(r.pass.direction), p.batch, p.heads, p.len, p.dim,
          name(p.type), p.causal ? "true" : "false", nominal_flops(p, r.pass.direction),
          r.cost.flops, r.cost.bytes, r.memory);
      comma = ",";
      if (!r.why_not.empty()) std::printf(", \"why_not\": \"%s\"", r.why_not.c_str());
      if (!r.ms.empty()) {
        std::printf(", \"ms\": %.6g, \"spread\": %.4g, \"rounds\": %zu", r.median_ms(), r.spread(),
                    r.ms.size());
      }
      for (const Error& e : r.errors) {
        // JSON has no NaN
        std::printf(", \"%s\": [\"%.3e\", \"%.3e\", \"%.3e\"]", e.tensor, e.fp64, e.flash2,
                    e.bound);
      }
      std::printf("}");
    }
  }
  std::printf("\n]\n");
}

}  // namespace algorithms
