// SPDX-License-Identifier: MIT
// The command line of 08_train_gpt.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "../command_line.h"

namespace gpt {

struct Options {
  int steps = 300, layers = 4, heads = 4, len = 512, batch = 16;
  int seed = 1, report_every = 20;
  double rate = 1e-3;
  std::string attention = "both", text;
  bool help = false;
};

inline constexpr const char* kHelp =
    "usage: 08_train_gpt [--steps N] [--layers N] [--heads N] [--seqlen N] [--batch N]\n"
    "                    [--rate X] [--seed N] [--text FILE] [--attention both|attile|standard]\n"
    "                    [--report N]\n\n"
    "Trains a small GPT to predict the next byte of a text: attile computes attention, cuBLAS the\n"
    "products. Then it trains it again with standard attention, which writes the whole matrix of\n"
    "scores, and prints both loss curves: they are the same.\n"
    "  --steps      default 300\n"
    "  --layers, --heads  default 4 and 4; the width is 64 columns for each head\n"
    "  --seqlen, --batch  tokens of a sequence (default 512), and sequences of a step (16)\n"
    "  --rate       the highest learning rate (0.001); it rises in the first tenth of the steps,\n"
    "               and falls as a cosine\n"
    "  --seed       decides the weights and the order of the text (1)\n"
    "  --text       a file, or a folder whose files of text are taken; default: attile's own\n"
    "               headers and documents, where this is run in its repository\n"
    "  --attention  both (the default), or attile or standard alone, which compares nothing\n"
    "  --report     steps from one line of progress to the next (20)\n"
    "  -h, --help   prints this\n"
    "Exit codes: 0 done, 1 the curves differ or a failure, 64 usage, 77 no GPU.\n";

using example::UsageError;

namespace detail {

inline int whole_number(const std::string& option, const std::string& text, int least, int most) {
  const auto x = example::number<int>(text);
  if (!x || *x < least || *x > most) {
    throw UsageError(option + " needs a whole number from " + std::to_string(least) + " to " +
                     std::to_string(most) + ", not '" + text + "'.");
  }
  return *x;
}

inline double learning_rate(const std::string& text) {
  char* stop = nullptr;
  const double x = std::strtod(text.c_str(), &stop);
  if (text.empty() || *stop != '\0' || !(x > 0 && x <= 1)) {
    throw UsageError("--rate needs a number above 0, up to 1, not '" + text + "'.");
  }
  return x;
}

inline std::string way(const std::string& text) {
  if (text == "both" || text == "attile" || text == "standard") return text;
  throw UsageError("--attention needs one of both, attile, standard, not '" + text + "'.");
}

/// An option that takes a whole number.
struct Number {
  using Member = int Options::*;
  const char* option;
  Member member;
  int least, most;
};
inline constexpr Number kNumbers[] = {
    {"--steps", &Options::steps, 2, 1'000'000},
    {"--layers", &Options::layers, 1, 1000},
    {"--heads", &Options::heads, 1, 64},
    {"--seqlen", &Options::len, 1, 1 << 20},
    {"--batch", &Options::batch, 1, 1 << 20},
    {"--seed", &Options::seed, 0, 1 << 30},
    {"--report", &Options::report_every, 1, 1'000'000},
};

/// Whether there is such an option; sets it to value() if so.
template <class Value>
bool set(Options& options, const std::string& option, const Value& value) {
  if (option == "-h" || option == "--help") return options.help = true;
  if (option == "--text") return options.text = value(), true;
  if (option == "--rate") return options.rate = learning_rate(value()), true;
  if (option == "--attention") return options.attention = way(value()), true;
  for (const Number& n : kNumbers) {
    if (option != n.option) continue;
    options.*n.member = whole_number(option, value(), n.least, n.most);
    return true;
  }
  return false;
}

}  // namespace detail

/// Errors   UsageError, with one sentence.
inline Options parse(const std::vector<std::string>& words) {
  Options options;
  example::for_each_option(words, [&](const std::string& option, const auto& value) {
    return detail::set(options, option, value);
  });
  // The kernels of the layers count elements in 32 bits; the widest rows are 4 * 64 a head.
  if (std::int64_t{256} * options.heads * options.batch * options.len > INT32_MAX) {
    throw UsageError("--batch times --seqlen times --heads must be below 8388608.");
  }
  return options;
}

}  // namespace gpt
