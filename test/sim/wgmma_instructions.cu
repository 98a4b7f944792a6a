// SPDX-License-Identifier: MIT
// As instructions.cu, for the instructions of compute capability 9.0: barriers in shared memory,
// copies of boxes, clusters, registers and products of a warpgroup. All numbers are small and
// whole, so that sums are exact, and each result is also held against a plain loop.
#include <attile/arch/attributes.h>
#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/cluster.cuh>
#include <attile/arch/device.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/matrix.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/shared_memory.cuh>
#include <attile/arch/tensor_map.cuh>
#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/arch/wgmma.cuh>
#include <attile/core/element.h>
#include <attile/core/math.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "../../examples/support.cuh"
#include "sim/instructions.h"

namespace {

namespace arch = attile::arch;
using namespace instructions;

/// Where 16 bytes lie that a tile of rows of `row_bytes` has at `offset` without its swizzle.
ATTILE_HOST_DEVICE int swizzled(int offset, int row_bytes) {
  return offset ^ (offset / 8 & (row_bytes - 16));
}

// ---- barriers and registers ---------------------------------------------------------------------

/// Warp 0 fills one of two buffers while warps 1 and 2 empty the other.
ATTILE_KERNEL void ring(std::uint32_t* out) {
  auto* const barriers = reinterpret_cast<arch::Mbarrier*>(arch::dynamic_shared());
  auto* const buffers = reinterpret_cast<std::uint32_t*>(arch::dynamic_shared() + 64);
  const int i = arch::thread_index(), lane = i % 32;
  if (i == 0) {
    for (int b = 0; b < 2; ++b) {
      arch::mbarrier_init(barriers + b, 32);
      arch::mbarrier_init(barriers + 2 + b, 2);
    }
  }
  arch::barrier();
  for (int step = 0; step < 7; ++step) {
    arch::Mbarrier* const full = barriers + step % 2;
    arch::Mbarrier* const empty = barriers + 2 + step % 2;
    std::uint32_t* const buffer = buffers + step % 2 * 32;
    if (i < 32) {
      arch::mbarrier_wait(empty, step / 2 % 2 ^ 1);
      buffer[lane] = static_cast<std::uint32_t>(step * 100 + lane);
      arch::mbarrier_arrive(full);
    } else {
      arch::mbarrier_wait(full, step / 2 % 2);
      out[step * 64 + i - 32] = buffer[lane ^ 31];
      arch::warp_barrier();
      if (lane == 0) arch::mbarrier_arrive(empty);
    }
  }
}

ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(384, 1) registers(std::uint32_t* out) {
  const int i = arch::thread_index();
  if (i < arch::kWarpgroupSize) {
    arch::reg_dealloc<24>();
    out[i] = static_cast<std::uint32_t>(i);
  } else {
    arch::reg_alloc<240>();
    out[i] = static_cast<std::uint32_t>(2 * i + arch::block_count());
  }
}

// ---- copies of boxes ----------------------------------------------------------------------------

/// A row ends inside of 16 bytes.
constexpr int kSizes[5] = {67, 5, 3, 4, 2};
/// In elements. Dimension 2 lies within a row of dimension 1.
constexpr int kStrides[5] = {1, 3 * 80, 80, 5 * 3 * 80, 4 * 5 * 3 * 80};
constexpr int kElements = 2 * kStrides[4];
constexpr int kBox[5] = {0, 4, 2, 2, 1};
constexpr int kBoxRows = 16;
/// Inside, over each end of each dimension, and outside.
constexpr arch::TmaCoord kPlaces[] = {{0, 0, 0, 0, 0},  {8, 1, 1, 2, 1},    {-8, -1, 0, 1, 0},
                                      {64, 3, 2, 3, 1}, {16, 0, -1, -1, 0}, {40, 2, 1, 0, 1},
                                      {0, 0, 0, 0, 2}};

/// What lies in shared memory when the box has come.
ATTILE_KERNEL void load_box(std::uint32_t* out, const ATTILE_GRID_CONSTANT arch::TensorMap map,
                            arch::TmaCoord at, int row_bytes) {
  auto* const words = reinterpret_cast<std::uint32_t*>(arch::dynamic_shared());
  const int bytes = kBoxRows * row_bytes;
  auto* const barrier = reinterpret_cast<arch::Mbarrier*>(arch::dynamic_shared() + bytes);
  if (arch::thread_index() == 0) {
    arch::mbarrier_init(barrier, 1);
    arch::mbarrier_publish();
    arch::mbarrier_arrive_expect(barrier, bytes);
    arch::bulk_load(arch::shared_address(words), map, at, barrier);
  }
  arch::barrier();
  arch::mbarrier_wait(barrier, 0);
  for (int w = arch::thread_index(); w < bytes / 4; w += 64) out[w] = words[w];
}

/// The box's words in shared memory are numbered from 1000 on.
ATTILE_KERNEL void store_box(const ATTILE_GRID_CONSTANT arch::TensorMap map, arch::TmaCoord at,
                             int row_bytes) {
  auto* const words = reinterpret_cast<std::uint32_t*>(arch::dynamic_shared());
  for (int w = arch::thread_index(); w < kBoxRows * row_bytes / 4; w += 64) {
    words[w] = static_cast<std::uint32_t>(1000 + w);
  }
  arch::fence_async_proxy();
  arch::barrier();
  if (arch::thread_index() != 0) return;
  arch::bulk_store(map, at, arch::shared_address(words));
  arch::bulk_commit();
  arch::bulk_wait_read<0>();
}

constexpr int kSums = 256;

/// Adds i to sums[i], twice.
ATTILE_KERNEL void add_floats(float* sums) {
  auto* const floats = reinterpret_cast<float*>(arch::dynamic_shared());
  for (int i = arch::thread_index(); i < kSums; i += 64) floats[i] = static_cast<float>(i);
  arch::fence_async_proxy();
  arch::barrier();
  if (arch::thread_index() != 0) return;
  for (int time = 0; time < 2; ++time) {
    arch::bulk_add(sums, arch::shared_address(floats), kSums * sizeof(float));
    arch::bulk_commit();
  }
  arch::bulk_wait_read<0>();
}

using Elements = std::vector<std::uint16_t>;

Words words_of(const Elements& elements) {
  Words words(elements.size() / 2);
  std::memcpy(words.data(), elements.data(), 4 * words.size());
  return words;
}

/// Calls f(element in the tensor or -1, element in shared memory) for each element of a box, where
/// the tensor's rows have so many elements.
template <class F>
void for_each_element(const arch::TmaCoord& at, int row_bytes, int row_elements, F f) {
  for (int i = 0; i < kBoxRows * row_bytes / 2; ++i) {
    const int row = i / (row_bytes / 2);
    const int coord[5] = {at.c0 + i % (row_bytes / 2), at.c1 + row % kBox[1],
                          at.c2 + row / kBox[1] % kBox[2],
                          at.c3 + row / kBox[1] / kBox[2] % kBox[3], at.c4};
    int element = 0;
    for (int d = 0; d < 5; ++d) {
      if (coord[d] < 0 || coord[d] >= (d == 0 ? row_elements : kSizes[d])) element = -1;
      if (element >= 0) element += coord[d] * kStrides[d];
    }
    f(element, swizzled(i * 2, row_bytes) / 2);
  }
}

/// The map of the tensor; with `in_bytes` its elements are their halves.
arch::TensorMap map_of(const std::uint16_t* data, int row_bytes, bool in_bytes = false) {
  const int bytes = in_bytes ? 1 : 2;
  arch::BoxedTensor tensor{data, {}, {}, {row_bytes / bytes, kBox[1], kBox[2], kBox[3], kBox[4]}};
  for (int d = 0; d < 5; ++d) {
    tensor.size[d] = kSizes[d];
    tensor.stride_bytes[d] = 2 * kStrides[d];
  }
  tensor.size[0] *= 2 / bytes;
  tensor.stride_bytes[0] = bytes;
  arch::TensorMap map;
  example::must(arch::make_map(map, tensor), "make_map");
  return map;
}

template <class... Params, class... Given>
void start(const char* name, void (*kernel)(Params...), unsigned threads, std::size_t shared_bytes,
           const Given&... given) {
  example::must(arch::launch<Params...>(kernel, 1, threads, shared_bytes, nullptr, given...), name);
  example::must(cudaDeviceSynchronize(), name);
}

/// The results, if they are those that were expected.
Result checked(const char* name, const Words& found, const Words& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (found[i] == expected[i]) continue;
    std::printf("%s: word %zu is %08x, and not %08x\n", name, i, found[i], expected[i]);
    std::exit(1);
  }
  return {name, found, 0.0f};
}

