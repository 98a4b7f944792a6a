// SPDX-License-Identifier: MIT
// The command line of attend.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "../command_line.h"

namespace attend {

inline constexpr const char* kUsage =
    "usage: attend --q Q.npy --k K.npy --v V.npy [--o O.npy] [--lse L.npy] [--expect O.npy]\n"
    "              [--sinks S.npy]\n"
    "              [--do dO.npy [--dq dQ.npy] [--dk dK.npy] [--dv dV.npy] [--dsinks dS.npy]]\n"
    "              [--layout bshd|bhsd] [--dtype fp32|fp16|bf16] [--causal] [--window L,R]\n"
    "              [--cu-seqlens-q 0,N,... [--cu-seqlens-k 0,N,...]]\n"
    "              [--scale X] [--device auto|cuda|cpu] [--check]\n";

inline constexpr const char* kHelp =
    "Exact attention of the tensors in .npy files ('<f2', '<f4' or '<f8', C order).\n"
    "  --q, --k, --v, --do  inputs; the gradient of O makes it run the backward pass as well\n"
    "  --sinks       a number for each query head, whose exponential joins the softmax's\n"
    "                denominator; -inf adds nothing\n"
    "  --o, --lse, --dq, --dk, --dv, --dsinks\n"
    "                outputs: '<f2' with --dtype fp16, else '<f4' (LSE and dsinks: '<f4')\n"
    "  --expect      compares O with a given one\n"
    "  --layout      order of (batch, row, head, dim): bshd (the default) or bhsd\n"
    "  --dtype       what the inputs are rounded to and the kernels work in (default fp32)\n"
    "  --causal      query i sees key j iff j <= i + kv_len - q_len\n"
    "  --window L,R  query i sees the keys from i + kv_len - q_len - L to i + kv_len - q_len + R;\n"
    "                -1 is unlimited; with --causal, R must be 0 or -1\n"
    "  --cu-seqlens-q, --cu-seqlens-k  packed sequences: sequence b has the rows from the b-th of\n"
    "                these numbers to the next one, in tensors of batch 1; those of keys are the\n"
    "                same where they are not given. LSE is (1, head, row)\n"
    "  --scale       multiplies Q K^T (default 1/sqrt(D))\n"
    "  --device      auto (the default) takes the GPU where there is one, else the CPU\n"
    "  --check       compares every output with fp64; beyond the contract's bound exits with 1\n"
    "Exit codes: 0 done, 1 an error beyond the bound, 2 a file or a device failed, 64 usage.\n";

using example::UsageError;

enum class Layout { kBshd, kBhsd };
enum class Dtype { kFp32, kFp16, kBf16 };
enum class Device { kAuto, kCuda, kCpu };

/// -1: unlimited on that side.
struct Window {
  int left = -1;
  int right = -1;
};

struct Options {
  std::string q, k, v, dout;       ///< inputs; dout may be empty
  std::string sinks;               ///< an input; empty: none
  std::string o, lse, dq, dk, dv;  ///< outputs; empty: not wanted
  std::string dsinks;              ///< an output, likewise
  std::string expect;              ///< the O to compare with; empty: none
  Layout layout = Layout::kBshd;
  Dtype dtype = Dtype::kFp32;
  Device device = Device::kAuto;
  bool causal = false;
  std::optional<Window> window;
  std::vector<int> cu_seqlens_q, cu_seqlens_k;  ///< empty: one sequence for each batch
  std::optional<float> scale;
  bool check = false;
  bool help = false;

