// SPDX-License-Identifier: MIT
// The command line of 07_algorithms.
#pragma once

#include <attile/core/args.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../command_line.h"

namespace algorithms {

using attile::Direction;

enum class Algorithm { kStandard, kFlash1, kFlash2 };
inline constexpr const char* kAlgorithmNames[] = {"standard", "flash1", "flash2"};
inline constexpr const char* kDirectionNames[] = {"forward", "backward"};

inline const char* name(Algorithm a) { return kAlgorithmNames[static_cast<int>(a)]; }
inline const char* name(Direction d) { return kDirectionNames[static_cast<int>(d)]; }

enum class Type { kFp32, kFp16 };
inline const char* name(Type t) { return t == Type::kFp32 ? "fp32" : "fp16"; }

/// Self-attention: as many rows of K and V as of Q, as many heads.
struct Problem {
  int batch = 4;
  int heads = 16;
  int len = 1024;
  int dim = 64;
  Type type = Type::kFp32;
  bool causal = false;
};

struct Pass {
  Algorithm algorithm;
  Direction direction;
};

struct Options {
  std::vector<Problem> problems;
  std::optional<Pass> once;
  bool json = false;
  bool help = false;
};

using example::UsageError;

inline constexpr const char* kHelp =
    "usage: 07_algorithms [--batch N] [--heads N] [--head-dim 64|128] [--type fp32|fp16]\n"
    "                     [--seqlen A,B,C] [--causal] [--paper | --sweep]\n"
    "                     [--once ALGORITHM DIRECTION] [--json]\n\n"
    "Standard attention (cuBLAS), FlashAttention-1 and FlashAttention-2, forward and backward, on\n"
    "one problem: time, FLOPs, bytes, device memory, errors. TFLOP/s count the same FLOPs for\n"
    "all: 4 B H S^2 D forward, half of it causal, and 2.5 times that backward.\n"
    "  --batch, --heads  default 4 and 16\n"
    "  --head-dim        64 (the default) or 128\n"
    "  --type            fp32 (the default) or fp16; sums are fp32\n"
    "  --seqlen          lengths, each a problem of its own; default 1024\n"
    "  --causal          a row sees the keys up to its own place\n"
    "  --paper           batch 64, 16 heads, length 1024, head_dim 64, fp16: the shape of\n"
    "                    Figure 2 (left) of arXiv 2205.14135; of the options above, only\n"
    "                    --causal goes with it\n"
    "  --sweep           lengths 1k, 2k ... 128k. Up to 16k batch * length is 16384 and\n"
    "                    heads * head_dim 2048; above, batch is 1 and heads * length stays what\n"
    "                    it is at 16k. --batch, --heads and --seqlen do not go with it\n"
    "  --once A D        runs this one pass (standard, flash1 or flash2; forward or backward) a\n"
    "                    single time between cudaProfilerStart and cudaProfilerStop; what it\n"
    "                    needs is made before, nothing is checked\n"
    "  --json            prints JSON instead of tables\n"
    "  -h, --help        prints this\n"
    "Exit codes: 0 done, 1 an error beyond its bound or a failure, 64 usage, 77 no GPU.\n";

/// What the figures of the three have to be read with.
inline constexpr const char* kCaveats =
    "For fp16, standard attention here keeps S and dP in fp32: 12 bytes a score forward and 18\n"
    "backward, where one that stores them in 16 bits moves 8 and 14. So the ratio of its bytes to\n"
    "FlashAttention's is larger than with such a one.\n"
    "The times of FlashAttention-1 and -2 differ also in tuning: FlashAttention-2's tiles were\n"
    "tuned for time, FlashAttention-1's chosen for few passes over Q and O.\n";

namespace detail {

inline int whole_number(const std::string& option, std::string_view text, int least = 1) {
  const auto x = example::number<int>(text);
  if (!x || *x < least) {
    throw UsageError(option + " needs whole numbers from " + std::to_string(least) + ", not '" +
                     std::string(text) + "'.");
  }
  return *x;
}

inline std::vector<int> lengths(const std::string& option, std::string_view text) {
  constexpr int kLeast = 16;  // errors are relative, and a single key has no gradient
  std::vector<int> numbers;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    numbers.push_back(whole_number(option, text.substr(at, comma - at), kLeast));
    at = comma + 1;
  }
  return numbers;
}

/// The place of `text` among the names.
template <std::size_t kCount>
int choose(const std::string& option, const std::string& text, const char* const (&names)[kCount]) {
  std::string all;
  for (std::size_t i = 0; i < kCount; ++i) {
    if (text == names[i]) return static_cast<int>(i);
    all += std::string(i == 0 ? "" : ", ") + names[i];
  }
  throw UsageError(option + " needs one of " + all + ", not '" + text + "'.");
}

/// Shapes of as many tokens, and above 16k of as many scores' rows, at every length.
inline std::vector<Problem> sweep(Problem problem) {
  constexpr int kTokens = 16384;
  const int heads = 2048 / problem.dim;
  std::vector<Problem> problems;
  for (int len = 1024; len <= 128 * 1024; len *= 2) {
    problem.len = len;
    problem.batch = std::max(kTokens / len, 1);
    problem.heads = len <= kTokens ? heads : std::max(heads * kTokens / len, 1);
    problems.push_back(problem);
  }
  return problems;
}

/// Refuses `others` beside `whole`, an option that chooses what they would.
inline void refuse_beside(const std::vector<std::string>& words, const std::string& whole,
                          std::initializer_list<const char*> others) {
  const auto given = [&](const std::string& option) {
    return std::find(words.begin(), words.end(), option) != words.end();
  };
  if (!given(whole)) return;
  for (const char* other : others) {
    if (given(other)) {
      throw UsageError(whole + " and " + other + " do not go together; see --help.");
    }
  }
}

}  // namespace detail

