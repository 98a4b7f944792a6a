// SPDX-License-Identifier: MIT
// wgmma_shapes FILE: writes include/attile/arch/wgmma_shapes.cuh. An asm statement's operands
// cannot be had from a parameter pack, so each number of columns has its list.
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>

namespace {

constexpr std::string_view kBegin = R"(// SPDX-License-Identifier: MIT
// Written by test/generated/wgmma_shapes.cpp.
#pragma once

#include <attile/arch/thread.cuh>
#include <attile/core/config.h>

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

namespace attile::arch {

/// wgmma.mma_async.m64nNk16, and m64nNk32 for 8-bit elements, with fp32 sums: what wgmma.cuh's
/// functions are made of.
template <int N>
struct WgmmaShape;

template <class T>
inline constexpr bool kIsE4m3 = std::is_same_v<T, __nv_fp8_e4m3>;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define ATTILE_WGMMA(N, TYPES, D, ACCUMULATE, OPERANDS) \
  "{\n.reg .pred p;\nsetp.ne.b32 p, " ACCUMULATE        \
  ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N TYPES " {" D "}, " OPERANDS ";\n}"
#define ATTILE_WGMMA_STATEMENT(N, TYPES, D, ACCUMULATE, OPERANDS, OUTPUTS, ...) \
  asm volatile(ATTILE_WGMMA(N, TYPES, D, ACCUMULATE, OPERANDS) : OUTPUTS : __VA_ARGS__)
#else
#define ATTILE_WGMMA_STATEMENT(...) trap()
#endif
#define ATTILE_LIST(...) __VA_ARGS__

#define ATTILE_SUMS(c) "+f"(d[0][c]), "+f"(d[0][c + 1]), "+f"(d[1][c]), "+f"(d[1][c + 1])

// The same for A and B of TA and TB, of 8 bits each.
#define ATTILE_WGMMA_FP8(N, D, ACCUMULATE, OPERANDS, OUTPUTS, ...)                                \
  if constexpr (kIsE4m3<TA> && kIsE4m3<TB>) {                                                     \
    ATTILE_WGMMA_STATEMENT(N, "k32.f32.e4m3.e4m3", D, ACCUMULATE, OPERANDS, ATTILE_LIST(OUTPUTS), \
                           __VA_ARGS__);                                                          \
  } else if constexpr (kIsE4m3<TA>) {                                                             \
    ATTILE_WGMMA_STATEMENT(N, "k32.f32.e4m3.e5m2", D, ACCUMULATE, OPERANDS, ATTILE_LIST(OUTPUTS), \
                           __VA_ARGS__);                                                          \
  } else if constexpr (kIsE4m3<TB>) {                                                             \
    ATTILE_WGMMA_STATEMENT(N, "k32.f32.e5m2.e4m3", D, ACCUMULATE, OPERANDS, ATTILE_LIST(OUTPUTS), \
                           __VA_ARGS__);                                                          \
  } else {                                                                                        \
    ATTILE_WGMMA_STATEMENT(N, "k32.f32.e5m2.e5m2", D, ACCUMULATE, OPERANDS, ATTILE_LIST(OUTPUTS), \
                           __VA_ARGS__);                                                          \
  }

// D: the numbers of the sums; I0 to I6: those of the operands after them; OUTPUTS: the sums.
#define ATTILE_WGMMA_SHAPE(N, D, I0, I1, I2, I3, I4, I5, I6, OUTPUTS)                              \
  template <>                                                                                      \
  struct WgmmaShape<N> {                                                                           \
    template <class T, bool kTransposedA, bool kTransposedB>                                       \
    ATTILE_DEVICE static void multiply(float (&d)[2][N / 4], std::uint64_t a, std::uint64_t b,     \
                                       int accumulate) {                                           \
      if constexpr (std::is_same_v<T, __half>) {                                                   \
        ATTILE_WGMMA_STATEMENT(N, "k16.f32.f16.f16", D, I2, I0 ", " I1 ", p, 1, 1, " I3 ", " I4,   \
                               ATTILE_LIST(OUTPUTS), "l"(a), "l"(b), "r"(accumulate),              \
                               "n"(int{kTransposedA}), "n"(int{kTransposedB}));                    \
      } else {                                                                                     \
        ATTILE_WGMMA_STATEMENT(N, "k16.f32.bf16.bf16", D, I2, I0 ", " I1 ", p, 1, 1, " I3 ", " I4, \
                               ATTILE_LIST(OUTPUTS), "l"(a), "l"(b), "r"(accumulate),              \
                               "n"(int{kTransposedA}), "n"(int{kTransposedB}));                    \
      }                                                                                            \
    }                                                                                              \
    template <class T, bool kTransposedB>                                                          \
    ATTILE_DEVICE static void multiply(float (&d)[2][N / 4], const std::uint32_t (&a)[4],          \
                                       std::uint64_t b, int accumulate) {                          \
      if constexpr (std::is_same_v<T, __half>) {                                                   \
        ATTILE_WGMMA_STATEMENT(N, "k16.f32.f16.f16", D, I5,                                        \
                               "{" I0 ", " I1 ", " I2 ", " I3 "}, " I4 ", p, 1, 1, " I6,           \
                               ATTILE_LIST(OUTPUTS), "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),   \
                               "l"(b), "r"(accumulate), "n"(int{kTransposedB}));                   \
      } else {                                                                                     \
        ATTILE_WGMMA_STATEMENT(N, "k16.f32.bf16.bf16", D, I5,                                      \
                               "{" I0 ", " I1 ", " I2 ", " I3 "}, " I4 ", p, 1, 1, " I6,           \
                               ATTILE_LIST(OUTPUTS), "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),   \
                               "l"(b), "r"(accumulate), "n"(int{kTransposedB}));                   \
      }                                                                                            \
    }                                                                                              \
    template <class TA, class TB>                                                                  \
    ATTILE_DEVICE static void multiply_fp8(float (&d)[2][N / 4], std::uint64_t a, std::uint64_t b, \
                                           int accumulate) {                                       \
      ATTILE_WGMMA_FP8(N, D, I2, I0 ", " I1 ", p, 1, 1", ATTILE_LIST(OUTPUTS), "l"(a), "l"(b),     \
                       "r"(accumulate))                                                            \
    }                                                                                              \
    template <class TA, class TB>                                                                  \
    ATTILE_DEVICE static void multiply_fp8(float (&d)[2][N / 4], const std::uint32_t (&a)[4],      \
                                           std::uint64_t b, int accumulate) {                      \
      ATTILE_WGMMA_FP8(N, D, I5, "{" I0 ", " I1 ", " I2 ", " I3 "}, " I4 ", p, 1, 1",              \
                       ATTILE_LIST(OUTPUTS), "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),   \
                       "r"(accumulate))                                                            \
    }                                                                                              \
  };

)";

constexpr std::string_view kEnd = R"(
#undef ATTILE_WGMMA_SHAPE
#undef ATTILE_WGMMA_FP8
#undef ATTILE_SUMS
#undef ATTILE_LIST
#undef ATTILE_WGMMA_STATEMENT
#undef ATTILE_WGMMA

}  // namespace attile::arch
)";

std::string shape(int n) {
  const int count = n / 2;
  std::string text = "ATTILE_WGMMA_SHAPE(\n    " + std::to_string(n) + ",\n";
  for (int i = 0; i < count; ++i) {
    if (i % 12 == 0) text += "    \"";
    text += "%" + std::to_string(i);
    const bool last = i + 1 == count;
    if (!last) text += ", ";
    if (last || i % 12 == 11) text += last ? "\",\n" : "\"\n";
  }
  text += "   ";
  for (int i = 0; i < 7; ++i) text += " \"%" + std::to_string(count + i) + "\",";
  text += "\n    ATTILE_LIST(";
  for (int i = 0; i < count / 4; ++i) {
    if (i > 0) text += i % 4 == 0 ? ",\n                " : ", ";
    text += "ATTILE_SUMS(" + std::to_string(2 * i) + ")";
  }
  return text + "))\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: wgmma_shapes FILE\n";
    return 2;
  }
  std::ofstream file(argv[1]);
  file << kBegin;
  for (int n = 16; n <= 256; n += 16) file << shape(n);
  file << kEnd;
  return file.good() ? 0 : 1;
}
