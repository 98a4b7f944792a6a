// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/boxed_tensor.h>
#include <attile/core/vec.h>

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>
#include <vector>

// A GPU that runs a few blocks at a time, each of their threads a fiber. Threads change places only
// where they wait for each other, in an order that the seed decides. Every load and store is seen
// (callbacks.cpp); what no order of a real machine's threads is safe from is reported:
//
//   race           two threads touch the same bytes, one of them writes, and neither a barrier nor
//                  a release that the other one acquired orders them
//   uninitialised  a read of bytes of which some were never written
//   bounds         an access of device memory outside of every allocation, or of shared memory
//                  outside of what the launch asked for
//   misaligned     an access that does not lie at a multiple of its size
//   divergence     lanes of a warp that meet in different collectives, or with different lanes
//   in flight      an access of what an asynchronous copy writes, before the wait for it; of the
//                  registers of a warpgroup's product; copies and products that nobody waits for
//   proxy          a copy unit or a product reads or overwrites what a thread has written, without
//                  fence_async_proxy of that thread or, where it reads, of those behind it who told
//                  it to
//   registers      a product of registers that were touched behind the last wgmma_fence; a wrong
//                  number of registers
//   barrier        a named barrier with a wrong number, count, or company
//   mbarrier       one that is not initialised, has too many arrivals or bytes, or is touched as
//                  memory; a wait that has missed its phase
//   cluster        a block or its place in a cluster that is not there, or has ended; the cluster's
//                  barrier without an arrival, or with two; a block that ends while others may
//                  still arrive at it or copy to it
//   dependency     an access of what the kernel before has written, or read, by a thread to which
//                  no await_dependencies has told that it has ended; a block that ends without one
//   deadlock       threads that wait for each other, or for one that has ended
//
// Each with the thread, the address and the line of the source.

namespace sim {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;
inline constexpr std::size_t kMaxSharedBytes = 232448;
inline constexpr unsigned kMaxThreads = 1024;
inline constexpr int kBarriers = 16;
inline constexpr unsigned kMostResident = 3;  ///< blocks, without clusters
inline constexpr unsigned kSlots = 4;         ///< places for blocks

// ---- the host's side ----------------------------------------------------------------------------

struct Grid {
  unsigned blocks, threads;
  std::size_t shared_bytes;
  unsigned cluster = 1;    ///< blocks that run together: 1, 2 or 4, a divisor of `blocks`
  bool dependent = false;  ///< on a device it might begin before the launch before it has ended
};

/// Runs the kernel to its end. cudaErrorInvalidConfiguration for a grid that no device takes. After
/// a report the launch is given up, and cudaErrorLaunchFailure is what the next call of the
/// run-time library returns.
cudaError_t launch(const Grid& grid, const std::function<void()>& kernel);

/// Decides the order in which threads run from here on; ATTILE_SIM_SEED does at the start.
void set_seed(std::uint64_t seed);

/// How many clusters of `cluster` blocks run beside each other at most; 0 if none do.
constexpr unsigned most_clusters(unsigned cluster) {
  if (cluster == 1) return kMostResident;
  return cluster == 2 || cluster == 4 ? kSlots / cluster : 0;
}
/// How many blocks run beside each other from here on, or clusters of them: 1 to kMostResident, as
/// far as there are places; with 0, as at the start, the seed decides for each launch.
void set_residency(unsigned clusters);

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
  std::uint64_t mma_flops = 0;
};
Counters counters();
void reset_counters();

/// Bytes that kernels have read from and written to an allocation, by all their threads; an atomic
/// counts as both.
struct Traffic {
  std::uint64_t read = 0, written = 0;
};
Traffic traffic(const void* allocation);

enum class Space { kDevice, kShared };
enum class Access { kRead, kWrite };
enum class Way { kFastPath, kAtomic, kAsynchronous, kMatrix, kBulk };

/// A load or store in the program, and what all warps of a launch together did there. Units: bytes
/// that one lane moves; 32-byte sectors of device memory; passes through the banks of shared
/// memory, and how many of them there were beyond those that such an access takes at best.
struct Instruction {
  const void* pc = nullptr;  ///< sim::place_of (report.h) has its line
  Space space = Space::kDevice;
  Access access = Access::kRead;
  Way way = Way::kFastPath;
  unsigned bytes = 0;
  std::uint64_t executions = 0;  ///< by a warp
  std::uint64_t sectors = 0;
  std::uint64_t wavefronts = 0, bank_conflicts = 0;
};

struct LaunchCounts {
  Grid grid;
  std::vector<Instruction> instructions;
  /// Sectors of device memory that a block reads at all, over all blocks: what is asked of L2 where
  /// L1 keeps what a block has read.
  std::uint64_t l2_read_sectors = 0;

  /// The sum over those of a kind, of one of the numbers above.
  std::uint64_t sum(Space space, Access access, std::uint64_t Instruction::*number,
                    Way way = Way::kFastPath) const;
};

/// Whether instructions are counted from here on, which takes time. The variable
/// ATTILE_SIM_COUNTERS in the environment has them counted, and printed after each launch.
void count_instructions(bool on);
/// Those of the launches since the last call, in order.
std::vector<LaunchCounts> take_launches();

// ---- the kernel's side: what attile/arch is made of
// -----------------------------------------------

int thread_index();
int block_index();
unsigned char* dynamic_shared();

void block_barrier(std::source_location at);
/// Comes to a barrier that `threads` threads come to, and waits for them or goes on.
void named_barrier(int id, int threads, bool waits, std::source_location at);
/// Waits there, and says whether x was true of any of them.
bool barrier_vote(int id, int threads, bool x, std::source_location at);
void warp_barrier(unsigned lanes, std::source_location at);
/// The value that lane `from` brought. Orders no memory access, as on the device.
std::uint32_t shuffle(unsigned lanes, std::uint32_t value, int from, std::source_location at);
/// The lanes that brought true.
std::uint32_t vote(unsigned lanes, bool value, std::source_location at);