/// Errors   UsageError, with one sentence.
inline Options parse(const std::vector<std::string>& words) {
  Options options;
  Problem problem;
  std::vector<int> lengths = {problem.len};
  bool sweep = false;
  example::for_each_option(words, [&](const std::string& option, const auto& value) {
    if (option == "-h" || option == "--help") {
      options.help = true;
    } else if (option == "--json") {
      options.json = true;
    } else if (option == "--causal") {
      problem.causal = true;
    } else if (option == "--sweep") {
      sweep = true;
    } else if (option == "--paper") {
      problem = {.batch = 64, .heads = 16, .dim = 64, .type = Type::kFp16};
      lengths = {1024};
    } else if (option == "--batch") {
      problem.batch = detail::whole_number(option, value());
    } else if (option == "--heads") {
      problem.heads = detail::whole_number(option, value());
    } else if (option == "--head-dim") {
      constexpr const char* kDims[] = {"64", "128"};
      problem.dim = detail::choose(option, value(), kDims) == 0 ? 64 : 128;
    } else if (option == "--type") {
      constexpr const char* kTypes[] = {"fp32", "fp16"};
      problem.type = static_cast<Type>(detail::choose(option, value(), kTypes));
    } else if (option == "--seqlen") {
      lengths = detail::lengths(option, value());
    } else if (option == "--once") {
      const int algorithm = detail::choose(option, value(), kAlgorithmNames);
      const int direction = detail::choose(option, value(), kDirectionNames);
      options.once = {static_cast<Algorithm>(algorithm), static_cast<Direction>(direction)};
    } else {
      return false;
    }
    return true;
  });
  detail::refuse_beside(words, "--paper",
                        {"--batch", "--heads", "--head-dim", "--type", "--seqlen", "--sweep"});
  detail::refuse_beside(words, "--sweep", {"--batch", "--heads", "--seqlen"});
  for (const int len : lengths) {
    problem.len = len;
    options.problems.push_back(problem);
  }
  if (sweep) options.problems = detail::sweep(problem);
  return options;
}

}  // namespace algorithms
