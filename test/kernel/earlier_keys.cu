// SPDX-License-Identifier: MIT
// Calls that go on from earlier keys, on a GPU: the one calls, with what kernel they choose.
#include <cstddef>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/earlier_keys_on_device.h"

namespace kernel_earlier_keys {

using namespace attile_test;
using attile::Causal;
using attile::NoDropout;
using attile::PartDropout;
using attile::Uniform;

template <int D>
const auto kForward = on_device([](const auto& args) { return attile::forward<D>(args); });
template <int D>
const auto kDecode = on_device(split_to_fill([](void* workspace, std::size_t& bytes,
                                                const auto& args) {
  return attile::decode<D>(workspace, bytes, args);
}));

TEST_CASE("parts of keys are the whole") {
  check_parts_of_sequences<__half, Uniform, attile::Padded, attile::Packed, attile::Cached,
                           attile::Paged>(kForward<32>);
  check_parts_of_sequences<float, Uniform, attile::Packed>(kForward<32>);
  check_parts_of_sequences<__nv_bfloat16, Uniform, attile::Packed, attile::Cached, attile::Paged>(
      kDecode<32>);
}

TEST_CASE("parts of keys drop what the whole does") {
  check_parts<KeysInParts<__half, Uniform, PartDropout, Causal>>(
      {2, 4, 2, 150, 64, {16, 64, 144, 400}}, kForward<64>);
  check_parts<KeysInParts<__half, attile::Packed, PartDropout>>({3, 2, 1, 9, 32, {32, 48, 301}},
                                                                kDecode<32>);
}

TEST_CASE("128k keys in 16 parts") {
  std::vector<int> ends;
  for (int part = 1; part <= 16; ++part) ends.push_back(part * 8192);
  check_parts<KeysInParts<__half, Uniform, NoDropout, Causal>>({1, 2, 1, 130, 64, ends},
                                                               kForward<64>);
  check_parts<KeysInParts<__nv_bfloat16>>({1, 4, 1, 1, 64, ends}, kDecode<64>);
}

}  // namespace kernel_earlier_keys