/// What a box of these numbers is in shared memory.
Words box_words(const Elements& numbers, const arch::TmaCoord& at, int row_bytes) {
  Elements box(kBoxRows * row_bytes / 2);
  for_each_element(at, row_bytes, kSizes[0],
                   [&](int from, int to) { box[to] = from < 0 ? 0 : numbers[from]; });
  return words_of(box);
}

Result loads(int row_bytes, bool in_bytes) {
  Elements numbers(kElements);
  for (int i = 0; i < kElements; ++i) numbers[i] = static_cast<std::uint16_t>(i + 1);
  const example::DeviceArray<std::uint16_t> in(numbers);
  Words found, expected;
  for (const arch::TmaCoord& at : kPlaces) {
    const std::size_t bytes = kBoxRows * row_bytes;
    const example::DeviceArray<std::uint32_t> out{Words(bytes / 4)};
    arch::TmaCoord first = at;
    if (in_bytes) first.c0 *= 2;
    start("bulk_load", load_box, 64, bytes + 64, out.get(), map_of(in.get(), row_bytes, in_bytes),
          first, row_bytes);
    for (const std::uint32_t word : out.download()) found.push_back(word);
    for (const std::uint32_t word : box_words(numbers, at, row_bytes)) expected.push_back(word);
  }
  return checked("bulk_load", found, expected);
}

