// SPDX-License-Identifier: MIT
#pragma once

#include <driver_types.h>

namespace attile {

/// Holds the result of checking a set of arguments: true, or an error with one sentence that says
/// why. `why` is a static string; it is empty when there is nothing to say.
struct [[nodiscard]] Check {
  cudaError_t error = cudaSuccess;
  const char* why = "";

  constexpr explicit operator bool() const { return error == cudaSuccess; }
};

/// Returns a refusal because of an argument's value.
constexpr Check refuse(const char* why) { return {cudaErrorInvalidValue, why}; }

}  // namespace attile
