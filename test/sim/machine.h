// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>
#include <vector>

// A GPU that runs one block after another, each of its threads a fiber. Threads change places only
// where they wait for each other, in an order that the seed decides. Every load and store is seen
// (callbacks.cpp); what no order of a real machine's threads is safe from is reported:
//
//   race           two threads touch the same bytes, one of them writes, and no barrier orders
//   them;
//                  or two blocks, and no release that the other one acquired
//   uninitialised  a read of bytes that nobody has written
//   bounds         an access of device memory outside of every allocation, or of shared memory
//                  outside of what the launch asked for
//   misaligned     an access that does not lie at a multiple of its size
//   divergence     lanes of a warp that meet in different collectives
//   deadlock       threads that wait for each other, or for one that has ended
//
// Each with the thread, the address and the line of the source.

namespace sim {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kFullMask = 0xFFFFFFFFu;
inline constexpr std::size_t kMaxSharedBytes = 232448;
inline constexpr unsigned kMaxThreads = 1024;

// ---- the host's side ----------------------------------------------------------------------------

struct Grid {
  unsigned blocks, threads;
  std::size_t shared_bytes;
};

/// Runs the kernel to its end. cudaErrorInvalidConfiguration for a grid that no device takes. After
/// a report the launch is given up, and cudaErrorLaunchFailure is what the next call of the
/// run-time library returns.
cudaError_t launch(const Grid& grid, const std::function<void()>& kernel);

/// Decides the order in which threads run from here on; ATTILE_SIM_SEED does at the start.
void set_seed(std::uint64_t seed);

struct Report {
  std::string kind;  ///< one of those above
  std::string text;  ///< who, where, and what about it
};

/// What was reported since the last call; forgets it, and the error of the run-time library with
/// it.
std::vector<Report> take_reports();

/// What kernels have done since the last reset.
struct Counters {
  std::uint64_t blocks = 0;
  std::uint64_t barriers = 0;  ///< of whole blocks, each counted once
  std::uint64_t exps = 0;      ///< arch::exp2, of all threads
};
Counters counters();
void reset_counters();

/// Bytes that kernels have read from and written to an allocation, by all their threads; an atomic
/// counts as both.
struct Traffic {
  std::uint64_t read = 0, written = 0;
};
Traffic traffic(const void* allocation);

// ---- the kernel's side: what attile/arch is made of
// -----------------------------------------------

int thread_index();
int block_index();
unsigned char* dynamic_shared();

using Lanes = std::array<std::uint32_t, kWarpSize>;

void block_barrier(std::source_location at);
void warp_barrier(unsigned mask, std::source_location at);
/// The value that each lane brought. Orders no memory access, as on the device.
Lanes exchange(unsigned mask, std::uint32_t value, std::source_location at);

/// Counts one exponential.
void count_exp();

void atomic_add(float* address, float x, std::source_location at);
int fetch_add(int* address, int x, std::source_location at);
int load_acquire(const int* address, std::source_location at);
void store_release(int* address, int x, std::source_location at);

// ---- for callbacks.cpp and runtime.cpp
// ------------------------------------------------------------

enum class Access { kRead, kWrite };

/// A load or store of the running thread, if one is running. `pc`: where in the program.
void access(const void* address, std::size_t bytes, Access access, const void* pc);

/// Device memory; its bytes are uninitialised.
void* allocate(std::size_t bytes);
bool release_memory(void* address);
/// cudaErrorLaunchFailure as long as there is a report that nobody took.
cudaError_t last_error();
/// Bytes that the host has written.
void initialise(const void* address, std::size_t bytes);

}  // namespace sim
