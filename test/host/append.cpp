// SPDX-License-Identifier: MIT
// `append` on the CPU.
#include "support/append.h"

#include <attile/host/append.h>

#include <string>

#include "support/catch.h"

namespace host_append {

using namespace attile_test;

const auto kOnCpu = [](auto& problem) {
  return std::string(attile::host::append(problem.args([](auto* x) { return x; })).why);
};

TEST_CASE("append.against_plain_loops") { check_all_appends(kOnCpu); }
TEST_CASE("append.ends_whatever_the_numbers") { check_garbled_appends(kOnCpu); }

}  // namespace host_append
