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
#include <catch2/interfaces/catch_interfaces_testcase.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#define ATTILE_CATCH2_VERSION_2
#endif

#include <functional>
#include <string>
#include <utility>

namespace attile_test {

/// A test whose name is made when the program starts.
inline void register_test(const std::string& name, std::function<void()> test) {
  struct Invoker : Catch::ITestInvoker {
    explicit Invoker(std::function<void()> f) : run(std::move(f)) {}
    void invoke() const override { run(); }
    std::function<void()> run;
  };
#ifdef ATTILE_CATCH2_VERSION_2
  Catch::ITestInvoker* const invoker = new Invoker(std::move(test));  // Catch2 deletes it
#else
  Catch::Detail::unique_ptr<Catch::ITestInvoker> invoker(new Invoker(std::move(test)));
#endif
  const Catch::AutoReg added(std::move(invoker), CATCH_INTERNAL_LINEINFO, {}, {name, {}});
}

}  // namespace attile_test

/// Leaves the test case with a word on why it cannot run here. A case that ends so without having
/// checked anything counts as skipped; when all do, ctest counts the executable as skipped.
/// Catch2's own SKIP is not used: version 2 has none.
#define SKIP_CASE(reason)          \
  do {                             \
    ::attile_test::mark_skipped(); \
    WARN("skipped: " << (reason)); \
    return;                        \
  } while (false)
