// SPDX-License-Identifier: MIT
// Ready-made kernels with a fusion that multiplies O by powers of two, one for each head, row and
// column: the bits are those of the kernel without it, times these. Its work tiles say where
// sequences begin. Runs on a GPU and on the machine.
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

/// `first_rows`, `first_keys`: of sequences of their own lengths, where these begin in batch 0; a
/// work tile has to say the same.
struct Powers {
  static constexpr bool kChangesInputs = false;
  const int *first_rows = nullptr, *first_keys = nullptr;

  template <class Registers>
  ATTILE_DEVICE void output(Registers& o_frag, const attile::WorkTile& at) const {
    if (first_rows != nullptr) {
      const auto is = [&](attile::RowOrigin origin, const int* first) {
        return origin.batch == 0 && origin.row == first[at.sequence];
      };
      if (!is(at.q_origin, first_rows) || !is(at.kv_origin, first_keys)) arch::trap();
    }
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
inline constexpr bool kIsPacked = attile::kIsPacked<typename Kernel::SequencesType>;

template <class Kernel>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Kernel::kThreads, Kernel::kBlocksPerSm)
    fused(const ATTILE_GRID_CONSTANT typename Kernel::Params p) {
  Powers powers;
  if constexpr (kIsPacked<Kernel>) {
    powers.first_rows = p.policies.sequences.cu_seqlens_q;
    powers.first_keys = p.policies.sequences.cu_seqlens_k;
  }
  forward_block<Kernel>(p, arch::block_index(), arch::dynamic_shared(), powers);
}

template <class Kernel>
void holds(const char* name) {
  const std::size_t size = std::size_t{kBatch} * kHeads * kQ * kDim;
  const std::size_t keys = std::size_t{kBatch} * kKvHeads * kKv * kDim;
  const example::DeviceArray<T> q(example::normal<T>(size, 1)), k(example::normal<T>(keys, 2)),
      v(example::normal<T>(keys, 3)), o(size), o_fused(size);
  const example::DeviceArray<int> first_rows(std::vector<int>{0, kQ, 2 * kQ}),
      first_keys(std::vector<int>{0, kKv, 2 * kKv});
  // The rows of packed sequences are those of one batch: the memory is the same.
  constexpr int kRowBatches = kIsPacked<Kernel> ? 1 : kBatch;
  const auto rows = [](auto* data, int length, int heads) {
    return attile::bshd(data, {.rows = kBatch / kRowBatches * length, .heads = heads, .dim = kDim});
  };
  typename Kernel::Args args;
  args.q = rows(static_cast<const T*>(q.get()), kQ, kHeads);
  args.k = rows(static_cast<const T*>(k.get()), kKv, kKvHeads);
  args.v = rows(static_cast<const T*>(v.get()), kKv, kKvHeads);
  args.batch = kBatch, args.q_heads = kHeads, args.kv_heads = kKvHeads;
  args.q_len = kQ, args.kv_len = kKv;
  args.o = rows(o.get(), kQ, kHeads);
  if constexpr (kIsPacked<Kernel>) {
    args.sequences = {first_rows.get(), first_keys.get(), kBatch * kQ, kBatch * kKv};
  }
  if (const attile::Check ok = attile::check<Kernel>(args); !ok) {
    std::printf("%s: not here: %s\n", name, ok.why);
    return;
  }
  example::must(attile::forward<Kernel>(args), name);
  args.o = rows(o_fused.get(), kQ, kHeads);
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

template <int Br, int Bc, class Tuning, class Sequences = attile::Uniform>
using Kernel = attile::ForwardTraits<Br, Bc, kDim, T, attile::Causal, Sequences, attile::NoDropout,
                                     kDim, Tuning>;

}  // namespace

int main() {
  example::need_gpu();
  holds<Kernel<64, 64, attile::sm80::Tuning<>>>("sm80");
  holds<Kernel<64, 64, attile::sm80::Tuning<attile::sm80::TuningValues{.warps = 4, .warps_n = 2}>>>(
      "sm80, two warps a row");
  holds<Kernel<128, 64, attile::sm90::Tuning<>>>("sm90");
  holds<Kernel<64, 64, attile::sm80::Tuning<>, attile::Packed>>("sm80, packed");
  holds<Kernel<128, 64, attile::sm90::Tuning<>, attile::Packed>>("sm90, packed");
  return 0;
}
