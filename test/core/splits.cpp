// SPDX-License-Identifier: MIT
#include <attile/core/splits.h>

#include "support/catch.h"

namespace {

using attile::EvenCut;

TEST_CASE("splits.an even cut has runs of nearly equal lengths, and finds each unit's") {
  for (const unsigned runs : {1u, 2u, 3u, 7u, 132u, 264u}) {
    for (const unsigned units : {1u, 2u, 6u, 7u, 8u, 131u, 263u, 264u, 265u, 8192u, 1'000'003u}) {
      if (units < runs) continue;
      INFO(units << " units, " << runs << " runs");
      const EvenCut cut(units, runs);
      REQUIRE(cut.first(0) == 0);
      REQUIRE(cut.first(runs) == units);
      unsigned wrong = 0;
      for (unsigned run = 0; run < runs; ++run) {
        const unsigned first = cut.first(run), end = cut.first(run + 1);
        if (end - first < units / runs || end - first > (units + runs - 1) / runs) ++wrong;
        if (cut.run_of(first) != run || cut.run_of(end - 1) != run) ++wrong;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("splits.an even cut of the most units that are counted") {
  const unsigned most = (1u << 30) - 1;
  const EvenCut cut(most, 4096);
  CHECK(cut.first(4096) == most);
  CHECK(cut.run_of(most - 1) == 4095);
  CHECK(cut.run_of(cut.first(4095) - 1) == 4094);
}

}  // namespace
