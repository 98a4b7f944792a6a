// SPDX-License-Identifier: MIT
#include <attile/core/workspace.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "support/catch.h"

namespace {

using attile::check_workspace;
using attile::detail::answer_workspace;

constexpr std::size_t kNeeded = 48;
const char* const kNull =
    "workspace is null: such a call only sets workspace_bytes, which then must be a variable";
const char* const kMisaligned = "workspace is not aligned to 16 bytes";
const char* const kTooSmall =
    "workspace_bytes is less than the call needs: a null workspace asks how many";

struct Memory {
  alignas(16) unsigned char bytes[2 * kNeeded];
};

TEST_CASE("workspace.each_bad_one_has_its_sentence") {
  Memory memory;
  const auto why = [](const void* workspace, std::size_t bytes) {
    const attile::Check check = check_workspace(workspace, bytes, kNeeded);
    CHECK(check.error == (check ? cudaSuccess : cudaErrorInvalidValue));
    return std::string(check.why);
  };
  CHECK(why(memory.bytes, kNeeded) == "");
  CHECK(why(memory.bytes + 16, kNeeded + 1) == "");
  CHECK(why(memory.bytes, kNeeded - 1) == kTooSmall);
  CHECK(why(memory.bytes, 0) == kTooSmall);
  for (const int bytes : {1, 4, 8, 15}) CHECK(why(memory.bytes + bytes, 999) == kMisaligned);
  CHECK(why(nullptr, 0) == kNull);
  CHECK(why(nullptr, 999) == kNull);
}

TEST_CASE("workspace.a_variable_is_set_by_a_call_without_memory") {
  std::size_t bytes = 5;
  CHECK(answer_workspace(nullptr, bytes, kNeeded) == cudaSuccess);
  CHECK(bytes == kNeeded);
}

TEST_CASE("workspace.of_the_second_call_may_be_a_constant") {
  Memory memory;
  const std::size_t constant = kNeeded;
  std::size_t variable = kNeeded;
  CHECK(answer_workspace(memory.bytes, constant, kNeeded) == std::nullopt);
  CHECK(answer_workspace(memory.bytes, std::size_t{kNeeded}, kNeeded) == std::nullopt);
  CHECK(answer_workspace(memory.bytes, std::move(variable), kNeeded) == std::nullopt);
  CHECK(answer_workspace(memory.bytes, variable, kNeeded) == std::nullopt);
  CHECK(answer_workspace(memory.bytes, constant, kNeeded + 1) == cudaErrorInvalidValue);
  CHECK(answer_workspace(memory.bytes + 8, constant, kNeeded - 8) == cudaErrorInvalidValue);
  CHECK(variable == kNeeded);
}

TEST_CASE("workspace.a_constant_cannot_be_asked_for") {
  const std::size_t constant = kNeeded;
  CHECK(answer_workspace(nullptr, constant, kNeeded) == cudaErrorInvalidValue);
  CHECK(answer_workspace(nullptr, std::size_t{999}, kNeeded) == cudaErrorInvalidValue);
  CHECK(constant == kNeeded);
}

}  // namespace
