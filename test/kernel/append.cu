// SPDX-License-Identifier: MIT
// `append`: on a GPU what it is on the CPU, and a step of generation in a graph that is replayed.
#include <attile/append.cuh>
#include <attile/decode.cuh>

#include <cuda_runtime_api.h>

#include <optional>

#include "support/append.h"
#include "support/append_fp8.h"
#include "support/append_on_device.h"
#include "support/captured.h"
#include "support/catch.h"
#include "support/device.h"
#include "support/generation.h"

namespace kernel_append {

using namespace attile_test;

TEST_CASE("append is loops over rows") {
  check_all_appends([](auto& problem) { return append_on_device(problem); });
}

TEST_CASE("append quantises to fp8") {
  check_fp8_appends([](auto& problem) { return append_on_device(problem); },
                    [](const AppendCase&) { return true; });
}

TEST_CASE("append gives the bits of the CPU") {
  check_bits_of_cpu([](auto& problem) { return append_on_device(problem); });
}

TEST_CASE("append ends, whatever device memory says") {
  check_garbled_appends([](auto& problem) { return append_on_device(problem); });
}

TEST_CASE("append refuses bad arguments before a launch") {
  const Device<float> rows(8), k(8), v(8);
  attile::AppendArgs<float, attile::Cached> args{
      .k_new = attile::bshd<const float>(rows.get(), {.rows = 1, .heads = 1, .dim = 8}),
      .v_new = attile::bshd<const float>(rows.get(), {.rows = 1, .heads = 1, .dim = 8}),
      .k = attile::bshd(k.get(), {.rows = 1, .heads = 1, .dim = 8}),
      .v = attile::bshd(v.get(), {.rows = 1, .heads = 1, .dim = 8}),
      .batch = 1,
      .kv_heads = 1,
      .q_len = 1,
      .kv_len = 1,
      .head_dim = 8};
  CHECK(attile::check_append(args));
  CHECK(attile::append(args) == cudaSuccess);
  args.k.data = nullptr;
  CHECK(attile::append(args) == cudaErrorInvalidValue);
  args.k = args.v;
  CHECK(attile::append(args) == cudaErrorInvalidValue);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
}

/// One graph of both calls: lengths, offsets and rows are what device memory has at each replay.
TEST_CASE("a replayed graph appends and attends anew") {
  std::optional<Captured> captured;
  check_generation([&](const auto& append, const auto& attend) {
    if (!captured) {
      captured.emplace([&](cudaStream_t stream) {
        const cudaError_t error = attile::append(append, stream);
        return error == cudaSuccess ? attile::decode<Generation::kD>(attend, stream) : error;
      });
    }
    captured->replay();
  });
}

}  // namespace kernel_append
