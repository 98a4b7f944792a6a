// SPDX-License-Identifier: MIT
#pragma once

// MSVC leaves __cplusplus at 199711 unless told otherwise; GCC 10's C++20 is 201709.
#if (defined(_MSVC_LANG) ? _MSVC_LANG : __cplusplus) < 201709L
#error "attile needs C++20: compile with -std=c++20 (nvcc too; MSVC: /std:c++20)"
#endif

// These are the attributes of functions that device code may call. This is the library's only test
// for a CUDA compiler: everything above arch/ is also compiled as ordinary C++.
#ifdef __CUDACC__
#define ATTILE_CUDA_COMPILER 1
#define ATTILE_DEVICE __device__ __forceinline__
#define ATTILE_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define ATTILE_CUDA_COMPILER 0
#define ATTILE_DEVICE inline
#define ATTILE_HOST_DEVICE inline
#endif
