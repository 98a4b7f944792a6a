// SPDX-License-Identifier: MIT
// What instructions.cu, matrix_instructions.cu and wgmma_instructions.cu share: programs that run
// small kernels, on a GPU or on the simulated machine.
//
//   PROGRAM RESULTS          writes the results
//   PROGRAM RESULTS OTHER    and holds them against those of the other one
#pragma once

#include <attile/arch/launch.cuh>
#include <attile/core/config.h>

#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "../../examples/support.cuh"

namespace instructions {

using Words = std::vector<std::uint32_t>;
constexpr std::uint32_t kNan = 0x7FFFFFFFu;

/// The same bytes as another type: nvcc does not take std::bit_cast in device code.
template <class To, class From>
ATTILE_HOST_DEVICE To as(const From& x) {
  static_assert(sizeof(To) == sizeof x);
  To y;
  std::memcpy(static_cast<void*>(&y), &x, sizeof x);
  return y;
}

/// The bits of a number; NaNs are all the same here, as in the contract.
ATTILE_HOST_DEVICE std::uint32_t bits(float x) { return x != x ? kNan : as<std::uint32_t>(x); }

struct Result {
  const char* name;
  Words words;
  float bound;  ///< relative, and no number counts as smaller than FLT_MIN; 0: the same bits
};

inline Result run(const char* name, void (*kernel)(std::uint32_t*, const float*), unsigned blocks,
                  unsigned threads, std::size_t words, float bound = 0.0f) {
  const example::DeviceArray<float> in(example::normal<float>(1024, 1));
  const example::DeviceArray<std::uint32_t> out{Words(words)};
  const float* const from = in.get();
  example::must(attile::arch::launch(kernel, blocks, threads, 1024, nullptr, out.get(), from),
                name);
  example::must(cudaDeviceSynchronize(), name);
  return {name, out.download(), bound};
}

inline bool agrees(std::uint32_t a, std::uint32_t b, float bound) {
  if (a == b) return true;
  if (bound == 0.0f) return false;
  const float x = as<float>(a), y = as<float>(b);
  return std::abs(x - y) <= std::fmax(bound * std::abs(y), FLT_MIN);
}

/// How many of the words do not agree; says which is the first.
inline std::size_t differences(const Result& mine, const std::uint32_t* other) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < mine.words.size(); ++i) {
    if (agrees(mine.words[i], other[i], mine.bound)) continue;
    if (count++ == 0) {
      std::printf("%s: word %zu is %08x, and %08x in the other's\n", mine.name, i, mine.words[i],
                  other[i]);
    }
  }
  std::printf("%-16s %7zu words, %zu differ\n", mine.name, mine.words.size(), count);
  return count;
}

/// The program, for all its results.
inline int write_and_compare(const std::vector<Result>& results, int argc, char** argv) {
  Words words;
  for (const Result& result : results) {
    words.insert(words.end(), result.words.begin(), result.words.end());
  }
  std::ofstream(argv[1], std::ios::binary)
      .write(reinterpret_cast<const char*>(words.data()),
             static_cast<std::streamsize>(words.size() * sizeof words[0]));
  if (argc < 3) return 0;

  std::ifstream file(argv[2], std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.size() != words.size() * sizeof words[0]) {
    std::fprintf(stderr, "%s has %zu bytes, and not %zu\n", argv[2], bytes.size(),
                 words.size() * sizeof words[0]);
    return 1;
  }
  Words other(words.size());
  std::memcpy(other.data(), bytes.data(), bytes.size());
  std::size_t count = 0;
  const std::uint32_t* at = other.data();
  for (const Result& result : results) {
    count += differences(result, at);
    at += result.words.size();
  }
  return count == 0 ? 0 : 1;
}

inline bool well_called(int argc) {
  if (argc == 2 || argc == 3) return true;
  std::fprintf(stderr, "usage: PROGRAM RESULTS [OTHER]\n");
  return false;
}

}  // namespace instructions
