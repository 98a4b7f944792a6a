// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/fp8.cuh>
#include <attile/core/config.h>
#include <attile/core/fp8.h>

#include <cuda_fp16.h>

#include <cstdint>

namespace attile::tile {

/// Returns what a number of an operand of T counts that is loaded in_unit.
template <class T>
ATTILE_DEVICE constexpr float operand_unit() {
  if constexpr (Fp8<T>) {
    return arch::fp8_unit<T>();
  } else {
    return 1.0f;
  }
}

/// Is what `in_unit` makes of a right operand of fp8.
template <class Right>
struct OperandInUnit : Right {
  ATTILE_DEVICE explicit OperandInUnit(const Right& right) : Right(right) {}

  template <class T>
  ATTILE_DEVICE void piece(std::uint32_t (&b)[4], int k, int j) const {
    Right::template piece<T, true>(b, k, j);
  }
};

/// Returns a right operand whose elements, where they are fp8 that is converted, are loaded as 1 /
/// operand_unit of themselves. That saves an instruction for two of them on devices which cannot
/// convert them by one. What is made of the products has to be multiplied by the unit.
///   tile::multiply<T>(s_frag, q_left, tile::in_unit(tile::SharedRightTransposed(k_smem)));
template <class Right>
ATTILE_DEVICE auto in_unit(const Right& right) {
  constexpr bool kConverts = requires(std::uint32_t(&b)[4]) {
    right.template piece<__half, true>(b, 0, 0);
  };
  if constexpr (kConverts) {
    return OperandInUnit<Right>(right);
  } else {
    return right;
  }
}

}  // namespace attile::tile
