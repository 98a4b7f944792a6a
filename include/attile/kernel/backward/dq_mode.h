// SPDX-License-Identifier: MIT
#pragma once

namespace attile {

/// Says how a backward pass computes dQ.
enum class DqMode {
  kAccumulate,  ///< one pass over K/V blocks; dQ is added up in fp32 by atomics, in no fixed order
  kTwoPass,     ///< a second pass over Q blocks for dQ: more work, no atomics, the same bits always
  kInOrder,  ///< one pass; each K/V block waits, at each block of query rows, until those after it
             ///< have added their part of dQ, as in FlashAttention-1's loop from the last K/V block
             ///< to the first (of some heads of sm90 the other way round): the same bits always. A
             ///< mask that answers the same question in two ways makes it wait for ever.
};

}  // namespace attile
