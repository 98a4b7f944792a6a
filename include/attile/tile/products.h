// SPDX-License-Identifier: MIT
#pragma once

namespace attile::tile {

/// How matrix instructions, which take TF32, multiply fp32. TF32 has fp32's exponents and 11
/// significant bits.
enum class Products {
  /// operands as sums of two numbers, three products: each within 2^-21 of its value, O, dQ, dK and
  /// dV within 2^-21 of the sum of their terms' absolute values besides what fp32's rounding does
  k3xTf32,
  k1xTf32  ///< operands rounded to TF32, one product: each within 2^-10 of its value
};

}  // namespace attile::tile