using Operands = std::array<std::uint32_t, 6>;
/// What each lane of the warp brought, until the lane meets others again; orders nothing.
const std::array<Operands, kWarpSize>& exchange(const Operands& mine, std::source_location at);

/// Counts one exponential.
void count_exp();

void atomic_add(float* address, float x, std::source_location at);
void atomic_add(float* address, const attile::Float4& x, std::source_location at);
void atomic_max(float* address, float x, std::source_location at);
int fetch_add(int* address, int x, std::source_location at);
/// One access of `bytes` bytes.
void load(void* to, const void* address, std::size_t bytes);
void store(void* address, const void* from, std::size_t bytes);
/// The address that instructions on shared memory take, and what lies there.
std::uint32_t shared_address(const void* p);
unsigned char* at_shared(std::uint32_t address);
/// Copies 4 or 16 bytes, or zeros, to shared memory, at the latest moment: the thread's wait for
/// them.
void async_copy(std::uint32_t shared, const void* from, std::size_t bytes, bool there);
void async_commit();
void async_wait(int pending);
/// ldmatrix and mma.sync (matrix.cpp).
void load_matrices(std::uint32_t (&r)[4], std::uint32_t shared, bool transposed,
                   std::source_location at);
void load_matrices(std::uint32_t (&r)[2], std::uint32_t shared, bool transposed,
                   std::source_location at);
/// stmatrix.
void store_matrices(std::uint32_t shared, const std::uint32_t (&r)[4], std::source_location at);
void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                  const float* values, std::source_location at);
void mma_m16n8k32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                  const float* left_values, const float* right_values, std::source_location at);
void mma_m16n8k8_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                      std::source_location at);
int fetch_add_acq_rel(int* address, int x, std::source_location at);
int load_acquire(const int* address, std::source_location at);
void store_release(int* address, int x, std::source_location at);

// ---- the same, of compute capability 9.0
// -----------------------------------------------------------------------

int block_count();

void await_dependencies();
/// What the thread reads between these is ordered with nothing. The second one returns whether it
/// has found what the kernel before has written: of a late warp, nothing.
void begin_early_reads();
bool end_early_reads();

int cluster_rank();
int cluster_size();
void cluster_arrive(std::source_location at);
void cluster_wait(std::source_location at);

void mbarrier_init(void* barrier, int arrivals);
void mbarrier_publish();
/// Arrives, after announcing that many bytes.
void mbarrier_arrive(void* barrier, std::int64_t bytes);
/// Arrives at the barrier there in the cluster's block `rank`.
void mbarrier_arrive_behind_copies(void* barrier);
void mbarrier_arrive_in(int rank, void* barrier);
void mbarrier_wait(void* barrier, int parity, std::source_location at);

using attile::arch::BoxedTensor;
using Coord = attile::arch::TmaCoord;
/// A box lands when the seed has it, at the latest when nothing else can go on.
void bulk_load(std::uint32_t shared, const BoxedTensor& map, const Coord& coord, void* barrier);
/// To each of `blocks`, a bit for each by its place in the cluster.
void bulk_load_multicast(std::uint32_t shared, const BoxedTensor& map, const Coord& coord,
                         void* barrier, std::uint32_t blocks);
/// Reads shared memory at the latest moment: the thread's wait for it.
void bulk_store(const BoxedTensor& map, const Coord& coord, std::uint32_t shared);
/// Likewise, `bytes` neighbouring bytes; adds so many bytes of floats.
void bulk_store(float* to, std::uint32_t shared, int bytes);
void bulk_add(float* to, std::uint32_t shared, int bytes);
void bulk_commit();
void bulk_wait_read(int pending);
void bulk_wait(int pending);
void fence_async_proxy();

/// setmaxnreg; `more`: or fewer.
void set_registers(int count, bool more, std::source_location at);

/// wgmma.m64nNk16, and m64nNk32 of 8-bit elements: what all threads of the warpgroup agree on.
struct ProductForm {
  int n;
  std::uint64_t a, b;  ///< descriptors; of a: 0, where it lies in registers
  bool a_in_registers, transposed_a, transposed_b, accumulate;
  int element_bytes;
  const float *values_a, *values_b;  ///< of the operands' bits: values_of<T>()

  bool operator==(const ProductForm&) const = default;
};
/// Reads the operands and writes the n / 2 sums at the latest moment: the wait for its group.
void begin_product(const ProductForm& form, float* sums, const std::uint32_t* a,
                   std::source_location at);
void fence_registers(std::source_location at);
void close_products(std::source_location at);
void wait_for_products(int pending, std::source_location at);

// ---- for callbacks.cpp, runtime.cpp and matrix.cpp
// ------------------------------------------------------------

/// A load or store of the running thread, if one is running. `pc`: where in the program.
void access(const void* address, std::size_t bytes, Access access, const void* pc);
/// For matrix.cpp: a row whose address a lane gives, which is counted; and what a lane gets of it,
/// or writes there.
void matrix_row(const void* address, Access access, const void* pc);
void matrix_element(const void* address, std::size_t bytes, Access access, const void* pc);
void count_flops(std::uint64_t flops);

/// Device memory; its bytes are uninitialised.
void* allocate(std::size_t bytes);
bool release_memory(void* address);
/// cudaErrorLaunchFailure as long as there is a report that nobody took.
cudaError_t last_error();
/// Bytes that the host has written.
void initialise(const void* address, std::size_t bytes);

}  // namespace sim
