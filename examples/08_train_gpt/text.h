// SPDX-License-Identifier: MIT
// The text that is learned, and batches of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace gpt {

/// The bytes are the tokens: no tokenizer is needed.
inline constexpr int kVocabulary = 256;

struct TextError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Sequences of one step: the target of each token is the token behind it.
struct Batch {
  std::vector<int> tokens, targets;
};

namespace detail {

namespace fs = std::filesystem;

inline std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw TextError("cannot read the text " + path.string() + ".");
  return text;
}

inline bool is_text(const fs::path& path) {
  const std::string extension = path.extension().string();
  for (const char* known : {".h", ".cuh", ".cu", ".cpp", ".py", ".md", ".txt"}) {
    if (extension == known) return true;
  }
  return false;
}

/// All files of text of a folder, in the order of their names.
inline std::string read_folder(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && is_text(entry.path())) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::string text;
  for (const fs::path& file : files) text += read_file(file);
  return text;
}

/// attile's headers and documents, if `from` is in its repository; else nothing.
inline std::string read_repository(fs::path from) {
  for (; from.has_relative_path(); from = from.parent_path()) {
    if (fs::exists(from / "include" / "attile" / "attile.cuh") && fs::exists(from / "docs")) {
      return read_folder(from / "include") + read_folder(from / "docs");
    }
  }
  return {};
}

}  // namespace detail

/// The text of a file or a folder; of the repository around the current folder, or around the
/// program, where `name` is empty.
/// Errors   TextError, with one sentence.
inline std::string read_text(const std::string& name, const std::string& program) {
  namespace fs = std::filesystem;
  if (!name.empty())
    return fs::is_directory(name) ? detail::read_folder(name) : detail::read_file(name);
  std::string text = detail::read_repository(fs::current_path());
  if (text.empty()) text = detail::read_repository(fs::absolute(program).lexically_normal());
  if (text.empty()) throw TextError("attile's repository is not here: name a text by --text.");
  return text;
}

/// Sequences from random places of the text; the seed and the step decide which.
inline Batch draw(const std::string& text, int batch, int len, int seed, int step) {
  std::seed_seq mixed{seed, step};
  std::mt19937 random(mixed);
  std::uniform_int_distribution<std::size_t> places(0, text.size() - len - 1);
  Batch drawn;
  for (int b = 0; b < batch; ++b) {
    const char* const at = text.data() + places(random);
    for (int t = 0; t < len; ++t) {
      drawn.tokens.push_back(static_cast<unsigned char>(at[t]));
      drawn.targets.push_back(static_cast<unsigned char>(at[t + 1]));
    }
  }
  return drawn;
}

}  // namespace gpt
