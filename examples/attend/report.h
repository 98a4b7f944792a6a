// SPDX-License-Identifier: MIT
// What attend prints.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "accuracy.h"
#include "options.h"
#include "problem.h"
#include "run.h"

namespace attend {

inline std::string mask_text(const Mask& mask) {
  if (mask.left < 0 && mask.right < 0) return "none";
  if (mask.left < 0 && mask.right == 0) return "causal";
  const auto side = [](int n) { return n < 0 ? std::string("unlimited") : std::to_string(n); };
  return "window, left " + side(mask.left) + ", right " + side(mask.right);
}

inline std::string bytes_text(std::size_t bytes) {
  static const char* const kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double n = static_cast<double>(bytes);
  int unit = 0;
  for (; n >= 1024 && unit < 4; ++unit) n /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", n, kUnits[unit]);
  return text;
}

/// The heading, which is there before the wait.
inline void print_heading(const Problem& p, const char* dtype, const std::string& device) {
  std::printf("shape     batch %d, q_len %d, kv_len %d, q_heads %d, kv_heads %d, D %d, Dv %d\n",
              p.batch, p.q_len, p.kv_len, p.q_heads, p.kv_heads, p.head_dim, p.head_dim_v);
  if (p.is_packed()) {
    std::printf("packed    %d rows, %d keys; q_len and kv_len are the longest\n", p.q_rows,
                p.kv_rows);
  }
  std::printf("run       %s, layout %s, mask %s, scale %.6g%s\n", dtype,
              p.layout == Layout::kBshd ? "bshd" : "bhsd", mask_text(p.mask).c_str(),
              static_cast<double>(p.scale), p.sinks ? ", sinks" : "");
  std::printf("device    %s\n", device.c_str());
  std::fflush(stdout);
}

inline void print_times(const char* pass, const Times& t, double flops) {
  const double ms = t.median_ms;
  std::printf("%-9s %.4g ms, %.3g TFLOP/s", pass, ms, ms > 0 ? flops / ms * 1e-9 : 0.0);
  if (t.calls > 1) {
    std::printf(" (median of %d, %.4g to %.4g ms)", t.calls, t.least_ms, t.most_ms);
  } else {
    std::printf(" (one call)");
  }
  std::printf("\n");
}

inline void print_run(const Problem& p, const Run& run) {
  std::printf("kernels   %s\n", run.family.c_str());
  print_times("forward", run.forward, p.forward_flops());
  if (p.backward) print_times("backward", run.backward, p.backward_flops());
  std::printf("memory    %s of inputs, outputs and workspace\n", bytes_text(run.bytes).c_str());
  std::fflush(stdout);
}

/// Returns whether all errors are within their bounds.
inline bool print_errors(const std::string& against, const std::vector<Error>& errors) {
  std::printf("error against %s\n", against.c_str());
  bool within = true;
  for (const Error& e : errors) {
    std::printf("  %-7s max abs %.2e, relative %.2e", e.tensor.c_str(), e.absolute, e.relative);
    if (std::isfinite(e.bound)) {
      std::printf(", bound %.2e: %s", e.bound, e.within() ? "within" : "BEYOND THE BOUND");
    }
    if (e.nans > 0) std::printf(", %zu are NaN in both", e.nans);
    std::printf("\n");
    within = within && e.within();
  }
  return within;
}

}  // namespace attend
