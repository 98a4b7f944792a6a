// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

namespace attile {

namespace detail {

template <class T, int kCount, int... kOthers>
struct ArrayOf {
  using Type = typename ArrayOf<T, kOthers...>::Type[std::size_t{kCount}];
};
template <class T, int kCount>
struct ArrayOf<T, kCount> {
  using Type = T[std::size_t{kCount}];
};

}  // namespace detail

/// The array type T[kCounts]..., for counts that depend on template parameters: g++ 12 warns under
/// -Wsign-conversion where such an int is written as the bound, whatever its value.
template <class T, int... kCounts>
using Array = typename detail::ArrayOf<T, kCounts...>::Type;

}  // namespace attile
