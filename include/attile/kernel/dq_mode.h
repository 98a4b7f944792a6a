// SPDX-License-Identifier: MIT
#pragma once

namespace attile {

/// How a backward pass makes dQ.
enum class DqMode {
  kAccumulate,  ///< one pass over K/V blocks; dQ is added up in fp32 by atomics, in no fixed order
  kTwoPass,  ///< a second pass over Q blocks makes dQ: more work, no atomics, the same bits always
  kInOrder,  ///< one pass; each K/V block waits, at each block of query rows, until those before it
             ///< have added their part of dQ, as FlashAttention-1's loop has it: the same bits
             ///< always. A mask that answers the same question in two ways makes it wait for ever.
};

}  // namespace attile
