// SPDX-License-Identifier: MIT
// `merge` on the CPU.
#include "support/merge.h"

#include <attile/host/merge.h>

#include <string>

#include "support/catch.h"

namespace host_merge {

using namespace attile_test;

const auto kOnCpu = [](auto& problem) {
  return std::string(attile::host::merge(problem.args([](auto* x) { return x; })).why);
};

TEST_CASE("merge.against_weighted_sums") { check_all_merges(kOnCpu); }
TEST_CASE("merge.parts_of_a_whole") { check_parts_of_a_whole(kOnCpu, 1 << 17); }

/// Where there is nothing to do, nothing is read.
TEST_CASE("merge.nothing") {
  attile::MergeArgs<float, float, attile::Packed> args{
      .part_tensors = 1, .batch = 3, .q_heads = 1, .q_len = 0, .head_dim_v = 8};
  CHECK(std::string(attile::host::merge(args).why) ==
        "sequences: the rows of a tensor are not given");
  args.sequences.total_q = args.sequences.total_k = 0;
  CHECK(attile::host::merge(args));
  args.batch = 0, args.q_len = 4;
  CHECK(attile::host::merge(args));
}

}  // namespace host_merge
