// SPDX-License-Identifier: MIT
// Rates of the sm90 kernels with Q, K and V in fp8, for a choice of tiles: B * S = 16384, H * D =
// 2048, standard normal numbers rounded to e4m3, O in bf16, LSE written. All contenders of a cell
// run in turn, in several rounds; the median of each is printed, and the least and the largest.
// FLOPs are 4 B H S^2 D, half of that under a causal mask. Beside them stands the kernel of bf16 on
// the same numbers. Each O is held against that one, whole, and against fp64 on a few rows: the
// ratio of the root of the sum of squares of the errors to that of O.
//
//   nvcc -std=c++20 -O3 -gencode arch=compute_90a,code=sm_90a -Iinclude bench/fp8_tiles.cu -o
//   fp8_tiles
//   ./fp8_tiles [--dim D] [--rounds n]
//
// -DATTILE_FP8_DIM=128 compiles the kernels of one head dimension alone.
#include <attile/attile.cuh>
#include <attile/reference.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#ifndef ATTILE_FP8_DIM
#define ATTILE_FP8_DIM 0
#endif

namespace {

using attile::Fp8Sums;
using attile::sm90::TileSet;
using E4m3 = __nv_fp8_e4m3;
using Bf16 = __nv_bfloat16;
constexpr int kRowsInAll = 16384, kColumns = 2048, kCalls = 8, kWarmUps = 3;
constexpr std::size_t kElements = std::size_t{kRowsInAll} * kColumns;

void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "fp8_tiles: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

template <class T>
T* device_array(std::size_t size) {
  T* data = nullptr;
  must(cudaMalloc(&data, size * sizeof(T)), "cudaMalloc");
  return data;
}

/// Writes standard normal numbers, rounded to e4m3, as e4m3 and as bf16.
ATTILE_KERNEL void fill(E4m3* as_fp8, Bf16* as_bf16, unsigned seed) {
  const std::size_t threads = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < kElements;
       i += threads) {
    std::uint32_t x = static_cast<std::uint32_t>(i) * 2654435761u ^ seed;
    const auto mix = [&] {
      x = (x ^ x >> 16) * 0x7FEB352Du;
      x = (x ^ x >> 15) * 0x846CA68Bu;
      return (static_cast<float>((x ^ x >> 16) >> 8) + 0.5f) * 0x1p-24f;
    };
    const float radius = sqrtf(-2.0f * logf(mix())), turn = mix();
    as_fp8[i] = attile::from_float<E4m3>(radius * cospif(2.0f * turn));
    as_bf16[i] = attile::from_float<Bf16>(attile::to_float(as_fp8[i]));
  }
}

/// Adds the squares of o - other, and of other, to two sums.
ATTILE_KERNEL void add_squares(const Bf16* o, const Bf16* other, double* sums) {
  double error = 0, all = 0;
  const std::size_t threads = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < kElements;
       i += threads) {
    const double x = attile::to_float(o[i]), y = attile::to_float(other[i]);
    error += (x - y) * (x - y);
    all += y * y;
  }
  atomicAdd(sums, error);
  atomicAdd(sums + 1, all);
}

/// The tensors of all cells.
struct Memory {
  E4m3* fp8[3];
  Bf16* bf16[3];
  Bf16* o = device_array<Bf16>(kElements);
  Bf16* o_of_bf16 = device_array<Bf16>(kElements);
  float* lse = device_array<float>(kElements / 64);
  unsigned char* scratch = device_array<unsigned char>(2 * kElements);
  double* sums = device_array<double>(2);

  Memory() {
    for (unsigned i = 0; i < 3; ++i) {
      fp8[i] = device_array<E4m3>(kElements);
      bf16[i] = device_array<Bf16>(kElements);
      fill<<<1024, 256>>>(fp8[i], bf16[i], 7 * i + 1);
    }
    must(cudaDeviceSynchronize(), "fill");
  }
};

struct Cell {
  int dim, len;
  bool is_causal;

  int batch() const { return kRowsInAll / len; }
  int heads() const { return kColumns / dim; }
  double flops() const {
    return 4.0 * batch() * heads() * len * len * dim * (is_causal ? 0.5 : 1.0);
  }
};

