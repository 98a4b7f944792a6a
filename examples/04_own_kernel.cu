// SPDX-License-Identifier: MIT
// The caller's kernel, made of tile pieces: attention whose scores get a bias for each key, and
// whose output is multiplied by a gate and added to a residual before it is stored.
//   O = X + G * (softmax(scale Q K^T + bias) V)
#include <attile/reference.h>
#include <attile/tile.cuh>

#include "support.cuh"

namespace {

namespace tile = attile::tile;
namespace arch = attile::arch;

constexpr int kBr = 64, kBc = 64, kDim = 64, kThreads = 128, kRowLanes = kThreads / tile::kColLanes;

// The fast form of both products: the left operand (Q, P) by columns, the right one (K^T, V) by
// rows, and threads that hold runs of 4 rows and 4 columns, which is what one read brings. What is
// written across lines at each step (K, P) is padded against bank conflicts.
constexpr tile::Order kByColumns = tile::Order::kColumnMajor, kByRows = tile::Order::kRowMajor;
using QTile = tile::SharedTile<kBr, kDim, kByColumns, tile::Padding::kNone>;
using KTile = tile::SharedTile<kBc, kDim, kByColumns>;
using VTile = tile::SharedTile<kBc, kDim, kByRows, tile::Padding::kNone>;
using PTile = tile::SharedTile<kBr, kBc, kByColumns>;
using Scores = tile::RegisterTile<kBr, kBc, kRowLanes, 4, 4>;
using Output = tile::RegisterTile<kBr, kDim, kRowLanes, 4, 4>;
constexpr std::size_t kSharedBytes = tile::shared_bytes<QTile, KTile, VTile, PTile>;

struct Problem {
  tile::TensorParam<const float> q, k, v, x, gate;
  tile::TensorParam<float> o;
  const float* bias;  // (len)
  int heads, len;
  float scale;
};

/// One block for each tile of query rows of each head. ATTILE_KERNEL is __global__, and so on: with
/// these names the kernel also runs on the simulated machine (docs/testing.md).
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kThreads, 1)
    gated_attention(const ATTILE_GRID_CONSTANT Problem p) {
  tile::SharedCarver carver{arch::dynamic_shared()};
  const auto q_smem = carver.take<QTile>();
  const auto k_smem = carver.take<KTile>();
  const auto v_smem = carver.take<VTile>();
  const auto p_smem = carver.take<PTile>();
  const int head = arch::block_index() % p.heads;
  const int row0 = arch::block_index() / p.heads * kBr;
  const float scale_log2 = attile::kLog2e;  // the scores are scaled before the softmax

  tile::load<kThreads>(q_smem, p.q.slice(0, head, p.len, kDim), row0);
  Output o_frag;
  tile::OnlineSoftmax<Output::kRegRows> softmax;
  o_frag.clear();
  softmax.reset();
  for (int col0 = 0; col0 < p.len; col0 += kBc) {
    tile::load<kThreads>(k_smem, p.k.slice(0, head, p.len, kDim), col0);
    tile::load<kThreads>(v_smem, p.v.slice(0, head, p.len, kDim), col0);
    arch::barrier();  // the tiles are written before anyone reads them
    Scores s_frag;
    s_frag.clear();
    tile::matmul_nt(s_frag, q_smem, k_smem);  // S = Q K^T
    s_frag.for_each([&](int, int c, float& s) {
      s = col0 + c < p.len ? s * p.scale + p.bias[col0 + c] : -attile::kInf;
    });
    softmax.step(s_frag, o_frag, scale_log2);  // (m, l); S becomes P; O is rescaled
    tile::stage(p_smem, s_frag);
    Scores::sync_rows();                      // the lanes of a row see each other's P
    tile::matmul_nn(o_frag, p_smem, v_smem);  // O += P V
    arch::barrier();  // everyone has read the tiles before the next ones are loaded
  }
  softmax.finish(o_frag);

  const auto x = p.x.slice(0, head, p.len, kDim);
  const auto gate = p.gate.slice(0, head, p.len, kDim);
  o_frag.for_each([&](int r, int c, float& o) {
    if (row0 + r >= p.len) return;
    o = x.data[(row0 + r) * x.row_stride + c] + gate.data[(row0 + r) * gate.row_stride + c] * o;
  });
  tile::store(p.o.slice(0, head, p.len, kDim), o_frag, row0);
}

}  // namespace

int main() {
  example::need_gpu();
  constexpr int kHeads = 3, kLen = 333;
  const std::size_t size = kHeads * kLen * kDim;
  const auto q = example::normal<float>(size, 1), k = example::normal<float>(size, 2),
             v = example::normal<float>(size, 3), x = example::normal<float>(size, 4),
             gate = example::normal<float>(size, 5), bias = example::normal<float>(kLen, 6);
  const example::DeviceArray<float> q_dev(q), k_dev(k), v_dev(v), x_dev(x), gate_dev(gate),
      bias_dev(bias), o_dev(size);
  const auto dense = [](auto* data) {
    return tile::tensor_param(attile::bhsd(data, {.rows = kLen, .heads = kHeads, .dim = kDim}),
                              kDim);
  };
  const auto read = [&](const example::DeviceArray<float>& array) {
    return dense(static_cast<const float*>(array.get()));
  };
  const Problem problem{
      read(q_dev),        read(k_dev),    read(v_dev), read(x_dev), read(gate_dev),
      dense(o_dev.get()), bias_dev.get(), kHeads,      kLen,        0.125f};
  constexpr int kBlocks = attile::ceil_div(kLen, kBr) * kHeads;
  example::must(arch::launch(gated_attention, kBlocks, kThreads, kSharedBytes, nullptr, problem),
                "launch");
  example::must(cudaDeviceSynchronize(), "the kernel");

  using Bias = attile::AdditiveBias<float>;
  const attile::ForwardArgs<float, attile::NoMask, Bias> plain{
      .q = attile::bhsd(q.data(), {.rows = kLen, .heads = kHeads, .dim = kDim}),
      .k = attile::bhsd(k.data(), {.rows = kLen, .heads = kHeads, .dim = kDim}),
      .v = attile::bhsd(v.data(), {.rows = kLen, .heads = kHeads, .dim = kDim}),
      .batch = 1,
      .q_heads = kHeads,
      .kv_heads = kHeads,
      .q_len = kLen,
      .kv_len = kLen,
      .head_dim = kDim,
      .scale = 0.125f,
      .score_mod = {.bias = bias.data()},
  };
  auto expected = attile::reference::forward(plain).o;
  for (std::size_t i = 0; i < size; ++i) expected[i] = x[i] + gate[i] * expected[i];
  return example::report("O", example::max_difference(o_dev.download(), expected), 5e-6) ? 0 : 1;
}
