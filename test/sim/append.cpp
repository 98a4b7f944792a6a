// SPDX-License-Identifier: MIT
// `append` on the simulated machine.
#include "support/append.h"

#include <attile/append.cuh>
#include <attile/decode.cuh>

#include <string>

#include "sim/machine.h"
#include "support/append_fp8.h"
#include "support/append_on_device.h"
#include "support/catch.h"
#include "support/generation.h"

namespace {

using namespace attile_test;

/// Runs a case, and returns what the machine has to say of it.
const auto kOnMachine = [](auto& problem) {
  std::string text = append_on_device(problem);
  for (const sim::Report& report : sim::take_reports()) {
    text += report.kind + ": " + report.text + "\n";
  }
  return text;
};

TEST_CASE("append.against_plain_loops") { check_all_appends(kOnMachine); }
/// Without rows that begin at odd bytes, since the machine knows of two bytes at a time who wrote
/// them.
TEST_CASE("append.to_fp8") {
  check_fp8_appends(kOnMachine, [](const AppendCase& c) { return !c.unaligned; });
}
TEST_CASE("append.gives_the_bits_of_the_cpu") { check_bits_of_cpu(kOnMachine); }
TEST_CASE("append.ends_whatever_device_memory_says") { check_garbled_appends(kOnMachine); }

using Decode =
    attile::DecodeTraits<16, 32, Generation::kD, Generation::T, attile::Causal, attile::PagedPacked,
                         attile::NoDropout, Generation::kD,
                         attile::sm80::DecodeTuning<attile::sm80::DecodeTuningValues{.warps = 2}>>;

TEST_CASE("append.then_attend") {
  check_generation([](const auto& append, const auto& attend) {
    REQUIRE(attile::append(append) == cudaSuccess);
    REQUIRE(attile::forward<Decode>(attend) == cudaSuccess);
    CHECK(sim::take_reports().empty());
  });
}

}  // namespace
