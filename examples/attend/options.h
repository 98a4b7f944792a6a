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
#include <system_error>
#include <vector>

#include "../command_line.h"
#include "../output_file.h"

namespace attend {

inline constexpr const char* kUsage =
    "usage: attend --q Q.npy --k K.npy --v V.npy [--o O.npy] [--lse L.npy] [--expect O.npy]\n"
    "              [--sinks S.npy]\n"
    "              [--do dO.npy [--dq dQ.npy] [--dk dK.npy] [--dv dV.npy] [--dsinks dS.npy]]\n"
    "              [--layout bshd|bhsd] [--dtype fp32|fp16|bf16] [--causal] [--window L,R]\n"
    "              [--cu-seqlens-q 0,N,... [--cu-seqlens-k 0,N,...]]\n"
    "              [--map M.svg [--words W.txt] [--map-head H] [--map-sequence B]]\n"
    "              [--scale X] [--device auto|cuda|cpu] [--check] [--repeat N] [--progress S]\n"
    "       attend --help | -h | --version\n";

inline constexpr const char* kHelp =
    "Exact attention of the tensors in .npy files ('<f2', '<f4' or '<f8', C order).\n"
    "Every option can be written as --option value and as --option=value.\n"
    "  --q, --k, --v, --do  inputs; the gradient of O makes it run the backward pass as well\n"
    "  --sinks       a number for each query head, whose exponential joins the softmax's\n"
    "                denominator; -inf adds nothing\n"
    "  --o, --lse, --dq, --dk, --dv, --dsinks\n"
    "                outputs: '<f2' with --dtype fp16, else '<f4' (LSE and dsinks: '<f4'); they\n"
    "                are written through symbolic links, and all of them or none\n"
    "  --expect      compares O with a given one\n"
    "  --layout      order of (batch, row, head, dim): bshd (the default) or bhsd\n"
    "  --dtype       what the inputs are rounded to and the kernels work in (default fp32)\n"
    "  --causal      query i sees key j iff j <= i + kv_len - q_len\n"
    "  --window L,R  query i sees the keys from i + kv_len - q_len - L to i + kv_len - q_len + R;\n"
    "                -1 is unlimited; with --causal, R must be 0 or -1\n"
    "  --cu-seqlens-q, --cu-seqlens-k  packed sequences: sequence b has the rows from the b-th of\n"
    "                these numbers to the next one, in tensors of batch 1; those of keys are the\n"
    "                same where they are not given. LSE is (1, head, row)\n"
    "  --map         draws exp(scale Q K^T - LSE), how much each query takes of each key, as an\n"
    "                SVG: of one sequence, at most 64 queries and 64 keys; five keys are printed,\n"
    "                each with the query that takes most of it\n"
    "  --words       a text file with a line for each row of K: the labels of the map\n"
    "  --map-head    the query head that is drawn, from 0 (default: the mean of all)\n"
    "  --map-sequence  the sequence that is drawn, from 0, of a batch or packed (default 0)\n"
    "  --scale       multiplies Q K^T (default 1/sqrt(D))\n"
    "  --device      auto (the default) takes the GPU where there is one, else the CPU\n"
    "  --check       compares every output with fp64; beyond the contract's bound exits with 1\n"
    "  --repeat      times each pass N times after one that is not counted, and prints median,\n"
    "                least and most (default 9 times; once where that takes over a second)\n"
    "  --progress    says on stderr how far long work is, from S seconds on (default 1 on a\n"
    "                terminal, else 10, then after twice as long each); 0: never\n"
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
  std::string map, words;          ///< a picture, an output; and its labels, an input
  Layout layout = Layout::kBshd;
  bool layout_said = false;
  Dtype dtype = Dtype::kFp32;
  Device device = Device::kAuto;
  bool causal = false;
  std::optional<Window> window;
  std::vector<int> cu_seqlens_q, cu_seqlens_k;  ///< empty: one sequence for each batch
  std::optional<float> scale;
  std::optional<int> map_head, map_sequence;
  std::optional<int> repeat;
  std::optional<double> progress;  ///< in seconds; 0: none
  bool check = false;
  bool help = false;
  bool version = false;

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

/// A whole number of at least `least`.
inline int parse_count(const std::string& option, const std::string& text, int least) {
  const auto n = number<int>(text);
  if (!n || *n < least) {
    throw UsageError(option + " needs a whole number from " + std::to_string(least) + ", not '" +
                     text + "'.");
  }
  return *n;
}

inline double parse_seconds(const std::string& option, const std::string& text) {
  const auto x = number<double>(text);
  if (!x || !std::isfinite(*x) || *x < 0) {
    throw UsageError(option + " needs seconds, 0 or more, not '" + text + "'.");
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

/// The options that take a path.
inline const std::map<std::string, std::string Options::*>& paths() {
  static const std::map<std::string, std::string Options::*> kPaths = {
      {"--q", &Options::q},           {"--k", &Options::k},         {"--v", &Options::v},
      {"--do", &Options::dout},       {"--o", &Options::o},         {"--lse", &Options::lse},
      {"--dq", &Options::dq},         {"--dk", &Options::dk},       {"--dv", &Options::dv},
      {"--expect", &Options::expect}, {"--sinks", &Options::sinks}, {"--dsinks", &Options::dsinks},
      {"--map", &Options::map},       {"--words", &Options::words}};
  return kPaths;
}

using Set = void (*)(Options&, const std::string& name, const std::string& value);

/// The other options that take a value.
inline const std::map<std::string, Set>& values() {
  static const std::map<std::string, Set> kValues = {
      {"--layout",
       [](Options& o, const std::string& name, const std::string& value) {
         o.layout_said = true;
         o.layout = choose<Layout>(name, value, {{"bshd", Layout::kBshd}, {"bhsd", Layout::kBhsd}});
       }},
      {"--dtype",
       [](Options& o, const std::string& name, const std::string& value) {
         o.dtype = choose<Dtype>(
             name, value, {{"fp32", Dtype::kFp32}, {"fp16", Dtype::kFp16}, {"bf16", Dtype::kBf16}});
       }},
      {"--device",
       [](Options& o, const std::string& name, const std::string& value) {
         o.device = choose<Device>(
             name, value,
             {{"auto", Device::kAuto}, {"cuda", Device::kCuda}, {"cpu", Device::kCpu}});
       }},
      {"--window", [](Options& o, const std::string&,
                      const std::string& value) { o.window = parse_window(value); }},
      {"--cu-seqlens-q",
       [](Options& o, const std::string& name, const std::string& value) {
         o.cu_seqlens_q = parse_offsets(name, value);
       }},
      {"--cu-seqlens-k",
       [](Options& o, const std::string& name, const std::string& value) {
         o.cu_seqlens_k = parse_offsets(name, value);
       }},
      {"--scale", [](Options& o, const std::string&,
                     const std::string& value) { o.scale = parse_scale(value); }},
      {"--map-head", [](Options& o, const std::string& name,
                        const std::string& value) { o.map_head = parse_count(name, value, 0); }},
      {"--map-sequence",
       [](Options& o, const std::string& name, const std::string& value) {
         o.map_sequence = parse_count(name, value, 0);
       }},
      {"--repeat", [](Options& o, const std::string& name,
                      const std::string& value) { o.repeat = parse_count(name, value, 1); }},
      {"--progress", [](Options& o, const std::string& name, const std::string& value) {
         o.progress = parse_seconds(name, value);
       }}};
  return kValues;
}

/// The options that take none.
inline const std::map<std::string, bool Options::*>& switches() {
  static const std::map<std::string, bool Options::*> kSwitches = {
      {"--causal", &Options::causal},
      {"--check", &Options::check},
      {"--help", &Options::help},
      {"-h", &Options::help},
      {"--version", &Options::version}};
  return kSwitches;
}

/// No output may be another output, nor an input.
inline void check_paths(const Options& o) {
  std::map<std::filesystem::path, std::string> inputs, outputs;
  const auto resolved = [](const std::string& path) {
    std::error_code error;
    const auto canonical =
        std::filesystem::weakly_canonical(example::link_target(path, error), error);
    return error ? std::filesystem::path(path) : canonical;
  };
  for (const auto& path : {o.q, o.k, o.v, o.dout, o.sinks, o.expect, o.words}) {
    if (!path.empty()) inputs.emplace(resolved(path), path);
  }
  for (const auto& path : {o.o, o.lse, o.dq, o.dk, o.dv, o.dsinks, o.map}) {
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
  if (o.map.empty()) {
    if (!o.words.empty()) throw UsageError("--words needs --map, the picture that they label.");
    if (o.map_head) throw UsageError("--map-head needs --map, the picture.");
    if (o.map_sequence) throw UsageError("--map-sequence needs --map, the picture.");
  }
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
  const std::string suffix = std::filesystem::path(o.map).extension().string();
  if (!suffix.empty() && suffix != ".svg" && suffix != ".SVG") {
    throw UsageError("--map writes an SVG: its name may end in .svg, not in '" + suffix + "'.");
  }
}

}  // namespace detail

/// Reads the command line; throws UsageError, one sentence.
inline Options parse(int argc, char** argv) {
  Options options;
  std::set<std::string> seen;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
    const bool has_value = equals != std::string::npos;
    const std::string name = word.substr(0, equals);
    if (!seen.insert(name).second) throw UsageError(name + " is given twice.");
    if (const auto found = detail::switches().find(name); found != detail::switches().end()) {
      if (has_value) throw UsageError(name + " takes no value.");
      options.*found->second = true;
      continue;
    }
    const auto path = detail::paths().find(name);
    const auto value_option = detail::values().find(name);
    const bool is_path = path != detail::paths().end();
    if (!is_path && value_option == detail::values().end()) {
      throw UsageError("'" + name + "' is not an option of attend.");
    }
    const std::string value = has_value      ? word.substr(equals + 1)
                              : i + 1 < argc ? std::string(argv[++i])
                                             : std::string();
    if (value.empty() || (!has_value && value.starts_with("--"))) {
      throw UsageError(name + " needs a value.");
    }
    if (is_path) {
      options.*path->second = value;
    } else {
      value_option->second(options, name, value);
    }
  }
  if (!options.help && !options.version) detail::check_together(options);
  return options;
}

}  // namespace attend
