// SPDX-License-Identifier: MIT
#include "kernel/suite_executor.cuh"
#include "sim/suite.h"

namespace {

using namespace attile_test;

using Default = GpuExecutor<Dims<64>>;
using Odd = GpuExecutor<Dims<64>, Tiles<20, 24, attile::portable::Tuning<128>>>;
using Padded = GpuExecutor<Dims<64>, Tiles<57, 57, attile::portable::Tuning<128>>>;
using TwoPass = GpuExecutor<Dims<64>, Tiles<16, 24>, attile::DqMode::kTwoPass>;

constexpr double kMostCost = 2.5e6, kLessCost = 1.2e6;

const bool kRegistered = [] {
#define ATTILE_REGISTER(name, policy)                                                           \
  register_cases<Direction::kForward, float, Policy::policy>("portable", Default{}, kMostCost); \
  register_cases<Direction::kBackward, float, Policy::policy>("portable", Default{}, kMostCost);
  ATTILE_EACH_POLICY(ATTILE_REGISTER)
#undef ATTILE_REGISTER
  register_cases<Direction::kBackward, float, Policy::kCausal>("portable_two_pass", TwoPass{},
                                                               kLessCost);
  register_cases<Direction::kBackward, float, Policy::kEverything>("portable_two_pass", TwoPass{},
                                                                   kLessCost);
  register_cases<Direction::kBackward, float, Policy::kLearned>("portable", Default{}, kLessCost);
  register_cases<Direction::kBackward, float, Policy::kLearned>("portable_two_pass", TwoPass{},
                                                                kLessCost);
  // Rows that do not fill the threads' places.
  register_cases<Direction::kForward, float, Policy::kCausal>("portable_20x24", Odd{}, kLessCost);
  register_cases<Direction::kBackward, float, Policy::kCausal>("portable_20x24", Odd{}, kLessCost);
  // Rows and columns whose last vector reaches into the padding.
  register_cases<Direction::kForward, float, Policy::kCausal>("portable_57x57", Padded{},
                                                              kLessCost);
  register_cases<Direction::kBackward, float, Policy::kCausal>("portable_57x57", Padded{},
                                                               kLessCost);
  register_cases<Direction::kForward, __half, Policy::kCausal>("portable_fp16", Default{},
                                                               kLessCost);
  register_cases<Direction::kBackward, __half, Policy::kCausal>("portable_fp16", Default{},
                                                                kLessCost);
  return true;
}();

}  // namespace
