// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

#include <concepts>

namespace attile {

/// A kind of policy that the library does not have: raw scores are multiplied by a factor.
template <class T>
concept Tempering = requires(const T& temperature) {
  { T::kTempers } -> std::convertible_to<bool>;
  { temperature.factor() } -> std::same_as<float>;
};

struct NoTemperature {
  static constexpr bool kTempers = false;
  ATTILE_HOST_DEVICE float factor() const { return 1.0f; }
};

struct Temperature {
  static constexpr bool kTempers = true;
  float inverse = 1.0f;

  const char* fault() const {
    return inverse > 0.0f ? nullptr : "Temperature: inverse must be above 0";
  }
  ATTILE_HOST_DEVICE float factor() const { return inverse; }
};

}  // namespace attile
