// SPDX-License-Identifier: MIT
#pragma once

// This header has the CPU executor: attention forward and backward on host memory, with the tiles,
// masks and online softmax of the GPU kernels. Compile with -march=native (or the machine you build
// for): the vectors are as wide as the compiler flags allow.

#include <attile/host/append.h>
#include <attile/host/backward.h>
#include <attile/host/block_lists.h>
#include <attile/host/forward.h>
#include <attile/host/merge.h>
#include <attile/host/prepare.h>
#include <attile/host/problem.h>
#include <attile/host/quantize.h>
#include <attile/version.h>
