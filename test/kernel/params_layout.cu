// SPDX-License-Identifier: MIT
// Kernels' parameters have one layout for the compiler of the host and for that of the device. They
// hold policies of users, bases that may be empty, and members that may share their place with
// others ([[no_unique_address]]), which two compilers could lay out differently.
#include <attile/attile.cuh>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "support/catch.h"
#include "support/device.h"
#include "support/policies.h"
#include "support/policy_lists.h"

namespace kernel_params_layout {

using namespace attile_test;
using attile::DqMode;

/// Writes offsets and sizes one behind another.
struct Recorder {
  std::int64_t* to;
  const void* whole;

  template <class Member>
  ATTILE_HOST_DEVICE void operator()(const Member& member) {
    *to++ = reinterpret_cast<const char*>(&member) - static_cast<const char*>(whole);
    *to++ = static_cast<std::int64_t>(sizeof member);
  }
};

constexpr int kMost = 160;  // numbers

/// Records a member where a family's parameter has it.
#define ATTILE_RECORD(member) \
  if constexpr (requires { p.member; }) record(p.member)

/// Records what the parameters of both passes have.
template <class P>
ATTILE_HOST_DEVICE void record_problem(const P& p, Recorder& record) {
  record(p.q), record(p.k), record(p.v), record(p.o), record(p.lse);
  record(p.q.tensor.row_stride), record(p.q.vectors);
  record(p.batch), record(p.q_heads), record(p.kv_heads), record(p.group_heads), record(p.bounds);
  record(p.head_dim), record(p.head_dim_v), record(p.scale);
  record(p.policies), record(p.policies.mask), record(p.policies.score_mod);
  record(p.policies.dropout), record(p.policies.sequences);
  if constexpr (P::Policies::SinkType::kEnabled) record(p.policies.sink);
  record(p.q_tiles);
}

/// Records sizes and members of a parameter, and where it ends.
template <class P>
ATTILE_HOST_DEVICE void record_layout(const P& p, std::int64_t* to) {
  Recorder record{to, &p};
  record(p);
  record_problem(p, record);
  ATTILE_RECORD(head_order);
  ATTILE_RECORD(prepared_mod);
  ATTILE_RECORD(k_scale);
  ATTILE_RECORD(v_scale);
  ATTILE_RECORD(maps);
  ATTILE_RECORD(scale_log2);
  ATTILE_RECORD(rescale_threshold);
  ATTILE_RECORD(packing);
  ATTILE_RECORD(packs);
  ATTILE_RECORD(batch_heads);
  ATTILE_RECORD(sections);
  ATTILE_RECORD(lead);
  ATTILE_RECORD(elements);
  ATTILE_RECORD(elements.has_heads);
  ATTILE_RECORD(boxes);
  ATTILE_RECORD(scheduler);
  ATTILE_RECORD(scheduler.counter);
  ATTILE_RECORD(scheduler.l2_keys);
  ATTILE_RECORD(sink_parts);
  ATTILE_RECORD(dout);
  ATTILE_RECORD(dq);
  ATTILE_RECORD(dk);
  ATTILE_RECORD(dv);
  ATTILE_RECORD(l);
  ATTILE_RECORD(dlse);
  ATTILE_RECORD(row_lse);
  ATTILE_RECORD(delta);
  ATTILE_RECORD(dq_accum);
  ATTILE_RECORD(dq_semaphores);
  ATTILE_RECORD(zero_fill_flags);
  ATTILE_RECORD(dq_ready_flags);
  ATTILE_RECORD(kv_tiles);
  ATTILE_RECORD(rounds);
  ATTILE_RECORD(half_inverse_scale);
  ATTILE_RECORD(ascending_from);
  ATTILE_RECORD(q_map);
  ATTILE_RECORD(dv_map);
  *record.to = alignof(P);
}

#undef ATTILE_RECORD

template <class P>
ATTILE_KERNEL void record_kernel(const ATTILE_GRID_CONSTANT P p, std::int64_t* const to) {
  record_layout(p, to);
}

template <class P>
void check_layout(const P& p) {
  static_assert(std::is_trivially_copyable_v<P>);
  std::vector<std::int64_t> of_host(kMost, -1);
  record_layout(p, of_host.data());
  REQUIRE(of_host.back() == -1);  // there was room
  const Device<std::int64_t> of_device(std::vector<std::int64_t>(kMost, -1));
  REQUIRE(attile::arch::launch(record_kernel<P>, 1, 1, 0, nullptr, p, of_device.get()) ==
          cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(of_device.download() == of_host);
}

template <class Args>
Args some_arguments() {
  Args args;
  args.batch = args.q_heads = args.kv_heads = 1;
  args.q_len = args.kv_len = 64;
  return args;
}

template <class Traits>
void check_traits() {
  const auto args = some_arguments<typename Traits::Args>();
  if constexpr (Traits::kDirection == attile::Direction::kForward) {
    check_layout(attile::forward_params<Traits>(args));
  } else {
    check_layout(attile::backward_params<Traits>(args, nullptr));
  }
}

template <Policy kPolicy>
void check_gradients() {
  using Backward = BackwardArgsOf<__half, kPolicy>;
  check_traits<attile::portable::DefaultBackwardTraits<Backward, 64, 64, DqMode::kTwoPass>>();
  check_traits<attile::sm90::DefaultBackwardTraits<Backward, 64, 64, DqMode::kAccumulate>>();
  check_traits<attile::sm90::DefaultBackwardTraits<Backward, 64, 64, DqMode::kInOrder>>();
}

/// All families; those of mma.sync have the parameters of the portable ones.
template <Policy kPolicy>
void check_policy() {
  using Forward = ForwardArgsOf<__half, kPolicy>;
  INFO(name_of(kPolicy));
  check_traits<attile::portable::DefaultForwardTraits<Forward, 64>>();
  check_traits<attile::sm80::DefaultForwardTraits<Forward, 64, 64, 163>>();
  check_traits<attile::sm90::DefaultForwardTraits<Forward, 64>>();
  if constexpr (!is_forward_only(kPolicy)) check_gradients<kPolicy>();
}

TEST_CASE("params.host and device lay out the kernels' parameters alike") {
  using enum Policy;
  check_policy<kNone>();
  check_policy<kEverything>();
  check_policy<kPackedCausal>();
  check_policy<kPaddedEverything>();
  check_policy<kPackedBatches>();
  check_policy<kOwnLengthsSink>();
  check_policy<kCachedCausal>();
  check_policy<kPagedPackedEverything>();
  check_policy<kSinkEverything>();
  check_policy<kLearnedBiasDropout>();
  check_policy<kBlockSparseEverything>();
  // Keys and values in fp8 have scales.
  using Fp8 = attile::Elements<__half, __nv_fp8_e4m3, __nv_fp8_e5m2>;
  check_traits<attile::portable::DefaultForwardTraits<
      attile::ForwardArgs<Fp8, attile::Causal, attile::Paged>, 64>>();
  // A bias in tiles, whose kernel is one of its own.
  check_traits<attile::sm90::DefaultForwardTraits<ForwardArgsOf<__half, kHalfBias>, 64, 64,
                                                  attile::sm90::TileSet::kElements>>();
  check_traits<
      attile::sm90::DefaultBackwardTraits<BackwardArgsOf<__half, kHalfBias>, 64, 64,
                                          DqMode::kAccumulate, attile::sm90::TileSet::kElements>>();
}

}  // namespace kernel_params_layout
