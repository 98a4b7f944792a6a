// SPDX-License-Identifier: MIT
// `append` on the CPU.
#include "support/append.h"

#include <attile/host/append.h>

#include <string>

#include "support/append_fp8.h"
#include "support/catch.h"

namespace host_append {

using namespace attile_test;

const auto kOnCpu = [](auto& problem) {
  return std::string(attile::host::append(problem.args([](auto* x) { return x; })).why);
};

TEST_CASE("append.against_plain_loops") { check_all_appends(kOnCpu); }
TEST_CASE("append.to_fp8") {
  check_fp8_appends(kOnCpu, [](const AppendCase&) { return true; });
}
TEST_CASE("append.ends_whatever_the_numbers") { check_garbled_appends(kOnCpu); }

/// Where there is nothing to do, nothing is read.
TEST_CASE("append.nothing") {
  attile::AppendArgs<float, attile::CachedPacked> args{
      .batch = 3, .kv_heads = 1, .q_len = 0, .kv_len = 0, .head_dim = 8};
  args.sequences.queries.total_q = 0;
  CHECK(attile::host::append(args));
  args.batch = 0, args.q_len = args.kv_len = 4;
  CHECK(attile::host::append(args));
  args.batch = 1;
  CHECK(std::string(attile::host::append(args).why) == "PackedQueries: cu_seqlens_q is null");
}

}  // namespace host_append
