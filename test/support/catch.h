// SPDX-License-Identifier: MIT
#pragma once

#include "main.h"

// Catch2, major version 2 or 3: together with main.cpp the one place in the tests that knows which.
// Both give TEST_CASE, TEMPLATE_TEST_CASE(_SIG), SECTION, REQUIRE, CHECK, INFO, CAPTURE, WARN,
// GENERATE and Approx.
#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

/// Leaves the test case with a word on why it cannot run here. A case that ends so without having
/// checked anything counts as skipped; when all do, ctest counts the executable as skipped.
/// Catch2's own SKIP is not used: version 2 has none.
#define SKIP_CASE(reason)          \
  do {                             \
    ::attile_test::mark_skipped(); \
    WARN("skipped: " << (reason)); \
    return;                        \
  } while (false)
