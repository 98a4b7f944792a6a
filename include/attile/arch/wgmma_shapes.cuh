// SPDX-License-Identifier: MIT
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

ATTILE_WGMMA_SHAPE(
    16,
    "%0, %1, %2, %3, %4, %5, %6, %7",
    "%8", "%9", "%10", "%11", "%12", "%13", "%14",
    ATTILE_LIST(ATTILE_SUMS(0), ATTILE_SUMS(2)))
ATTILE_WGMMA_SHAPE(
    32,
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
    "%12, %13, %14, %15",
    "%16", "%17", "%18", "%19", "%20", "%21", "%22",
    ATTILE_LIST(ATTILE_SUMS(0), ATTILE_SUMS(2), ATTILE_SUMS(4), ATTILE_SUMS(6)))
ATTILE_WGMMA_SHAPE(
    48,
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
    "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23",
    "%24", "%25", "%26", "%27", "%28", "%29", "%30",
    ATTILE_LIST(ATTILE_SUMS(0), ATTILE_SUMS(2), ATTILE_SUMS(4), ATTILE_SUMS(6),
                ATTILE_SUMS(8), ATTILE_SUMS(10)))
ATTILE_WGMMA_SHAPE(
    64,
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
    "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
    "%24, %25, %26, %27, %28, %29, %30, %31",
    "%32", "%33", "%34", "%35", "%36", "%37", "%38",
    ATTILE_LIST(ATTILE_SUMS(0), ATTILE_SUMS(2), ATTILE_SUMS(4), ATTILE_SUMS(6),
                ATTILE_SUMS(8), ATTILE_SUMS(10), ATTILE_SUMS(12), ATTILE_SUMS(14)))
ATTILE_WGMMA_SHAPE(
    80,
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
    "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
    "%36, %37, %38, %39",
    "%40", "%41", "%42", "%43", "%44", "%45", "%46",
    ATTILE_LIST(ATTILE_SUMS(0), ATTILE_SUMS(2), ATTILE_SUMS(4), ATTILE_SUMS(6),
                ATTILE_SUMS(8), ATTILE_SUMS(10), ATTILE_SUMS(12), ATTILE_SUMS(14),
                ATTILE_SUMS(16), ATTILE_SUMS(18)))
ATTILE_WGMMA_SHAPE(
    96,
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
    "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
    "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47",
    "%48", "%49", "%50", "%51", "%52", "%53", "%54",
    ATTILE_LIST(ATTILE_SUMS(0), ATTILE_SUMS(2), ATTILE_SUMS(4), ATTILE_SUMS(6),
                ATTILE_SUMS(8), ATTILE_SUMS(10), ATTILE_SUMS(12), ATTILE_SUMS(14),
                ATTILE_SUMS(16), ATTILE_SUMS(18), ATTILE_SUMS(20), ATTILE_SUMS(22)))
ATTILE_WGMMA_SHAPE(
    112,
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
    "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
    "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
    "%48, %49, %50, %51, %52, %53, %54, %55",
    "%56", "%57", "%58", "%59", "%60", "%61", "%62",
    ATTILE_LIST(ATTILE_SUMS(0), ATTILE_SUMS(2), ATTILE_SUMS(4), ATTILE_SUMS(6),
                ATTILE_SUMS(8), ATTILE_SUMS(10), ATTILE_SUMS(12), ATTILE_SUMS(14),
                ATTILE_SUMS(16), ATTILE_SUMS(18), ATTILE_SUMS(20), ATTILE_SUMS(22),
                ATTILE_SUMS(24), ATTILE_SUMS(26)))
ATTILE_WGMMA_SHAPE(
    128,
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
    "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
    "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
    "%60, %61, %62, %63",
    "%64", "%65", "%66", "%67", "%68", "%69", "%70",
    ATTILE_LIST(ATTILE_SUMS(0), ATTILE_SUMS(2), ATTILE_SUMS(4), ATTILE_SUMS(6),
                ATTILE_SUMS(8), ATTILE_SUMS(10), ATTILE_SUMS(12), ATTILE_SUMS(14),
                ATTILE_SUMS(16), ATTILE_SUMS(18), ATTILE_SUMS(20), ATTILE_SUMS(22),
                ATTILE_SUMS(24), ATTILE_SUMS(26), ATTILE_SUMS(28), ATTILE_SUMS(30)))
