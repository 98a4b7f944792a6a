// SPDX-License-Identifier: MIT
// Ready-made kernels with a fusion that multiplies O by powers of two, one for each head, row and
// column: the bits are those of the kernel without it, times these. Runs on a GPU and on the
// machine.
#include <attile/attile.cuh>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

#include "../../examples/support.cuh"

namespace {

namespace arch = attile::arch;
using T = __half;
constexpr int kBatch = 2, kHeads = 4, kKvHeads = 2, kQ = 203, kKv = 170, kDim = 64;

/// The power of an element.
ATTILE_HOST_DEVICE int power(int batch, int head, int row, int col) {
  return (batch + 2 * head + row + 3 * col) % 7 - 3;
}

struct Powers {
  static constexpr bool kChangesInputs = false;

  template <class Registers>
  ATTILE_DEVICE void output(Registers& o_frag, const attile::WorkTile& at) const {
    o_frag.for_each([&](int r, int c, float& o) {
      const int row = at.row0 + r;
      if (row < 0) arch::trap();
      if (row < at.extent.q_len) {
        o *= arch::exp2(static_cast<float>(power(at.sequence, at.head, row, c)));
      }
    });
  }
};

template <class Kernel>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Kernel::kThreads, Kernel::kBlocksPerSm)
    fused(const ATTILE_GRID_CONSTANT typename Kernel::Params p) {
  forward_block<Kernel>(p, arch::block_index(), arch::dynamic_shared(), Powers{});
}

template <class Kernel>
void holds(const char* name) {
  const std::size_t size = std::size_t{kBatch} * kHeads * kQ * kDim;
  const std::size_t keys = std::size_t{kBatch} * kKvHeads * kKv * kDim;
  const example::DeviceArray<T> q(example::normal<T>(size, 1)), k(example::normal<T>(keys, 2)),
      v(example::normal<T>(keys, 3)), o(size), o_fused(size);
  typename Kernel::Args args;
  args.q = attile::bshd<const T>(q.get(), {.rows = kQ, .heads = kHeads, .dim = kDim});
  args.k = attile::bshd<const T>(k.get(), {.rows = kKv, .heads = kKvHeads, .dim = kDim});
  args.v = attile::bshd<const T>(v.get(), {.rows = kKv, .heads = kKvHeads, .dim = kDim});
  args.batch = kBatch, args.q_heads = kHeads, args.kv_heads = kKvHeads;
  args.q_len = kQ, args.kv_len = kKv;
  args.o = attile::bshd(o.get(), {.rows = kQ, .heads = kHeads, .dim = kDim});
  if (const attile::Check ok = attile::check<Kernel>(args); !ok) {
    std::printf("%s: not here: %s\n", name, ok.why);
    return;
  }
  example::must(attile::forward<Kernel>(args), name);
  args.o = attile::bshd(o_fused.get(), {.rows = kQ, .heads = kHeads, .dim = kDim});
  example::must(
      arch::launch(fused<Kernel>, attile::forward_blocks<Kernel>(args),
                   attile::forward_threads<Kernel>(), attile::forward_shared_bytes<Kernel>(),
                   nullptr, attile::forward_params<Kernel>(args)),
      name);
  example::must(cudaDeviceSynchronize(), name);
  const std::vector<T> plain = o.download(), found = o_fused.download();
  for (std::size_t i = 0; i < size; ++i) {
    const int col = i % kDim, head = i / kDim % kHeads, row = i / kDim / kHeads % kQ;
    const int batch = static_cast<int>(i / kDim / kHeads / kQ);
    const float x = std::ldexp(attile::to_float(plain[i]), power(batch, head, row, col));
    // A power takes small numbers of fp16 out of its normal ones, where they are rounded anew.
    const bool same = std::fabs(x) < 0x1p-10f
                          ? std::fabs(attile::to_float(found[i]) - x) <= 0x1p-20f
                          : attile::to_float(found[i]) == x;
    if (same) continue;
    std::printf("failed: %s: element %zu is %g, and not %g\n", name, i, attile::to_float(found[i]),
                x);
    std::exit(1);
  }
  std::printf("%s: right\n", name);
}

template <int Br, int Bc, class Tuning>
using Kernel = attile::ForwardTraits<Br, Bc, kDim, T, attile::Causal, attile::NoScoreMod,
                                     attile::NoDropout, kDim, Tuning>;

}  // namespace

int main() {
  example::need_gpu();
  holds<Kernel<64, 64, attile::sm80::Tuning<>>>("sm80");
  holds<Kernel<64, 64, attile::sm80::Tuning<attile::sm80::TuningValues{.warps = 4, .warps_n = 2}>>>(
      "sm80, two warps a row");
  holds<Kernel<128, 64, attile::sm90::Tuning<>>>("sm90");
  return 0;
}
