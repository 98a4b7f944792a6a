// SPDX-License-Identifier: MIT
// Every bad set of arguments is refused with its sentence and without a launch.
#include <attile/attile.cuh>

#include <cstddef>
#include <string>
#include <type_traits>

#include "support/bad_arguments.h"
#include "support/captured.h"
#include "support/catch.h"

namespace kernel_refused {

using namespace attile_test;

struct ExpectRefused {
  int* count;

  template <class Args>
  void operator()(const char* name, const char* why, const Args& args) const {
    // Policies are told apart by the types of their kernels; without them two kernels are enough.
    if constexpr (std::is_same_v<Args, attile::ForwardArgs<float>>) {
      check(name, why, args, [&](auto stream) { return attile::forward<64>(args, stream); });
    } else if constexpr (std::is_same_v<Args, attile::BackwardArgs<float>>) {
      std::size_t unused = 7;
      check(name, why, args,
            [&](auto stream) { return attile::backward<64>(nullptr, unused, args, stream); });
      CHECK(unused == 7);
      alignas(16) unsigned char workspace[16];
      std::size_t enough = std::size_t{1} << 60;
      check(name, why, args,
            [&](auto stream) { return attile::backward<64>(workspace, enough, args, stream); });
    }
  }

  template <class Args, class Call>
  void check(const char* name, const char* why, const Args& args, const Call& call) const {
    INFO(name);
    CHECK(std::string(attile::check<64>(args).why) == why);
    const Captured captured(call);
    CHECK(captured.error == cudaErrorInvalidValue);
    CHECK(captured.kernels + captured.others == 0);
    ++*count;
  }
};

TEST_CASE("every bad set of arguments is refused and launches nothing") {
  int count = 0;
  visit_bad_forward(ExpectRefused{&count});
  visit_bad_backward(ExpectRefused{&count});
  visit_bad_for_kernel(ExpectRefused{&count});
  CHECK(count >= 100);
  CHECK(cudaGetLastError() == cudaSuccess);
}

}  // namespace kernel_refused