template <class Args, class T>
Args arguments(const Cell& cell, T* const (&inputs)[3], Bf16* o, float* lse) {
  Args a{};
  a.q =
      attile::bshd<const T>(inputs[0], {.rows = cell.len, .heads = cell.heads(), .dim = cell.dim});
  a.k =
      attile::bshd<const T>(inputs[1], {.rows = cell.len, .heads = cell.heads(), .dim = cell.dim});
  a.v =
      attile::bshd<const T>(inputs[2], {.rows = cell.len, .heads = cell.heads(), .dim = cell.dim});
  a.o = attile::bshd(o, {.rows = cell.len, .heads = cell.heads(), .dim = cell.dim});
  a.lse = lse;
  a.batch = cell.batch(), a.q_heads = a.kv_heads = cell.heads();
  a.q_len = a.kv_len = cell.len;
  return a;
}

/// A kernel with its arguments. kinds: "bf16", "promoted" or "unpromoted".
struct Contender {
  std::string kind, tiles;
  std::function<cudaError_t()> call;
  std::vector<double> rates{};
};

/// All contenders of a cell, and what their O is held against.
template <int D, class Mask>
class Contest {
  template <Fp8Sums kSums>
  using Types = attile::Elements<E4m3, E4m3, E4m3, Bf16, kSums>;
  template <Fp8Sums kSums>
  using Args = attile::ForwardArgs<Types<kSums>, Mask>;
  using Bf16Args = attile::ForwardArgs<Bf16, Mask>;

 public:
  Contest(const Memory& memory, const Cell& cell) : memory_(memory), cell_(cell) { add_all(); }

  void run(int rounds) {
    must(contenders_[0].call(), "bf16");
    for (Contender& c : contenders_) check(c);
    for (int round = 0; round < rounds; ++round) {
      for (Contender& c : contenders_) c.rates.push_back(rate(c));
    }
    for (Contender& c : contenders_) {
      std::sort(c.rates.begin(), c.rates.end());
      std::printf("D %3d  S %5d  %-6s  %-10s  %-34s  %7.1f TFLOP/s  (%.1f to %.1f)  %s\n", D,
                  cell_.len, cell_.is_causal ? "causal" : "full", c.kind.c_str(), c.tiles.c_str(),
                  c.rates[c.rates.size() / 2], c.rates.front(), c.rates.back(),
                  errors_[&c - contenders_.data()].c_str());
    }
    std::fflush(stdout);
  }