Result stores(int row_bytes) {
  Words found, expected;
  for (const arch::TmaCoord& at : kPlaces) {
    if (std::min({at.c0, at.c1, at.c2, at.c3, at.c4}) < 0) continue;  // loads only
    const example::DeviceArray<std::uint16_t> out{Elements(kElements)};
    const std::size_t bytes = kBoxRows * row_bytes;
    start("bulk_store", store_box, 64, bytes, map_of(out.get(), row_bytes), at, row_bytes);
    Elements tensor(kElements);
    // A store writes whole units of 16 bytes.
    for_each_element(at, row_bytes, attile::round_up(kSizes[0], 8), [&](int to, int from) {
      if (to >= 0) tensor[to] = static_cast<std::uint16_t>(from % 2 == 0 ? 1000 + from / 2 : 0);
    });
    for (const std::uint32_t word : words_of(out.download())) found.push_back(word);
    for (const std::uint32_t word : words_of(tensor)) expected.push_back(word);
  }
  return checked("bulk_store", found, expected);
}

// ---- clusters -----------------------------------------------------------------------------------

/// Each block of a cluster wakes the next one, kRounds times in a circle.
constexpr int kCircle = 4, kRounds = 5;

ATTILE_KERNEL void circle(std::uint32_t* out) {
  auto* const barriers = reinterpret_cast<arch::Mbarrier*>(arch::dynamic_shared());
  const int rank = arch::cluster_rank();
  if (arch::thread_index() == 0) {
    arch::mbarrier_init(barriers + 1, 1);
    arch::mbarrier_publish();
  }
  arch::cluster_barrier();
  if (arch::thread_index() == 0) {
    for (int round = 0; round < kRounds; ++round) {
      if (rank > 0 || round > 0)
        arch::mbarrier_wait(barriers + 1, (rank > 0 ? round : round - 1) & 1);
      out[arch::block_index() * kRounds + round] =
          static_cast<std::uint32_t>(round * 100 + arch::cluster_size() * 10 + rank);
      if (rank + 1 < kCircle || round + 1 < kRounds) {
        arch::mbarrier_arrive(barriers + 1, (rank + 1) % kCircle);
      }
    }
  }
  arch::cluster_barrier();  // nobody ends while others arrive there
}

