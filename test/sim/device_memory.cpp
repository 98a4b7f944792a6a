// SPDX-License-Identifier: MIT
#include "sim/device_memory.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sys/mman.h>

namespace sim {
namespace {

constexpr std::size_t kGap = 4096;

[[noreturn]] void give_up(const char* why) {
  std::fprintf(stderr, "sim: %s\n", why);
  std::abort();
}

}  // namespace

DeviceMemory::DeviceMemory() {
  void* const at = mmap(nullptr, kAddresses, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) give_up("no range of addresses for device memory");
  begin_ = static_cast<unsigned char*>(at);
  next_ = begin_ + kGap;
}

unsigned char* DeviceMemory::reserve(std::size_t bytes) {
  unsigned char* const at = next_;
  const std::size_t taken = (bytes + kGap - 1) / kGap * kGap + kGap;
  if (taken > static_cast<std::size_t>(begin_ + kAddresses - at)) {
    give_up("out of device addresses");
  }
  next_ += taken;
  return at;
}

void* DeviceMemory::allocate(std::size_t bytes) {
  unsigned char* const at = reserve(bytes);
  std::memset(at, kPoison, bytes);
  allocations_.emplace(at, Allocation{at, bytes, Shadow(bytes)});
  return at;
}

bool DeviceMemory::release(void* address) {
  const auto found = allocations_.find(static_cast<unsigned char*>(address));
  if (found == allocations_.end()) return false;
  last_ = nullptr;
  madvise(address, found->second.bytes, MADV_DONTNEED);
  allocations_.erase(found);
  return true;
}

Allocation* DeviceMemory::find(const unsigned char* p, std::size_t bytes) {
  const auto holds = [&](const Allocation& a) {
    return a.begin <= p && p + bytes <= a.begin + a.bytes;
  };
  if (last_ != nullptr && holds(*last_)) return last_;
  const auto next = allocations_.upper_bound(p);
  if (next == allocations_.begin()) return nullptr;
  Allocation& candidate = std::prev(next)->second;
  if (!holds(candidate)) return nullptr;
  last_ = &candidate;
  return last_;
}

}  // namespace sim
