// SPDX-License-Identifier: MIT
// A few launches for a GPU under Nsight Compute and for the simulated machine, whose counters
// compare_counters.py holds against each other. Fewer blocks than a GPU has SMs, and none that
// share an input: what neighbouring SMs read together reaches L2 once. No writes of less than a
// sector, LSE and the sum of dQ: L2 counts them in its own way. And tiles with which the compiler
// keeps no registers in memory: L2 counts them too, and the simulated machine has none.
#include <attile/attile.cuh>

#include <cstddef>

#include "../../examples/support.cuh"

namespace {

template <class T>
using Array = example::DeviceArray<T>;
using attile::NoDropout;
using attile::NoScoreMod;

template <class T>
Array<T> tensor(int heads, int rows, int dim, unsigned seed) {
  return Array<T>(example::normal<T>(static_cast<std::size_t>(heads) * rows * dim, seed));
}

/// One launch.
template <int D, class T>
void forward(int heads, int q_len, int kv_len) {
  const auto q = tensor<T>(heads, q_len, D, 1), k = tensor<T>(heads, kv_len, D, 2),
             v = tensor<T>(heads, kv_len, D, 3), o = tensor<T>(heads, q_len, D, 4);
  using Args = attile::ForwardArgs<T, attile::Causal>;
  const Args args{
      .q = attile::bhsd<const T>(q.get(), {.rows = q_len, .heads = heads, .dim = D}),
      .k = attile::bhsd<const T>(k.get(), {.rows = kv_len, .heads = heads, .dim = D}),
      .v = attile::bhsd<const T>(v.get(), {.rows = kv_len, .heads = heads, .dim = D}),
      .o = attile::bhsd(o.get(), {.rows = q_len, .heads = heads, .dim = D}),
      .batch = 1,
      .q_heads = heads,
      .kv_heads = heads,
      .q_len = q_len,
      .kv_len = kv_len,
      .head_dim = D,
  };
  using Traits = attile::ForwardTraits<128, 64, D, T, attile::Causal, NoScoreMod, NoDropout, D,
                                       attile::portable::Tuning<>>;
  example::must(attile::forward<Traits>(args), "forward");
  example::must(cudaDeviceSynchronize(), "forward");
}

/// Three launches.
template <int D, class T>
void backward(int heads, int len) {
  const auto q = tensor<T>(heads, len, D, 1), k = tensor<T>(heads, len, D, 2),
             v = tensor<T>(heads, len, D, 3), o = tensor<T>(heads, len, D, 4),
             dout = tensor<T>(heads, len, D, 5), dq = tensor<T>(heads, len, D, 6),
             dk = tensor<T>(heads, len, D, 7), dv = tensor<T>(heads, len, D, 8);
  const auto lse = tensor<float>(heads, len, 1, 9);
  const auto in = [&](const Array<T>& x) {
    return attile::bhsd<const T>(x.get(), {.rows = len, .heads = heads, .dim = D});
  };
  const auto out = [&](const Array<T>& x) {
    return attile::bhsd(x.get(), {.rows = len, .heads = heads, .dim = D});
  };
  attile::BackwardArgs<T> args;
  args.q = in(q), args.k = in(k), args.v = in(v), args.o = in(o), args.dout = in(dout);
  args.dq = out(dq), args.dk = out(dk), args.dv = out(dv);
  args.lse = lse.get();
  args.batch = 1;
  args.q_heads = args.kv_heads = heads;
  args.q_len = args.kv_len = len;
  args.head_dim = D;
  std::size_t bytes = 0;
  using Traits = attile::BackwardTraits<
      32, 64, D, T, attile::NoMask, NoScoreMod, NoDropout, D, attile::DqMode::kTwoPass,
      attile::portable::Tuning<attile::portable::TuningValues{.threads = 128}>>;
  example::must(attile::backward<Traits>(nullptr, bytes, args), "backward");
  const Array<unsigned char> workspace(bytes);
  example::must(attile::backward<Traits>(workspace.get(), bytes, args), "backward");
  example::must(cudaDeviceSynchronize(), "backward");
}

}  // namespace

int main() {
  example::need_gpu();
  forward<64, float>(8, 128, 384);
  forward<128, __half>(3, 56, 136);  // rows and columns that end within a tile
  backward<64, float>(8, 32);
}