/// Of two blocks, each brings a box to both, and another one to the other block alone.
ATTILE_KERNEL void load_boxes(std::uint32_t* out, const ATTILE_GRID_CONSTANT arch::TensorMap map,
                              arch::TmaCoord at0, arch::TmaCoord at1, int row_bytes) {
  auto* const words = reinterpret_cast<std::uint32_t*>(arch::dynamic_shared());
  const int bytes = kBoxRows * row_bytes, rank = arch::cluster_rank();
  auto* const barrier = reinterpret_cast<arch::Mbarrier*>(arch::dynamic_shared() + 3 * bytes);
  if (arch::thread_index() == 0) {
    arch::mbarrier_init(barrier, 1);
    arch::mbarrier_publish();
  }
  arch::cluster_barrier();
  if (arch::thread_index() == 0) {
    arch::mbarrier_arrive_expect(barrier, 3 * bytes);
    const std::uint32_t shared = arch::shared_address(words);
    arch::bulk_load_multicast(shared + static_cast<std::uint32_t>(rank * bytes), map,
                              rank == 0 ? at0 : at1, barrier, 3);
    arch::bulk_load_multicast(shared + static_cast<std::uint32_t>(2 * bytes), map,
                              rank == 0 ? at0 : at1, barrier, rank == 0 ? 2 : 1);
  }
  arch::mbarrier_wait(barrier, 0);
  for (int w = arch::thread_index(); w < 3 * bytes / 4; w += 64) {
    out[arch::block_index() * 3 * bytes / 4 + w] = words[w];
  }
  arch::cluster_barrier();  // nobody ends while its copies are on their way to others
}

Result arrivals() {
  constexpr int kBlocks = 2 * kCircle;
  const example::DeviceArray<std::uint32_t> out{Words(kBlocks * kRounds)};
  example::must(arch::launch_clusters(circle, kCircle, kBlocks, 64, 64, nullptr, out.get()),
                "circle");
  example::must(cudaDeviceSynchronize(), "circle");
  Words expected;
  for (int i = 0; i < kBlocks * kRounds; ++i) {
    expected.push_back(
        static_cast<std::uint32_t>(i % kRounds * 100 + kCircle * 10 + i / kRounds % kCircle));
  }
  return checked("remote arrivals", out.download(), expected);
}

Result multicasts(int row_bytes) {
  Elements numbers(kElements);
  for (int i = 0; i < kElements; ++i) numbers[i] = static_cast<std::uint16_t>(i + 1);
  const example::DeviceArray<std::uint16_t> in(numbers);
  const std::size_t bytes = kBoxRows * row_bytes;
  Words found, expected;
  for (std::size_t coord = 0; coord + 1 < std::size(kPlaces); ++coord) {
    const arch::TmaCoord ats[2] = {kPlaces[coord], kPlaces[coord + 1]};
    const example::DeviceArray<std::uint32_t> out{Words(2 * 3 * bytes / 4)};
    example::must(arch::launch_clusters(load_boxes, 2, 2, 64, 3 * bytes + 64, nullptr, out.get(),
                                        map_of(in.get(), row_bytes), ats[0], ats[1], row_bytes),
                  "multicast");
    example::must(cudaDeviceSynchronize(), "multicast");
    for (const std::uint32_t word : out.download()) found.push_back(word);
    for (const int which : {0, 1, 1, 0, 1, 0}) {
      for (const std::uint32_t word : box_words(numbers, ats[which], row_bytes)) {
        expected.push_back(word);
      }
    }
  }
  return checked("multicast", found, expected);
}

