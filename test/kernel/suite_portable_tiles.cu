// SPDX-License-Identifier: MIT
// Tiles that a caller may choose, odd ones too, and both ways to dQ.
#include "kernel/suite_executor.cuh"

namespace suite_portable_tiles {

using namespace attile_test;
using attile::DqMode;
using attile::portable::Tuning;
using attile::portable::TuningValues;

using Dims64 = Dims<64>;
using Dims192x128 = Dims<192, 128>;

template <int Br, int Bc>
using OneWarp = Tiles<Br, Bc, Tuning<TuningValues{.threads = 32}>>;

using Default192x128 = GpuExecutor<Dims192x128>;
using Default41 = GpuExecutor<Dims<41>>;
using Forward57x57 = GpuExecutor<Dims64, Tiles<57, 57>>;
using Forward16x16 = GpuExecutor<Dims64, Tiles<16, 16>>;
using Forward128x64 = GpuExecutor<Dims64, Tiles<128, 64>>;
using Forward64x128 = GpuExecutor<Dims64, Tiles<64, 128>>;
using Forward1x1 = GpuExecutor<Dims64, OneWarp<1, 1>>;
using Forward7x100 = GpuExecutor<Dims64, Tiles<7, 100>>;
using Backward57x57 = GpuExecutor<Dims64, Tiles<57, 57>>;
using Backward64x32 = GpuExecutor<Dims64, Tiles<64, 32>>;
using Backward7x100 = GpuExecutor<Dims64, Tiles<7, 100>>;
// A warp that prefetches: more vectors of K and V than a thread holds at once.
using Prefetch32x64 =
    GpuExecutor<Dims64, Tiles<32, 64, Tuning<TuningValues{.threads = 32, .prefetch = true}>>>;
using Large64 = GpuExecutor<Dims64, PortableTiles<227>>;
using Large128 = GpuExecutor<Dims<128>, PortableTiles<227>>;
using Large256 = GpuExecutor<Dims<256, 256, 128>, PortableTiles<227>>;
using TwoPass64 = GpuExecutor<Dims64, PortableTiles<>, DqMode::kTwoPass>;
using InOrder64 = GpuExecutor<Dims64, PortableTiles<>, DqMode::kInOrder>;
using InOrder16x16 = GpuExecutor<Dims64, Tiles<16, 16>, DqMode::kInOrder>;
using InOrder1x1 = GpuExecutor<Dims64, OneWarp<1, 1>, DqMode::kInOrder>;
using TwoPassLarge = GpuExecutor<Dims<256>, PortableTiles<>, DqMode::kTwoPass>;
using TwoPass192x128 = GpuExecutor<Dims192x128, PortableTiles<>, DqMode::kTwoPass>;
using TwoPass57x40 = GpuExecutor<Dims64, Tiles<57, 40>, DqMode::kTwoPass>;
using TwoPass16x16 = GpuExecutor<Dims64, Tiles<16, 16>, DqMode::kTwoPass>;
using TwoPass1x1 = GpuExecutor<Dims64, OneWarp<1, 1>, DqMode::kTwoPass>;

const bool kRegistered = [] {
  using enum Policy;
  const Suite suite("gpu.portable", in_full(kAllPolicies));
  suite.forward<float>("57x57", Forward57x57{}, policies<kCausal>);
  suite.backward<float>("two_pass57x40", TwoPass57x40{}, policies<kCausal>);
  suite.forward<float>("16x16", Forward16x16{}, in_full(policies<kNone>));
  suite.forward<float>("128x64", Forward128x64{}, in_full(policies<kCausal>));
  suite.forward<float>("64x128", Forward64x128{}, in_full(policies<kCausal>));
  suite.forward<float>("1x1", Forward1x1{}, in_full(policies<kCausal>));
  suite.forward<__half>("7x100", Forward7x100{}, in_full(policies<kEverything>));
  suite.forward<float>("default192x128", Default192x128{}, in_full(policies<kNone>));
  suite.forward<float>("default41", Default41{}, in_full(policies<kNone>));
  suite.backward<float>("57x57", Backward57x57{}, in_full(policies<kCausal>));
  suite.backward<float>("two_pass64", TwoPass64{}, in_full(policies<kEverything, kLearned>));
  suite.backward<float>("two_pass64", TwoPass64{}, in_full(kBlockPolicies));
  suite.backward<float>("in_order64", InOrder64{}, in_full(kBlockPolicies));
  suite.backward<float>("two_pass16x16", TwoPass16x16{}, in_full(policies<kNone>));
  suite.backward<float>("64x32", Backward64x32{}, in_full(policies<kCausal>));
  suite.backward<float>("two_pass1x1", TwoPass1x1{}, in_full(policies<kCausal>));
  suite.backward<__half>("7x100", Backward7x100{}, in_full(policies<kEverything>));
  suite.backward<float>("two_pass192x128", TwoPass192x128{}, in_full(policies<kNone>));
  suite.backward<float>("two_pass_large", TwoPassLarge{}, in_full(policies<kCausal>));
  suite.backward<__nv_bfloat16>("two_pass64", TwoPass64{}, in_full(policies<kEverything>));
  suite.backward<__half>("in_order64", InOrder64{}, in_full(policies<kCausal>));
  suite.backward<float>("in_order1x1", InOrder1x1{}, in_full(policies<kWindow>));
  suite.backward<float>("in_order16x16", InOrder16x16{}, in_full(policies<kDocument>));
  suite.forward<float>("large128", Large128{}, in_full(policies<kCausal, kWindow>));
  suite.forward<float>("prefetch32x64", Prefetch32x64{}, in_full(policies<kWindow>));
  suite.forward<__half>("prefetch32x64", Prefetch32x64{}, in_full(policies<kDocument>));
  suite.forward<__half>("large128", Large128{}, in_full(policies<kEverything>));
  suite.forward<float>("large256", Large256{}, in_full(policies<kNone>));
  suite.backward<float>("large64", Large64{}, in_full(policies<kCausal>));
  suite.backward<float>("large128", Large128{}, in_full(policies<kCausal>));
  return true;
}();

}  // namespace suite_portable_tiles
