// SPDX-License-Identifier: MIT
#include "sim/report.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <string>
#include <unwind.h>
#include <vector>

namespace sim {
namespace {

std::string file_name(std::string path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::vector<std::string> find_lines(const void* pc) {
  Dl_info info{};
  if (pc == nullptr || dladdr(pc, &info) == 0) return {};
  // The return address lies behind the call.
  const std::uintptr_t offset =
      reinterpret_cast<std::uintptr_t>(pc) - 1 - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  std::array<char, 64> address{};
  std::snprintf(address.data(), address.size(), "0x%zx", static_cast<std::size_t>(offset));
  const std::string command =
      std::string("addr2line -i -e '") + info.dli_fname + "' " + address.data() + " 2>/dev/null";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::vector<std::string> lines;
  std::array<char, 512> line{};
  while (pipe != nullptr && std::fgets(line.data(), line.size(), pipe.get()) != nullptr) {
    const std::string text = line.data();
    lines.push_back(text.substr(0, text.find_first_of(" \n")));
  }
  return lines;
}

/// The lines that a place in the program stands for: the one in the innermost of the functions that
/// were inlined there first.
const std::vector<std::string>& lines_of(const void* pc) {
  static std::map<const void*, std::vector<std::string>> known;
  const auto [found, is_new] = known.try_emplace(pc);
  if (is_new) found->second = find_lines(pc);
  return found->second;
}

bool is_in(const std::string& line, const char* folder) { return line.find(folder) != line.npos; }

/// The running thread's return addresses, the innermost first.
std::vector<const void*> callers() {
  std::vector<const void*> addresses;
  const auto add = [](_Unwind_Context* context, void* to) {
    auto& all = *static_cast<std::vector<const void*>*>(to);
    all.push_back(reinterpret_cast<const void*>(_Unwind_GetIP(context)));
    return all.size() < 32 ? _URC_NO_REASON : _URC_END_OF_STACK;
  };
  _Unwind_Backtrace(add, &addresses);
  return addresses;
}

}  // namespace

std::string place_of(const void* pc) {
  static std::map<const void*, std::string> known;
  std::string& place = known[pc];
  if (!place.empty()) return place;
  for (const std::string& line : lines_of(pc)) {
    if (is_in(line, "/attile/arch/")) continue;
    if (place.empty()) {
      place = file_name(line);
    } else if (!is_in(line, "/attile/tile/")) {
      place += ", from " + file_name(line);
    }
    if (!is_in(line, "/attile/tile/")) break;
  }
  if (place.empty()) place = "an unknown place";
  return place;
}

std::string calling_line(const void* pc) {
  bool is_there = pc == nullptr, is_in_tile = false;
  for (const void* const caller : callers()) {
    is_there = is_there || caller == pc;
    if (!is_there) continue;
    for (const std::string& line : lines_of(caller)) {
      if (is_in(line, "/attile/arch/")) continue;
      if (!is_in(line, "/attile/tile/") && is_in_tile) return file_name(line);
      is_in_tile = is_in_tile || is_in(line, "/attile/tile/");
    }
  }
  return {};
}

std::string place_here(const void* pc) {
  const std::string place = place_of(pc);
  const auto& lines = lines_of(pc);
  if (lines.empty() || !is_in(lines.back(), "/attile/tile/")) return place;
  const std::string caller = calling_line(pc);
  return caller.empty() ? place : place + ", from " + caller;
}

std::string place_of(const std::source_location& at) {
  return file_name(at.file_name()) + ":" + std::to_string(at.line());
}

constexpr const char* kVerbs[][2] = {{"reads ", "writes "},
                                     {"atomic, ", "atomic, "},
                                     {"copies from ", "copies to "},
                                     {"matrix rows of ", "matrix rows of "}};

void print_counts(std::FILE* file, int launch, const LaunchCounts& counts) {
  const auto print = [&](const char* metric, Space space, Access access,
                         std::uint64_t Instruction::*number) {
    std::fprintf(file, "%d %s %llu\n", launch, metric,
                 static_cast<unsigned long long>(counts.sum(space, access, number)));
  };
  print("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", Space::kDevice, Access::kRead,
        &Instruction::sectors);
  print("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", Space::kDevice, Access::kWrite,
        &Instruction::sectors);
  std::fprintf(file, "%d lts__t_sectors_srcunit_tex_op_read.sum %llu\n", launch,
               static_cast<unsigned long long>(counts.l2_read_sectors));
  print("lts__t_sectors_srcunit_tex_op_write.sum", Space::kDevice, Access::kWrite,
        &Instruction::sectors);
  print("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", Space::kShared, Access::kRead,
        &Instruction::wavefronts);
  print("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum", Space::kShared, Access::kWrite,
        &Instruction::wavefronts);
  print("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum", Space::kShared, Access::kRead,
        &Instruction::bank_conflicts);
  print("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum", Space::kShared, Access::kWrite,
        &Instruction::bank_conflicts);
  for (const Instruction& i : counts.instructions) {
    std::fprintf(file, "# %s: %s%u bytes of %s memory, %llu times, ", place_of(i.pc).c_str(),
                 kVerbs[static_cast<int>(i.way)][i.access == Access::kRead ? 0 : 1], i.bytes,
                 i.space == Space::kDevice ? "device" : "shared",
                 static_cast<unsigned long long>(i.executions));
    if (i.space == Space::kDevice) {
      std::fprintf(file, "%llu sectors\n", static_cast<unsigned long long>(i.sectors));
    } else {
      std::fprintf(file, "%llu wavefronts, %llu conflicts\n",
                   static_cast<unsigned long long>(i.wavefronts),
                   static_cast<unsigned long long>(i.bank_conflicts));
    }
  }
  std::fflush(file);
}

}  // namespace sim
