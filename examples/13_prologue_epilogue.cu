// SPDX-License-Identifier: MIT
// A ready-made kernel with work of the caller's own around its attention, and no copy of it: a
// prologue rotates Q and K as they are loaded (rotary embedding), and an epilogue multiplies O by a
// gate and adds a residual before it is stored.
//   O = X + G * (softmax(scale R(Q) R(K)^T, causal) V)
#include <attile/attile.cuh>
#include <attile/reference.h>

#include <cmath>

#include "support.cuh"

namespace {

namespace arch = attile::arch;
using T = __nv_bfloat16;
constexpr int kDim = 64, kHalf = kDim / 2;

// The ready-made kernel, with tiles of 64 x 64.
using Kernel = attile::ForwardTraits<64, 64, kDim, T, attile::Causal, attile::NoScoreMod,
                                     attile::NoDropout, kDim, attile::sm80::Tuning<>>;

/// What the kernel does besides (NoFusion in kernel/forward/fusion.h is the contract).
struct RotaryAndGate {
  static constexpr bool kChangesInputs = true;

  const float *cos, *sin;  // (positions, kHalf)
  attile::Tensor<const T> x, gate;

  template <class Tile>
  ATTILE_DEVICE void q_loaded(const Tile& q_smem, const attile::WorkTile& at) const {
    rotate(q_smem, at.row0 + at.extent.shift(), at.extent.kv_len);
  }
  template <class Tile>
  ATTILE_DEVICE void k_loaded(const Tile& k_smem, const attile::WorkTile& at, int key0) const {
    rotate(k_smem, key0, at.extent.kv_len);
  }
  template <class Registers>
  ATTILE_DEVICE void output(Registers& o_frag, const attile::WorkTile& at) const {
    o_frag.for_each([&](int r, int c, float& o) {
      const int row = at.row0 + r;
      if (row >= at.extent.q_len) return;
      const float gated = o * attile::to_float(gate.row(at.sequence, at.head, row)[c]);
      o = attile::to_float(x.row(at.sequence, at.head, row)[c]) + gated;
    });
  }

 private:
  /// Turns element c and c + kHalf of the row at position t by the angle of (t, c), 8 at a time.
  template <class Tile>
  ATTILE_DEVICE void rotate(const Tile& tile, int first, int positions) const {
    constexpr int kRun = 8, kRuns = kHalf / kRun;
    for (int i = arch::thread_index(); i < Tile::kRows * kRuns; i += Kernel::kThreads) {
      const int row = i / kRuns, col = i % kRuns * kRun, position = first + row;
      if (position >= positions) continue;
      auto low = tile.template run<kRun>(row, col),
           high = tile.template run<kRun>(row, col + kHalf);
      for (int e = 0; e < kRun; ++e) {
        const int angle = position * kHalf + col + e;
        const attile::RotatedPair pair = attile::rotate(
            attile::to_float(low[e]), attile::to_float(high[e]), cos[angle], sin[angle]);
        low[e] = attile::from_float<T>(pair.first);
        high[e] = attile::from_float<T>(pair.second);
      }
      arch::store(&tile.at(row, col), low);
      arch::store(&tile.at(row, col + kHalf), high);
    }
  }
};

ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Kernel::kThreads, Kernel::kBlocksPerSm)
    fused(const ATTILE_GRID_CONSTANT Kernel::Params p,
          const ATTILE_GRID_CONSTANT RotaryAndGate fusion) {
  attile::sm80::forward_block<Kernel>(p, arch::block_index(), arch::dynamic_shared(), fusion);
}

/// The rows of a host tensor, rotated as the kernel rotates them.
std::vector<T> rotated(std::vector<T> rows, int len, const std::vector<float>& cos,
                       const std::vector<float>& sin) {
  for (std::size_t i = 0; i < rows.size(); i += kDim) {
    const int position = static_cast<int>(i / kDim) % len;
    for (int c = 0; c < kHalf; ++c) {
      T &low = rows[i + c], &high = rows[i + c + kHalf];
      const attile::RotatedPair pair =
          attile::rotate(attile::to_float(low), attile::to_float(high), cos[position * kHalf + c],
                         sin[position * kHalf + c]);
      low = attile::from_float<T>(pair.first);
      high = attile::from_float<T>(pair.second);
    }
  }
  return rows;
}

}  // namespace

int main() {
  example::need_gpu();
  constexpr int kHeads = 3, kKvHeads = 1, kLen = 333;
  const std::size_t size = kHeads * kLen * kDim, keys = kKvHeads * kLen * kDim;
  const auto q = example::normal<T>(size, 1), k = example::normal<T>(keys, 2),
             v = example::normal<T>(keys, 3), x = example::normal<T>(size, 4),
             gate = example::normal<T>(size, 5);
  std::vector<float> cos(kLen * kHalf), sin(kLen * kHalf);
  for (int i = 0; i < kLen * kHalf; ++i) {
    const double angle = i / kHalf * std::pow(10000.0, -double(i % kHalf) / kHalf);
    cos[i] = static_cast<float>(std::cos(angle)), sin[i] = static_cast<float>(std::sin(angle));
  }
  const example::DeviceArray<T> q_dev(q), k_dev(k), v_dev(v), x_dev(x), gate_dev(gate), o_dev(size);
  const example::DeviceArray<float> cos_dev(cos), sin_dev(sin);

  Kernel::Args args{
      .q = attile::bhsd<const T>(q_dev.get(), {.rows = kLen, .heads = kHeads, .dim = kDim}),
      .k = attile::bhsd<const T>(k_dev.get(), {.rows = kLen, .heads = kKvHeads, .dim = kDim}),
      .v = attile::bhsd<const T>(v_dev.get(), {.rows = kLen, .heads = kKvHeads, .dim = kDim}),
      .o = attile::bhsd(o_dev.get(), {.rows = kLen, .heads = kHeads, .dim = kDim}),
      .batch = 1,
      .q_heads = kHeads,
      .kv_heads = kKvHeads,
      .q_len = kLen,
      .kv_len = kLen,
      .head_dim = kDim,
  };
  if (const attile::Check ok = attile::check<Kernel>(args); !ok) {
    std::fprintf(stderr, "attention: %s\n", ok.why);
    return 1;
  }
  const RotaryAndGate fusion{
      cos_dev.get(), sin_dev.get(),
      attile::bhsd<const T>(x_dev.get(), {.rows = kLen, .heads = kHeads, .dim = kDim}),
      attile::bhsd<const T>(gate_dev.get(), {.rows = kLen, .heads = kHeads, .dim = kDim})};
  example::must(
      arch::launch(fused, attile::forward_blocks<Kernel>(args), attile::forward_threads<Kernel>(),
                   attile::forward_shared_bytes<Kernel>(), nullptr,
                   attile::forward_params<Kernel>(args), fusion),
      "launch");
  example::must(cudaDeviceSynchronize(), "the kernel");

  const auto q_rotated = rotated(q, kLen, cos, sin), k_rotated = rotated(k, kLen, cos, sin);
  args.q.data = q_rotated.data(), args.k.data = k_rotated.data(), args.v.data = v.data();
  auto expected = attile::reference::forward(args).o;
  for (std::size_t i = 0; i < size; ++i) {
    expected[i] = attile::to_float(x[i]) + attile::to_float(gate[i]) * expected[i];
  }
  std::vector<float> o;
  for (const T value : o_dev.download()) o.push_back(attile::to_float(value));
  // O is rounded to bf16 where it is up to 8, by 2^-6; P, by 2^-9, is multiplied by V and the gate.
  return example::report("O", example::max_difference(o, expected), 0.05) ? 0 : 1;
}
