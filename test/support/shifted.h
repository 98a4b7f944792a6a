// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace attile_test {

/// The pointer some bytes further.
template <class T>
T* shifted(T* pointer, int bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(pointer) + bytes);
}

}  // namespace attile_test
