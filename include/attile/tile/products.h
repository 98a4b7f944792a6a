// SPDX-License-Identifier: MIT
#pragma once

namespace attile::tile {

/// Says how matrix instructions, which take TF32, multiply fp32. TF32 has fp32's exponents and 11
/// significant bits.
enum class Products {
  /// Operands are sums of two numbers, and a product is three: it is within 2^-21 of its value. O,
  /// dQ, dK and dV are within 2^-21 of the sum of their terms' absolute values, besides the
  /// rounding of fp32.
  k3xTf32,
  k1xTf32  ///< operands are rounded to TF32: a product is within 2^-10 of its value
};

}  // namespace attile::tile
