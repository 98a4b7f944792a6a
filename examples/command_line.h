// SPDX-License-Identifier: MIT
// What the command lines of the example programs have in common.
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace example {

/// What is wrong with a command line, in one sentence.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The whole of `text` as a number, or nothing.
template <class Number>
std::optional<Number> number(std::string_view text) {
  Number x{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return x;
}

/// Calls set(option, value) for each option, which says whether there is such a one; value() is the
/// word behind it, which is then no option.
/// Errors   UsageError: there is no such option, or no value.
template <class Set>
void for_each_option(const std::vector<std::string>& words, const Set& set) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& option = words[i];
    const auto value = [&]() -> const std::string& {
      if (i + 1 == words.size()) throw UsageError(option + " needs a value.");
      return words[++i];
    };
    if (!set(option, value)) throw UsageError("there is no option '" + option + "'; see --help.");
  }
}

}  // namespace example