Result additions() {
  const example::DeviceArray<float> sums{std::vector<float>(kSums, 1000.0f)};
  start("bulk_add", add_floats, 64, kSums * sizeof(float), sums.get());
  Words found, expected;
  for (const float sum : sums.download()) found.push_back(bits(sum));
  for (int i = 0; i < kSums; ++i) expected.push_back(bits(1000.0f + 2 * i));
  return checked("bulk_add", found, expected);
}

// ---- products -----------------------------------------------------------------------------------

constexpr int kRows = 64, kDepth = 64;
constexpr int kLeftBytes = kRows * kDepth * 2;

ATTILE_HOST_DEVICE float left(int m, int k) {
  return static_cast<float>((m * 37 + k * 11) % 7 - 3);
}
ATTILE_HOST_DEVICE float right(int k, int n) {
  return static_cast<float>((k * 5 + n * 13) % 9 - 4);
}
ATTILE_HOST_DEVICE float before(int m, int n) { return static_cast<float>((m * 3 + n) % 11); }

/// A tile in panels of rows of `row_bytes`; value(row, column).
template <class T, class Value>
ATTILE_DEVICE void write_tile(unsigned char* tile, int rows, int cols, int row_bytes, Value value) {
  const int panel = row_bytes / 2;
  for (int i = arch::thread_index(); i < rows * cols / 2; i += arch::kWarpgroupSize) {
    const int row = i / (cols / 2), col = i % (cols / 2) * 2;
    const int offset = col / panel * rows * row_bytes + row * row_bytes + col % panel * 2;
    *reinterpret_cast<std::uint32_t*>(tile + swizzled(offset, row_bytes)) =
        attile::word_of(attile::from_floats<T>(value(row, col), value(row, col + 1)));
  }
}

/// From where on a tile's columns from `col` on lie, if they begin with a panel's unit.
ATTILE_DEVICE int column_bytes(int rows, int col, int row_bytes) {
  const int panel = row_bytes / 2;
  return col / panel * rows * row_bytes + col % panel * 2;
}

template <class T, int N, bool kRegisters, bool kTransposedB>
ATTILE_DEVICE void product(std::uint32_t* out, int row_bytes, bool adds) {
  unsigned char* const a_smem = arch::dynamic_shared();
  unsigned char* const b_smem = a_smem + kLeftBytes;
  constexpr int kRightRows = kTransposedB ? kDepth : N;
  write_tile<T>(a_smem, kRows, kDepth, row_bytes, [](int m, int k) { return left(m, k); });
  write_tile<T>(b_smem, kRightRows, kTransposedB ? N : kDepth, row_bytes,
                [](int row, int col) { return kTransposedB ? right(row, col) : right(col, row); });
  arch::fence_async_proxy();
  arch::barrier();

  const int i = arch::thread_index();
  const int row = i / 32 * 16 + i % 32 / 4, col = i % 4 * 2;
  std::uint32_t a_frag[kDepth / 16][4];
  ATTILE_UNROLL
  for (int w = 0; w < kDepth / 4; ++w) {
    const int m = row + w % 2 * 8, k = w / 2 * 8 + col;
    a_frag[w / 4][w % 4] = attile::word_of(attile::from_floats<T>(left(m, k), left(m, k + 1)));
  }
  float d[2][N / 4];
  ATTILE_UNROLL
  for (int e = 0; e < N / 4; ++e) {
    for (int h = 0; h < 2; ++h) d[h][e] = before(row + 8 * h, e / 2 * 8 + col + e % 2);
  }
  const arch::WgmmaOperand a(arch::shared_address(a_smem), row_bytes, kRows * row_bytes);
  const arch::WgmmaOperand b(arch::shared_address(b_smem), row_bytes, kRightRows * row_bytes);
  arch::wgmma_fence();
  ATTILE_UNROLL
  for (int step = 0; step < kDepth / 16; ++step) {
    const int k = step * 16;
    const std::uint64_t right_part =
        b.at(kTransposedB ? k * row_bytes : column_bytes(N, k, row_bytes));
    if constexpr (kRegisters) {
      arch::wgmma_m64k16<T, N, kTransposedB>(d, a_frag[step], right_part, adds || step > 0);
    } else {
      arch::wgmma_m64k16<T, N, kTransposedB>(d, a.at(column_bytes(kRows, k, row_bytes)), right_part,
                                             adds || step > 0);
    }
    if (step % 2 == 1) arch::wgmma_commit();
  }
  arch::wgmma_wait<1>();
  arch::wgmma_wait<0>();
  arch::fence_operand(d);
  ATTILE_UNROLL
  for (int e = 0; e < N / 4; ++e) {
    for (int h = 0; h < 2; ++h) out[(row + 8 * h) * N + e / 2 * 8 + col + e % 2] = bits(d[h][e]);
  }
  arch::barrier();
}

