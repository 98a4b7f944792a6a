// SPDX-License-Identifier: MIT
// Writes a file whole or not at all.
//
// Every failure is a FileError whose text is one sentence that names the file and the reason.
#pragma once

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace example {

struct FileError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The file that a path names: the end of a chain of symbolic links, which need not exist.
/// Errors   `error`: a link cannot be read, or there are too many.
inline std::filesystem::path link_target(std::filesystem::path path, std::error_code& error) {
  namespace fs = std::filesystem;
  constexpr int kMostLinks = 40;
  error.clear();
  for (int links = 0; fs::is_symlink(fs::symlink_status(path, error)); ++links) {
    if (links == kMostLinks) {
      error = std::make_error_code(std::errc::too_many_symbolic_link_levels);
      return path;
    }
    const fs::path to = fs::read_symlink(path, error);
    if (error) return path;
    path = path.parent_path() / to;  // `to` alone where that is absolute
  }
  error.clear();  // that there is no file is none
  return path;
}

/// A file to be written. The constructor fails unless it can be created; `write` fills a temporary
/// file beside it, which `commit` gives its name: beside the target of a symbolic link, which stays
/// a link. The file that was there keeps its content until then, and its permissions. The
/// destructor removes what was not committed.
class OutputFile {
 public:
  explicit OutputFile(std::string path) : path_(std::move(path)) {
    namespace fs = std::filesystem;
    std::error_code error;
    const fs::file_status status = fs::status(path_, error);
    target_ = link_target(path_, error);
    if (error) unwritable(error.message());
    if (fs::exists(status)) {
      if (!fs::is_regular_file(status)) {
        throw FileError(path_ + " cannot be written: it is not a regular file.");
      }
      permissions_ = status.permissions();
      // Opened as if to be written to, which leaves it as it is: a rename would replace a file that
      // is for reading only.
      std::FILE* const old = std::fopen(target_.c_str(), "r+b");
      if (old == nullptr) unwritable(std::generic_category().message(errno));
      std::fclose(old);
    }
    char suffix[16];
    std::snprintf(suffix, sizeof suffix, ".%08x", static_cast<unsigned>(std::random_device{}()));
    temporary_ = target_.string() + suffix;
    std::FILE* probe = open();  // a probe only: an interrupted computation must leave nothing
    std::fclose(probe);
    remove();
  }
  ~OutputFile() { remove(); }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Writes the pieces, one after another, into the temporary file.
  void write(std::initializer_list<std::string_view> pieces) {
    std::FILE* file = open();
    bool ok = true;
    for (const std::string_view piece : pieces) {
      ok = ok && std::fwrite(piece.data(), 1, piece.size(), file) == piece.size();
    }
    ok = std::fflush(file) == 0 && ok;
    if (std::fclose(file) != 0 || !ok) unwritable("the device is full or failed");
  }

  void commit() {
    namespace fs = std::filesystem;
    std::error_code error;
    if (permissions_ != fs::perms::unknown) fs::permissions(temporary_, permissions_, error);
    if (!error) fs::rename(temporary_, target_, error);
    if (error) unwritable(error.message());
    exists_ = false;
  }

 private:
  [[noreturn]] void unwritable(const std::string& reason) const {
    const bool is_link = target_ != path_;
    throw FileError(path_ + (is_link ? ", a link to " + target_.string() + "," : "") +
                    " cannot be written: " + reason + ".");
  }

  std::FILE* open() {
    std::FILE* file = std::fopen(temporary_.c_str(), "wbx");  // x: never over another's file
    if (file == nullptr) unwritable(std::generic_category().message(errno));
    exists_ = true;
    return file;
  }

  void remove() {
    if (exists_) std::remove(temporary_.c_str());
    exists_ = false;
  }

  std::string path_;
  std::filesystem::path target_;
  std::filesystem::perms permissions_ = std::filesystem::perms::unknown;  ///< of a file there
  std::string temporary_;
  bool exists_ = false;
};

}  // namespace example
