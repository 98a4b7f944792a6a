// SPDX-License-Identifier: MIT
#pragma once

// Attributes of kernels and loops. Device code unrolls; the host compiler is left to judge.
#ifdef __CUDA_ARCH__
#define ATTILE_UNROLL _Pragma("unroll")
#define ATTILE_UNROLL_BY(n) ATTILE_PRAGMA(unroll(n))
#define ATTILE_PRAGMA(text) _Pragma(#text)
#else
#define ATTILE_UNROLL
#define ATTILE_UNROLL_BY(n)
#endif