/// Four elements of fp8 in a word, the first one in byte 0.
template <class F, class Value>
ATTILE_HOST_DEVICE std::uint32_t fp8_word(Value value) {
  std::uint32_t word = 0;
  for (int i = 3; i >= 0; --i) word = word << 8 | attile::from_float<F>(value(i)).__x;
  return word;
}

/// The same of 8-bit elements, whose depth is in the same bytes: twice as many.
constexpr int kFp8Depth = 2 * kDepth;

template <class F, class Value>
ATTILE_DEVICE void write_fp8_tile(unsigned char* tile, int rows, int row_bytes, Value value) {
  for (int i = arch::thread_index(); i < rows * kFp8Depth / 4; i += arch::kWarpgroupSize) {
    const int row = i / (kFp8Depth / 4), col = i % (kFp8Depth / 4) * 4;
    const int offset = col / row_bytes * rows * row_bytes + row * row_bytes + col % row_bytes;
    *reinterpret_cast<std::uint32_t*>(tile + swizzled(offset, row_bytes)) =
        fp8_word<F>([&](int e) { return value(row, col + e); });
  }
}

template <class TA, class TB, int N, bool kRegisters>
ATTILE_DEVICE void fp8_product(std::uint32_t* out, int row_bytes, bool adds) {
  unsigned char* const a_smem = arch::dynamic_shared();
  unsigned char* const b_smem = a_smem + kLeftBytes;
  write_fp8_tile<TA>(a_smem, kRows, row_bytes, [](int m, int k) { return left(m, k); });
  write_fp8_tile<TB>(b_smem, N, row_bytes, [](int n, int k) { return right(k, n); });
  arch::fence_async_proxy();
  arch::barrier();

  const int i = arch::thread_index();
  const int row = i / 32 * 16 + i % 32 / 4, col = i % 4 * 2;
  std::uint32_t a_frag[kFp8Depth / 32][4];
  ATTILE_UNROLL
  for (int w = 0; w < kFp8Depth / 8; ++w) {
    const int m = row + w % 2 * 8, k = w / 2 * 16 + i % 4 * 4;
    a_frag[w / 4][w % 4] = fp8_word<TA>([&](int e) { return left(m, k + e); });
  }
  float d[2][N / 4];
  ATTILE_UNROLL
  for (int e = 0; e < N / 4; ++e) {
    for (int h = 0; h < 2; ++h) d[h][e] = before(row + 8 * h, e / 2 * 8 + col + e % 2);
  }
  const arch::WgmmaOperand a(arch::shared_address(a_smem), row_bytes, 0);
  const arch::WgmmaOperand b(arch::shared_address(b_smem), row_bytes, 0);
  arch::wgmma_fence();
  ATTILE_UNROLL
  for (int step = 0; step < kFp8Depth / 32; ++step) {
    const int panel = step * 32 / row_bytes, in_panel = step * 32 % row_bytes;
    const std::uint64_t right_part = b.at(panel * N * row_bytes + in_panel);
    if constexpr (kRegisters) {
      arch::wgmma_m64k32<TA, TB, N>(d, a_frag[step], right_part, adds || step > 0);
    } else {
      arch::wgmma_m64k32<TA, TB, N>(d, a.at(panel * kRows * row_bytes + in_panel), right_part,
                                    adds || step > 0);
    }
  }
  arch::wgmma_commit();
  arch::wgmma_wait<0>();
  arch::fence_operand(d);
  ATTILE_UNROLL
  for (int e = 0; e < N / 4; ++e) {
    for (int h = 0; h < 2; ++h) out[(row + 8 * h) * N + e / 2 * 8 + col + e % 2] = bits(d[h][e]);
  }
  arch::barrier();
}