ATTILE_WGMMA_SHAPE(
    144,
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
    "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
    "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
    "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71",
    "%72", "%73", "%74", "%75", "%76", "%77", "%78",
    ATTILE_LIST(ATTILE_SUMS(0), ATTILE_SUMS(2), ATTILE_SUMS(4), ATTILE_SUMS(6),
                ATTILE_SUMS(8), ATTILE_SUMS(10), ATTILE_SUMS(12), ATTILE_SUMS(14),
                ATTILE_SUMS(16), ATTILE_SUMS(18), ATTILE_SUMS(20), ATTILE_SUMS(22),
                ATTILE_SUMS(24), ATTILE_SUMS(26), ATTILE_SUMS(28), ATTILE_SUMS(30),
                ATTILE_SUMS(32), ATTILE_SUMS(34)))
ATTILE_WGMMA_SHAPE(
    160,
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
    "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
    "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
    "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, "
    "%72, %73, %74, %75, %76, %77, %78, %79",
    "%80", "%81", "%82", "%83", "%84", "%85", "%86",
    ATTILE_LIST(ATTILE_SUMS(0), ATTILE_SUMS(2), ATTILE_SUMS(4), ATTILE_SUMS(6),
                ATTILE_SUMS(8), ATTILE_SUMS(10), ATTILE_SUMS(12), ATTILE_SUMS(14),
                ATTILE_SUMS(16), ATTILE_SUMS(18), ATTILE_SUMS(20), ATTILE_SUMS(22),
                ATTILE_SUMS(24), ATTILE_SUMS(26), ATTILE_SUMS(28), ATTILE_SUMS(30),
                ATTILE_SUMS(32), ATTILE_SUMS(34), ATTILE_SUMS(36), ATTILE_SUMS(38)))
ATTILE_WGMMA_SHAPE(
    176,
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
    "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
    "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
    "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, "
    "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "
    "%84, %85, %86, %87",
    "%88", "%89", "%90", "%91", "%92", "%93", "%94",
    ATTILE_LIST(ATTILE_SUMS(0), ATTILE_SUMS(2), ATTILE_SUMS(4), ATTILE_SUMS(6),
                ATTILE_SUMS(8), ATTILE_SUMS(10), ATTILE_SUMS(12), ATTILE_SUMS(14),
                ATTILE_SUMS(16), ATTILE_SUMS(18), ATTILE_SUMS(20), ATTILE_SUMS(22),
                ATTILE_SUMS(24), ATTILE_SUMS(26), ATTILE_SUMS(28), ATTILE_SUMS(30),
                ATTILE_SUMS(32), ATTILE_SUMS(34), ATTILE_SUMS(36), ATTILE_SUMS(38),
                ATTILE_SUMS(40), ATTILE_SUMS(42)))
ATTILE_WGMMA_SHAPE(
    192,
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
    "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
    "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
    "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, "
    "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "
    "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95",
    "%96", "%97", "%98", "%99", "%100", "%101", "%102",
    ATTILE_LIST(ATTILE_SUMS(0), ATTILE_SUMS(2), ATTILE_SUMS(4), ATTILE_SUMS(6),
                ATTILE_SUMS(8), ATTILE_SUMS(10), ATTILE_SUMS(12), ATTILE_SUMS(14),
                ATTILE_SUMS(16), ATTILE_SUMS(18), ATTILE_SUMS(20), ATTILE_SUMS(22),
                ATTILE_SUMS(24), ATTILE_SUMS(26), ATTILE_SUMS(28), ATTILE_SUMS(30),
                ATTILE_SUMS(32), ATTILE_SUMS(34), ATTILE_SUMS(36), ATTILE_SUMS(38),
                ATTILE_SUMS(40), ATTILE_SUMS(42), ATTILE_SUMS(44), ATTILE_SUMS(46)))
ATTILE_WGMMA_SHAPE(
    208,
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
    "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
    "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
    "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, "
    "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "
    "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
    "%96, %97, %98, %99, %100, %101, %102, %103",
    "%104", "%105", "%106", "%107", "%108", "%109", "%110",
    ATTILE_LIST(ATTILE_SUMS(0), ATTILE_SUMS(2), ATTILE_SUMS(4), ATTILE_SUMS(6),
                ATTILE_SUMS(8), ATTILE_SUMS(10), ATTILE_SUMS(12), ATTILE_SUMS(14),
                ATTILE_SUMS(16), ATTILE_SUMS(18), ATTILE_SUMS(20), ATTILE_SUMS(22),
                ATTILE_SUMS(24), ATTILE_SUMS(26), ATTILE_SUMS(28), ATTILE_SUMS(30),
                ATTILE_SUMS(32), ATTILE_SUMS(34), ATTILE_SUMS(36), ATTILE_SUMS(38),
                ATTILE_SUMS(40), ATTILE_SUMS(42), ATTILE_SUMS(44), ATTILE_SUMS(46),
                ATTILE_SUMS(48), ATTILE_SUMS(50)))
