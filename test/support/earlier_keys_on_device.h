// SPDX-License-Identifier: MIT
#pragma once

#include <attile/decode.cuh>
#include <attile/forward.cuh>

#include <string>
#include <vector>

#include "support/earlier_keys.h"
#include "support/gpu_executor.h"

namespace attile_test {

/// Runs a call of parts in device memory: `launch(args on the device) -> cudaError_t`. Returns what
/// went wrong.
template <class Launch>
auto on_device(const Launch& launch) {
  return [launch]<class Args>(const Args& args, const std::vector<Region>& regions) {
    return std::string(run_on_device(args, regions, [&](const Args& a) { return launch(a); }).why);
  };
}

/// Calls one kernel of decode with keys split to fill the device: `decode(workspace, bytes, args)`.
template <class Decode>
auto split_to_fill(const Decode& decode) {
  return [decode]<class Args>(Args args) {
    args.splits = attile::Splits::fill();
    return with_workspace([&](void* workspace, std::size_t& bytes) {
      if (workspace != nullptr) {
        if (const auto error = attile::reset_workspace(workspace, bytes)) return error;
      }
      return decode(workspace, bytes, args);
    });
  };
}

}  // namespace attile_test