template <class TA, class TB, int N>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(128, 1) fp8_products(std::uint32_t* out, int row_bytes) {
  fp8_product<TA, TB, N, false>(out, row_bytes, true);
  fp8_product<TA, TB, N, true>(out + kRows * N, row_bytes, false);
}

template <class TA, class TB, int N>
Result fp8_product_of(const char* name) {
  Words found, expected;
  for (const int row_bytes : {128, 64, 32}) {
    const example::DeviceArray<std::uint32_t> out{Words(2 * kRows * N)};
    start(name, fp8_products<TA, TB, N>, 128, kLeftBytes + N * kFp8Depth, out.get(), row_bytes);
    for (const std::uint32_t word : out.download()) found.push_back(word);
    for (int i = 0; i < 2 * kRows * N; ++i) {
      const int m = i / N % kRows, n = i % N;
      float sum = i < kRows * N ? before(m, n) : 0.0f;
      for (int k = 0; k < kFp8Depth; ++k) sum += left(m, k) * right(k, n);
      expected.push_back(bits(sum));
    }
  }
  return checked(name, found, expected);
}

template <class TA, class TB, int... kSixteens>
void add_fp8_products(std::vector<Result>& results, const char* name,
                      std::integer_sequence<int, kSixteens...>) {
  (results.push_back(fp8_product_of<TA, TB, 16 * (kSixteens + 1)>(name)), ...);
}

/// Four matrices that are loaded, transposed or not, and stored elsewhere, rows in another order.
ATTILE_KERNEL void matrices(std::uint32_t* out) {
  auto* const words = reinterpret_cast<std::uint32_t*>(arch::dynamic_shared());
  const int i = arch::thread_index();
  for (int w = i; w < 128; w += 32) words[w] = static_cast<std::uint32_t>(w * 0x10001 + 0x5000);
  arch::warp_barrier();
  const std::uint32_t from = arch::shared_address(words) + i * 16;
  const std::uint32_t to = arch::shared_address(words) + 512 + (i ^ 5) * 16;
  std::uint32_t r[4];
  arch::load_matrices_transposed(r, from);
  arch::store_matrices(to, r);
  arch::load_matrices(r, from);
  arch::store_matrices(to + 512, r);
  arch::warp_barrier();
  for (int w = i; w < 256; w += 32) out[w] = words[128 + w];
}

Result stored_matrices() {
  const example::DeviceArray<std::uint32_t> out{Words(256)};
  start("stmatrix", matrices, 32, 1536, out.get());
  const auto half = [](int row, int col) {
    return static_cast<std::uint32_t>((row * 4 + col / 2) * 0x10001 + 0x5000) >> 16 * (col % 2) &
           0xFFFFu;
  };
  Words expected;
  for (int w = 0; w < 256; ++w) {
    const int row = w % 128 / 4 ^ 5, col = w % 4 * 2, first = row / 8 * 8;
    const auto element = [&](int c) { return w < 128 ? half(first + c, row % 8) : half(row, c); };
    expected.push_back(element(col) | element(col + 1) << 16);
  }
  return checked("stmatrix", out.download(), expected);
}