ATTILE_WGMMA_SHAPE(
    224,
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
    "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
    "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
    "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, "
    "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "
    "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, "
    "%108, %109, %110, %111",
    "%112", "%113", "%114", "%115", "%116", "%117", "%118",
    ATTILE_LIST(ATTILE_SUMS(0), ATTILE_SUMS(2), ATTILE_SUMS(4), ATTILE_SUMS(6),
                ATTILE_SUMS(8), ATTILE_SUMS(10), ATTILE_SUMS(12), ATTILE_SUMS(14),
                ATTILE_SUMS(16), ATTILE_SUMS(18), ATTILE_SUMS(20), ATTILE_SUMS(22),
                ATTILE_SUMS(24), ATTILE_SUMS(26), ATTILE_SUMS(28), ATTILE_SUMS(30),
                ATTILE_SUMS(32), ATTILE_SUMS(34), ATTILE_SUMS(36), ATTILE_SUMS(38),
                ATTILE_SUMS(40), ATTILE_SUMS(42), ATTILE_SUMS(44), ATTILE_SUMS(46),
                ATTILE_SUMS(48), ATTILE_SUMS(50), ATTILE_SUMS(52), ATTILE_SUMS(54)))
ATTILE_WGMMA_SHAPE(
    240,
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
    "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
    "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
    "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, "
    "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "
    "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, "
    "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119",
    "%120", "%121", "%122", "%123", "%124", "%125", "%126",
    ATTILE_LIST(ATTILE_SUMS(0), ATTILE_SUMS(2), ATTILE_SUMS(4), ATTILE_SUMS(6),
                ATTILE_SUMS(8), ATTILE_SUMS(10), ATTILE_SUMS(12), ATTILE_SUMS(14),
                ATTILE_SUMS(16), ATTILE_SUMS(18), ATTILE_SUMS(20), ATTILE_SUMS(22),
                ATTILE_SUMS(24), ATTILE_SUMS(26), ATTILE_SUMS(28), ATTILE_SUMS(30),
                ATTILE_SUMS(32), ATTILE_SUMS(34), ATTILE_SUMS(36), ATTILE_SUMS(38),
                ATTILE_SUMS(40), ATTILE_SUMS(42), ATTILE_SUMS(44), ATTILE_SUMS(46),
                ATTILE_SUMS(48), ATTILE_SUMS(50), ATTILE_SUMS(52), ATTILE_SUMS(54),
                ATTILE_SUMS(56), ATTILE_SUMS(58)))
ATTILE_WGMMA_SHAPE(
    256,
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
    "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
    "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
    "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, "
    "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "
    "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, "
    "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, "
    "%120, %121, %122, %123, %124, %125, %126, %127",
    "%128", "%129", "%130", "%131", "%132", "%133", "%134",
    ATTILE_LIST(ATTILE_SUMS(0), ATTILE_SUMS(2), ATTILE_SUMS(4), ATTILE_SUMS(6),
                ATTILE_SUMS(8), ATTILE_SUMS(10), ATTILE_SUMS(12), ATTILE_SUMS(14),
                ATTILE_SUMS(16), ATTILE_SUMS(18), ATTILE_SUMS(20), ATTILE_SUMS(22),
                ATTILE_SUMS(24), ATTILE_SUMS(26), ATTILE_SUMS(28), ATTILE_SUMS(30),
                ATTILE_SUMS(32), ATTILE_SUMS(34), ATTILE_SUMS(36), ATTILE_SUMS(38),
                ATTILE_SUMS(40), ATTILE_SUMS(42), ATTILE_SUMS(44), ATTILE_SUMS(46),
                ATTILE_SUMS(48), ATTILE_SUMS(50), ATTILE_SUMS(52), ATTILE_SUMS(54),
                ATTILE_SUMS(56), ATTILE_SUMS(58), ATTILE_SUMS(60), ATTILE_SUMS(62)))

#undef ATTILE_WGMMA_SHAPE
#undef ATTILE_WGMMA_FP8
#undef ATTILE_SUMS
#undef ATTILE_LIST
#undef ATTILE_WGMMA_STATEMENT
#undef ATTILE_WGMMA

}  // namespace attile::arch
