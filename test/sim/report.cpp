// SPDX-License-Identifier: MIT
#include "sim/report.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <dlfcn.h>
#include <memory>

namespace sim {
namespace {

std::string file_name(std::string path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

}  // namespace

std::string place_of(const void* pc) {
  Dl_info info{};
  if (pc == nullptr || dladdr(pc, &info) == 0) return "an unknown place";
  // The return address lies behind the call.
  const std::uintptr_t offset =
      reinterpret_cast<std::uintptr_t>(pc) - 1 - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  std::array<char, 64> address{};
  std::snprintf(address.data(), address.size(), "0x%zx", static_cast<std::size_t>(offset));
  const std::string command =
      std::string("addr2line -e '") + info.dli_fname + "' " + address.data() + " 2>/dev/null";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::array<char, 512> line{};
  if (pipe == nullptr || std::fgets(line.data(), line.size(), pipe.get()) == nullptr) {
    return "an unknown place";
  }
  std::string place = file_name(line.data());
  return place.substr(0, place.find_first_of(" \n"));
}

std::string place_of(const std::source_location& at) {
  return file_name(at.file_name()) + ":" + std::to_string(at.line());
}

}  // namespace sim