template <class T, int N>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(128, 1) products(std::uint32_t* out, int row_bytes) {
  product<T, N, false, false>(out, row_bytes, false);
  product<T, N, false, true>(out + kRows * N, row_bytes, true);
  product<T, N, true, false>(out + 2 * kRows * N, row_bytes, true);
  product<T, N, true, true>(out + 3 * kRows * N, row_bytes, false);
}

template <class T, int N>
Result product_of(const char* name) {
  constexpr int kForms = 4;
  Words found, expected;
  for (const int row_bytes : {128, 64, 32}) {
    const example::DeviceArray<std::uint32_t> out{Words(kForms * kRows * N)};
    const std::size_t right_bytes = (N * 2 + 127) / 128 * 128 * kDepth;
    start(name, products<T, N>, 128, kLeftBytes + right_bytes, out.get(), row_bytes);
    for (const std::uint32_t word : out.download()) found.push_back(word);
    for (int i = 0; i < kForms * kRows * N; ++i) {
      const int m = i / N % kRows, n = i % N, form = i / N / kRows;
      float sum = form == 1 || form == 2 ? before(m, n) : 0.0f;
      for (int k = 0; k < kDepth; ++k) sum += left(m, k) * right(k, n);
      expected.push_back(bits(sum));
    }
  }
  return checked(name, found, expected);
}

template <class T, int... kSixteens>
void add_products(std::vector<Result>& results, const char* name,
                  std::integer_sequence<int, kSixteens...>) {
  (results.push_back(product_of<T, 16 * (kSixteens + 1)>(name)), ...);
}

Result plain(const char* name, void (*kernel)(std::uint32_t*), unsigned threads,
             std::size_t shared_bytes, std::size_t words) {
  const example::DeviceArray<std::uint32_t> out{Words(words)};
  start(name, kernel, threads, shared_bytes, out.get());
  return {name, out.download(), 0.0f};
}

}  // namespace

int main(int argc, char** argv) {
  if (!well_called(argc)) return 2;
  example::need_gpu();
  if (const attile::Check check = arch::check_launch(ring, 1024, 1); !check) {
    std::printf("skipped: %s\n", check.why);
    return example::kSkipped;
  }
  std::vector<Result> results{plain("mbarrier", ring, 96, 512, 448),
                              plain("setmaxnreg", registers, 384, 0, 384), arrivals()};
  for (const int row_bytes : {128, 64, 32}) {
    results.push_back(loads(row_bytes, false));
    results.push_back(loads(row_bytes, true));
    results.push_back(stores(row_bytes));
    results.push_back(multicasts(row_bytes));
  }
  results.push_back(additions());
  // The small sample has of other types than fp16 a few widths.
  constexpr std::make_integer_sequence<int, 16> kSixteens;
#if ATTILE_TEST_LARGE
  constexpr auto kOfOthers = kSixteens;
#else
  constexpr std::integer_sequence<int, 0, 4, 15> kOfOthers;
#endif
  add_products<__half>(results, "wgmma fp16", kSixteens);
  add_products<__nv_bfloat16>(results, "wgmma bf16", kOfOthers);
  using E4m3 = __nv_fp8_e4m3;
  using E5m2 = __nv_fp8_e5m2;
  add_fp8_products<E4m3, E4m3>(results, "wgmma e4m3", kOfOthers);
  results.push_back(fp8_product_of<E4m3, E5m2, 64>("wgmma e4m3 e5m2"));
  results.push_back(fp8_product_of<E5m2, E4m3, 64>("wgmma e5m2 e4m3"));
  results.push_back(fp8_product_of<E5m2, E5m2, 128>("wgmma e5m2"));
  results.push_back(stored_matrices());
  return write_and_compare(results, argc, argv);
}