 private:
  /// Adds the default kernel, and where it transposes V ahead in scratch memory that, too.
  template <TileSet kTileSet, Fp8Sums kSums>
  void add_default(const char* kind) {
    using Traits = attile::sm90::DefaultForwardTraits<Args<kSums>, D, D, kTileSet>;
    add<Traits>(kind, " default");
    if constexpr (Traits::kTransposesAhead) {
      add<Traits>(kind, " scratch");
      const auto a = arguments<typename Traits::Args>(cell_, memory_.fp8, memory_.o, memory_.lse);
      contenders_.back().call = [a, scratch = memory_.scratch] {
        return attile::forward<Traits>(scratch, 2 * kElements, a);
      };
    }
  }
  /// Adds a kernel with these tiles (sm90::Tuning).
  template <Fp8Sums kSums, int Br, int Bc, int kStages, int kParts = 1, bool kOverlaps = true,
            bool kOrders = false, bool kWaitsLate = false>
  void add_tiles() {
    using Tuning = attile::sm90::Tuning<attile::sm90::TuningValues{.stages = kStages,
                                                                   .output_parts = kParts,
                                                                   .orders = kOrders,
                                                                   .overlaps = kOverlaps,
                                                                   .waits_late = kWaitsLate}>;
    using Traits = typename Tuning::template Forward<Br, Bc, D, Types<kSums>,
                                                     typename Args<kSums>::Policies, D>;
    add<Traits>(kSums == Fp8Sums::kPromoted ? "promoted" : "unpromoted", "");
  }
  template <class Traits>
  void add(const char* kind, const char* note) {
    const auto a = arguments<typename Traits::Args>(cell_, memory_.fp8, memory_.o, memory_.lse);
    std::string tiles = std::to_string(Traits::kBr) + "x" + std::to_string(Traits::kBc) + ", " +
                        std::to_string(Traits::kStages) + " stages";
    if (Traits::kOutputParts > 1) tiles += ", " + std::to_string(Traits::kOutputParts) + " parts";
    if (!Traits::kOverlaps) tiles += ", apart";
    if (Traits::kOrdersConsumers) tiles += ", in order";
    if (Traits::kWaitsLate) tiles += ", late";
    contenders_.push_back({kind, tiles + note, [a] { return attile::forward<Traits>(a); }});
  }
  void add_all() {
    const auto a = arguments<Bf16Args>(cell_, memory_.bf16, memory_.o_of_bf16, memory_.lse);
    const bool is_long =
        cell_.is_causal &&
        cell_.len >= attile::sm90::long_sequence<attile::Causal>(D, /*teams=*/D <= 64);
    contenders_.push_back(
        {"bf16", is_long ? "default, long" : "default", [a, is_long] {
           using attile::sm90::DefaultForwardTraits;
           if (is_long) {
             return attile::forward<DefaultForwardTraits<Bf16Args, D, D, TileSet::kLong>>(a);
           }
           return attile::forward<DefaultForwardTraits<Bf16Args, D>>(a);
         }});
    add_default<TileSet::kAny, Fp8Sums::kPromoted>("promoted");
    add_default<TileSet::kAny, Fp8Sums::kUnpromoted>("unpromoted");
    constexpr auto kPromoted = Fp8Sums::kPromoted, kUnpromoted = Fp8Sums::kUnpromoted;
    if constexpr (D == 64) {
      add_tiles<kPromoted, 192, 96, 3, 1, true, true>();
      add_tiles<kPromoted, 192, 96, 3>();
      add_tiles<kPromoted, 192, 128, 2, 1, false>();
      add_tiles<kPromoted, 192, 128, 2, 1, false, true>();
      add_tiles<kPromoted, 128, 128, 3>();
      add_tiles<kPromoted, 128, 192, 2>();
      add_tiles<kPromoted, 128, 192, 2, 1, true, true>();
      add_tiles<kPromoted, 128, 224, 2, 1, false>();
      add_tiles<kUnpromoted, 192, 128, 3>();
      add_tiles<kUnpromoted, 192, 160, 2, 1, true, true>();
      add_tiles<kUnpromoted, 128, 192, 2>();
      add_tiles<kUnpromoted, 128, 224, 2>();
    } else if constexpr (D == 128) {
      add_tiles<kPromoted, 128, 128, 2>();
      add_tiles<kPromoted, 128, 128, 3, 2>();
      add_tiles<kPromoted, 128, 160, 2, 2, true, true>();
      add_tiles<kPromoted, 128, 160, 2, 1, false>();
      add_tiles<kPromoted, 128, 192, 2, 2, false>();
      add_tiles<kPromoted, 128, 224, 2, 2, false>();
      add_tiles<kPromoted, 128, 224, 2, 2, false, true>();
      add_tiles<kPromoted, 192, 96, 2, 2, false, false, true>();
      add_tiles<kUnpromoted, 128, 128, 3>();
      add_tiles<kUnpromoted, 128, 160, 2>();
      add_tiles<kUnpromoted, 128, 224, 2>();
      add_tiles<kUnpromoted, 192, 96, 2>();
    } else {
      add_tiles<kPromoted, 128, 128, 2, 2, false>();
      add_tiles<kPromoted, 128, 64, 2, 4>();
      add_tiles<kPromoted, 128, 64, 3, 4, false>();
      add_tiles<kUnpromoted, 128, 64, 3>();
      add_tiles<kUnpromoted, 128, 96, 2>();
    }
  }

