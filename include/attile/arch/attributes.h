// SPDX-License-Identifier: MIT
#pragma once

// Attributes of loops. Device code is unrolled as they say; the host compiler decides for itself.
#ifdef __CUDA_ARCH__
#define ATTILE_UNROLL _Pragma("unroll")
#define ATTILE_UNROLL_BY(n) ATTILE_PRAGMA(unroll(n))
#define ATTILE_PRAGMA(text) _Pragma(#text)
#else
#define ATTILE_UNROLL
#define ATTILE_UNROLL_BY(n)
#endif
