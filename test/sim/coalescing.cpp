// SPDX-License-Identifier: MIT
#include "sim/coalescing.h"

#include <algorithm>
#include <array>
#include <utility>

namespace sim {
namespace {

constexpr unsigned kBanks = 32;
constexpr unsigned kBankBytes = 4;

/// Different numbers, in order; a warp's access has no more than one word for each lane and bank.
class Different {
 public:
  void add(std::uint64_t x) { numbers_[size_++] = x; }
  void finish() {
    std::sort(begin(), end());
    size_ = static_cast<std::size_t>(std::unique(begin(), end()) - begin());
  }
  std::uint64_t* begin() { return numbers_.data(); }
  std::uint64_t* end() { return numbers_.data() + size_; }
  std::size_t size() const { return size_; }

 private:
  std::array<std::uint64_t, 4 * kWarpSize> numbers_;
  std::size_t size_ = 0;
};

/// The units of memory that those lanes touch.
Different units(const WarpAccess& access, unsigned bytes, unsigned unit, int first, int count) {
  Different found;
  for (int lane = first; lane < first + count; ++lane) {
    if ((access.lanes >> lane & 1u) == 0) continue;
    const std::uint64_t begin = access.address[lane];
    for (std::uint64_t u = begin / unit; u <= (begin + bytes - 1) / unit; ++u) found.add(u);
  }
  found.finish();
  return found;
}

/// Passes of lanes that go together: as many as the busiest bank has different words.
unsigned passes(Different words) {
  std::array<unsigned, kBanks> in_bank{};
  for (const std::uint64_t word : words) ++in_bank[word % kBanks];
  return *std::max_element(in_bank.begin(), in_bank.end());
}

/// Lanes that go together. A warp takes 128 bytes at a time, so with 8 bytes each half of it goes,
/// with 16 a quarter; but a read of 16 bytes goes by halves where no quad of lanes reads more than
/// two addresses (bench/log/tuning-portable.md, "Shared reads of 16 bytes").
int lanes_together(const WarpAccess& access, unsigned bytes, bool halves) {
  if (bytes <= kBankBytes) return kWarpSize;
  const int lanes = static_cast<int>(kBanks * kBankBytes / bytes);
  if (bytes != 16 || !halves) return lanes;
  for (int quad = 0; quad < kWarpSize; quad += 4) {
    if (units(access, bytes, bytes, quad, 4).size() > 2) return lanes;
  }
  return 2 * lanes;
}

}  // namespace

unsigned sectors(const WarpAccess& access, unsigned bytes) {
  return static_cast<unsigned>(units(access, bytes, kSectorBytes, 0, kWarpSize).size());
}

Wavefronts wavefronts(const WarpAccess& access, unsigned bytes, bool halves) {
  const int together = lanes_together(access, bytes, halves);
  Wavefronts result{0, 0};
  for (int lane = 0; lane < kWarpSize; lane += together) {
    const unsigned taken = passes(units(access, bytes, kBankBytes, lane, together));
    result.taken += taken;
    result.ideal += taken > 0 ? 1 : 0;
  }
  return result;
}

void MemoryCounts::add(const Instruction& kind, const WarpAccess& access) {
  Instruction& sum = instructions_.try_emplace({kind.pc, kind.space}, kind).first->second;
  ++sum.executions;
  if (kind.space == Space::kDevice) {
    sum.sectors += sectors(access, kind.bytes);
  } else {
    const bool halves = kind.access == Access::kRead && kind.way != Way::kMatrix;
    const Wavefronts counted = wavefronts(access, kind.bytes, halves);
    sum.wavefronts += counted.taken;
    sum.bank_conflicts += counted.taken - counted.ideal;
  }
}

LaunchCounts MemoryCounts::take(const Grid& grid) {
  LaunchCounts counts{grid, {}, std::exchange(l2_read_sectors_, 0)};
  for (const auto& [place, instruction] : instructions_) counts.instructions.push_back(instruction);
  instructions_.clear();
  return counts;
}

std::uint64_t LaunchCounts::sum(Space space, Access access, std::uint64_t Instruction::*number,
                                Way way) const {
  std::uint64_t total = 0;
  for (const Instruction& i : instructions) {
    if (i.space == space && i.access == access && i.way == way) total += i.*number;
  }
  return total;
}

void WarpRecord::touch(int lane, const Instruction& kind, std::uint64_t address) {
  Stream& stream = streams_[{kind.pc, kind.space}];
  stream.kind = kind;
  const std::uint32_t time = stream.times[lane]++;
  if (time >= stream.accesses.size()) stream.accesses.resize(time + 1);
  WarpAccess& access = stream.accesses[time];
  access.lanes |= 1u << lane;
  access.address[lane] = address;
}

void WarpRecord::flush(MemoryCounts& counts) {
  for (auto& [place, stream] : streams_) {
    for (const WarpAccess& access : stream.accesses) counts.add(stream.kind, access);
    stream.accesses.clear();
    stream.times = {};
  }
}

}  // namespace sim