  /// Compares the O of a contender, which it computes, with that of bf16 and with fp64.
  void check(Contender& c) {
    const bool is_bf16 = &c == contenders_.data();
    Bf16* const o = is_bf16 ? memory_.o_of_bf16 : memory_.o;
    must(cudaMemset(o, 0xFF, kElements * sizeof(Bf16)), "cudaMemset");
    must(c.call(), c.tiles.c_str());
    must(cudaMemset(memory_.sums, 0, 2 * sizeof(double)), "cudaMemset");
    add_squares<<<1024, 256>>>(o, memory_.o_of_bf16, memory_.sums);
    double sums[2];
    must(cudaMemcpy(sums, memory_.sums, sizeof sums, cudaMemcpyDeviceToHost), "add_squares");
    const double of_bf16 = std::sqrt(sums[0] / sums[1]), of_fp64 = error_of_rows(o);
    // P in e4m3 is off by 2^-5 of itself in the mean, and the sum of many by as much of O.
    const bool is_right = of_bf16 < 0.05 && of_fp64 < (is_bf16 ? 0.01 : 0.05);
    char text[80];
    std::snprintf(text, sizeof text, "off by %.4f of bf16, %.4f of fp64%s", of_bf16, of_fp64,
                  is_right ? "" : "  WRONG");
    errors_.push_back(text);
  }
  /// Returns the error of the last rows of the first head of the first sequence.
  double error_of_rows(const Bf16* o) {
    constexpr int kRows = 8;
    const std::size_t size = std::size_t(cell_.len) * kColumns;
    const std::size_t first = std::size_t(cell_.len - kRows) * kColumns;
    if (exact_.empty()) {
      std::vector<E4m3> host[3];
      for (int i = 0; i < 3; ++i) {
        host[i].resize(size);
        must(cudaMemcpy(host[i].data(), memory_.fp8[i], size, cudaMemcpyDeviceToHost),
             "cudaMemcpy");
      }
      E4m3* const inputs[3] = {host[0].data() + first, host[1].data(), host[2].data()};
      auto a = arguments<Args<Fp8Sums::kPromoted>>(cell_, inputs, memory_.o, nullptr);
      a.batch = a.q_heads = a.kv_heads = 1;
      a.q_len = kRows;
      a.head_dim = D;
      exact_ = attile::reference::forward(a).o;
    }
    std::vector<Bf16> rows(std::size_t{kRows} * kColumns);
    must(cudaMemcpy(rows.data(), o + first, rows.size() * sizeof(Bf16), cudaMemcpyDeviceToHost),
         "cudaMemcpy");
    double error = 0, all = 0;
    for (int row = 0; row < kRows; ++row) {
      for (int col = 0; col < D; ++col) {
        const double exact = exact_[row * D + col];
        const double x = attile::to_float(rows[std::size_t(row) * kColumns + col]) - exact;
        error += x * x, all += exact * exact;
      }
    }
    return std::sqrt(error / all);
  }
  /// Returns what some calls reach. Units: TFLOP/s.
  double rate(const Contender& c) const {
    cudaEvent_t begin, end;
    must(cudaEventCreate(&begin), "event"), must(cudaEventCreate(&end), "event");
    for (int i = 0; i < kWarmUps; ++i) must(c.call(), "forward");
    must(cudaEventRecord(begin), "event");
    for (int i = 0; i < kCalls; ++i) must(c.call(), "forward");
    must(cudaEventRecord(end), "event"), must(cudaEventSynchronize(end), "event");
    float ms = 0;
    must(cudaEventElapsedTime(&ms, begin, end), "event");
    must(cudaEventDestroy(begin), "event"), must(cudaEventDestroy(end), "event");
    return cell_.flops() * kCalls / ms * 1e-9;
  }

  const Memory& memory_;
  Cell cell_;
  std::vector<Contender> contenders_;
  std::vector<std::string> errors_;
  std::vector<double> exact_;
};

template <int D>
void run_dim(const Memory& memory, int rounds) {
  for (const int len : {4096, 16384}) {
    Contest<D, attile::NoMask>(memory, {D, len, false}).run(rounds);
    Contest<D, attile::Causal>(memory, {D, len, true}).run(rounds);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int dim = 0, rounds = 5;
  for (int i = 1; i < argc; ++i) {
    const bool has_value = i + 1 < argc;
    if (has_value && std::strcmp(argv[i], "--dim") == 0) {
      dim = std::atoi(argv[++i]);
    } else if (has_value && std::strcmp(argv[i], "--rounds") == 0) {
      rounds = std::atoi(argv[++i]);
    } else {
      std::fprintf(stderr, "usage: fp8_tiles [--dim D] [--rounds n]\n");
      return 2;
    }
  }
  if ((dim != 0 && dim != 64 && dim != 128 && dim != 256) || rounds < 1) {
    std::fprintf(stderr, "fp8_tiles: D is 64, 128 or 256, and there is at least one round\n");
    return 2;
  }
  if (attile::arch::device_architecture() != 900) {
    std::printf("skipped: these kernels are for compute capability 9.0\n");
    return 0;
  }
  const Memory memory;
  const auto wants = [&](int d) { return dim == 0 || dim == d; };
  if constexpr (ATTILE_FP8_DIM == 0 || ATTILE_FP8_DIM == 64) {
    if (wants(64)) run_dim<64>(memory, rounds);
  }
  if constexpr (ATTILE_FP8_DIM == 0 || ATTILE_FP8_DIM == 128) {
    if (wants(128)) run_dim<128>(memory, rounds);
  }
  if constexpr (ATTILE_FP8_DIM == 0 || ATTILE_FP8_DIM == 256) {
    if (wants(256)) run_dim<256>(memory, rounds);
  }
}