  bool backward() const { return !dout.empty(); }
};

namespace detail {

using example::number;

inline float parse_scale(const std::string& text) {
  const auto x = number<float>(text);
  if (!x || !std::isfinite(*x) || *x <= 0) {
    throw UsageError("--scale needs a finite number above 0, not '" + text + "'.");
  }
  return *x;
}

inline Window parse_window(const std::string& text) {
  const std::size_t comma = text.find(',');
  const auto left = number<int>(std::string_view(text).substr(0, comma));
  const auto right = comma == std::string::npos
                         ? std::nullopt
                         : number<int>(std::string_view(text).substr(comma + 1));
  if (!left || !right || *left < -1 || *right < -1) {
    throw UsageError("--window needs L,R, two whole numbers from -1 (unlimited), not '" + text +
                     "'.");
  }
  return {*left, *right};
}

/// Offsets that do not fall, of which the first one is 0 or more.
inline std::vector<int> parse_offsets(const std::string& option, const std::string& text) {
  std::vector<int> offsets;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const auto offset = number<int>(std::string_view(text).substr(begin, end - begin));
    if (!offset || *offset < (offsets.empty() ? 0 : offsets.back())) {
      throw UsageError(option + " needs whole numbers from 0 that do not fall, not '" + text +
                       "'.");
    }
    offsets.push_back(*offset);
    begin = end + 1;
  }
  return offsets;
}

template <class Value>
Value choose(const std::string& option, const std::string& text,
             const std::map<std::string, Value>& choices) {
  if (const auto found = choices.find(text); found != choices.end()) return found->second;
  std::string names;
  for (const auto& [name, value] : choices) names += (names.empty() ? "" : ", ") + name;
  throw UsageError(option + " needs one of " + names + ", not '" + text + "'.");
}

/// Sets the option `name`, which takes a value.
inline void set(Options& options, const std::string& name, const std::string& value) {
  static const std::map<std::string, std::string Options::*> kPaths = {
      {"--q", &Options::q},           {"--k", &Options::k},         {"--v", &Options::v},
      {"--do", &Options::dout},       {"--o", &Options::o},         {"--lse", &Options::lse},
      {"--dq", &Options::dq},         {"--dk", &Options::dk},       {"--dv", &Options::dv},
      {"--expect", &Options::expect}, {"--sinks", &Options::sinks}, {"--dsinks", &Options::dsinks}};
  if (const auto path = kPaths.find(name); path != kPaths.end()) {
    options.*path->second = value;
  } else if (name == "--layout") {
    options.layout =
        choose<Layout>(name, value, {{"bshd", Layout::kBshd}, {"bhsd", Layout::kBhsd}});
  } else if (name == "--dtype") {
    options.dtype = choose<Dtype>(
        name, value, {{"fp32", Dtype::kFp32}, {"fp16", Dtype::kFp16}, {"bf16", Dtype::kBf16}});
  } else if (name == "--device") {
    options.device = choose<Device>(
        name, value, {{"auto", Device::kAuto}, {"cuda", Device::kCuda}, {"cpu", Device::kCpu}});
  } else if (name == "--window") {
    options.window = parse_window(value);
  } else if (name == "--cu-seqlens-q") {
    options.cu_seqlens_q = parse_offsets(name, value);
  } else if (name == "--cu-seqlens-k") {
    options.cu_seqlens_k = parse_offsets(name, value);
  } else {
    options.scale = parse_scale(value);
  }
}

/// No output may be another output, nor an input.
inline void check_paths(const Options& o) {
  std::map<std::filesystem::path, std::string> inputs, outputs;
  const auto resolved = [](const std::string& path) {
    std::error_code error;
    const auto canonical = std::filesystem::weakly_canonical(path, error);
    return error ? std::filesystem::path(path) : canonical;
  };
  for (const auto& path : {o.q, o.k, o.v, o.dout, o.sinks, o.expect}) {
    if (!path.empty()) inputs.emplace(resolved(path), path);
  }
  for (const auto& path : {o.o, o.lse, o.dq, o.dk, o.dv, o.dsinks}) {
    if (path.empty()) continue;
    if (inputs.contains(resolved(path))) {
      throw UsageError(path + " is named as an input and as an output.");
    }
    if (!outputs.emplace(resolved(path), path).second) {
      throw UsageError(path + " is named as two outputs.");
    }
  }
}

/// What the options must have, and must not have together.
inline void check_together(const Options& o) {
  if (o.q.empty()) throw UsageError("--q is missing.");
  if (o.k.empty()) throw UsageError("--k is missing.");
  if (o.v.empty()) throw UsageError("--v is missing.");
  if (!o.backward()) {
    if (!o.dq.empty()) throw UsageError("--dq needs --do, the gradient of O.");
    if (!o.dk.empty()) throw UsageError("--dk needs --do, the gradient of O.");
    if (!o.dv.empty()) throw UsageError("--dv needs --do, the gradient of O.");
    if (!o.dsinks.empty()) throw UsageError("--dsinks needs --do, the gradient of O.");
  }
  if (!o.dsinks.empty() && o.sinks.empty()) throw UsageError("--dsinks needs --sinks.");
  if (o.causal && o.window && o.window->right > 0) {
    throw UsageError("--window has R = " + std::to_string(o.window->right) +
                     ", but --causal hides every later key: R must be 0 or -1.");
  }
  if (o.cu_seqlens_q.empty() && !o.cu_seqlens_k.empty()) {
    throw UsageError("--cu-seqlens-k needs --cu-seqlens-q.");
  }
  if (!o.cu_seqlens_k.empty() && o.cu_seqlens_k.size() != o.cu_seqlens_q.size()) {
    throw UsageError("--cu-seqlens-q and --cu-seqlens-k have different numbers of offsets.");
  }
  check_paths(o);
}

}  // namespace detail

/// Reads the command line; throws UsageError, one sentence.
inline Options parse(int argc, char** argv) {
  static const std::set<std::string> kWithValue = {"--q",
                                                   "--k",
                                                   "--v",
                                                   "--do",
                                                   "--o",
                                                   "--lse",
                                                   "--dq",
                                                   "--dk",
                                                   "--dv",
                                                   "--expect",
                                                   "--layout",
                                                   "--dtype",
                                                   "--device",
                                                   "--window",
                                                   "--scale",
                                                   "--cu-seqlens-q",
                                                   "--cu-seqlens-k",
                                                   "--sinks",
                                                   "--dsinks"};
  Options options;
  std::set<std::string> seen;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (!seen.insert(name).second) throw UsageError(name + " is given twice.");
    if (name == "--causal") {
      options.causal = true;
    } else if (name == "--check") {
      options.check = true;
    } else if (name == "--help") {
      options.help = true;
    } else if (!kWithValue.contains(name)) {
      throw UsageError("'" + name + "' is not an option of attend.");
    } else {
      const std::string value = i + 1 < argc ? argv[++i] : "";
      if (value.empty() || value.starts_with("--")) throw UsageError(name + " needs a value.");
      detail::set(options, name, value);
    }
  }
  if (!options.help) detail::check_together(options);
  return options;
}

}  // namespace attend
