// SPDX-License-Identifier: MIT
// standard: c++17
// promises: attile needs C++20
#include <attile/attile.cuh>
