// SPDX-License-Identifier: MIT
// One call: causal attention of 8 query heads over 2 key/value heads, with the default tiles.
#include <attile/attile.cuh>
#include <attile/reference.h>

#include "support.cuh"

int main() {
  example::need_gpu();
  constexpr int kBatch = 2, kHeads = 8, kKvHeads = 2, kLen = 300, kDim = 64;

  const auto q = example::normal<float>(kBatch * kLen * kHeads * kDim, 1);
  const auto k = example::normal<float>(kBatch * kLen * kKvHeads * kDim, 2);
  const auto v = example::normal<float>(kBatch * kLen * kKvHeads * kDim, 3);
  const example::DeviceArray<float> q_dev(q), k_dev(k), v_dev(v), o_dev(q.size());

  const attile::ForwardArgs<float, attile::Causal> args{
      .q = attile::bshd<const float>(q_dev.get(), {.rows = kLen, .heads = kHeads, .dim = kDim}),
      .k = attile::bshd<const float>(k_dev.get(), {.rows = kLen, .heads = kKvHeads, .dim = kDim}),
      .v = attile::bshd<const float>(v_dev.get(), {.rows = kLen, .heads = kKvHeads, .dim = kDim}),
      .o = attile::bshd(o_dev.get(), {.rows = kLen, .heads = kHeads, .dim = kDim}),
      .batch = kBatch,
      .q_heads = kHeads,
      .kv_heads = kKvHeads,
      .q_len = kLen,
      .kv_len = kLen,
  };
  if (const attile::Check ok = attile::check<kDim>(args); !ok) {
    std::fprintf(stderr, "attention: %s\n", ok.why);
    return 1;
  }
  example::must(attile::forward<kDim>(args), "forward");

  // The same problem in fp64 on the CPU: its result is dense (batch, head, row, dim).
  attile::ForwardArgs<float, attile::Causal> on_host = args;
  on_host.q.data = q.data();
  on_host.k.data = k.data();
  on_host.v.data = v.data();
  on_host.head_dim = kDim;
  const auto expected = attile::reference::forward(on_host).o;
  const auto o = o_dev.download();
  double worst = 0.0;
  for (int b = 0; b < kBatch; ++b) {
    for (int h = 0; h < kHeads; ++h) {
      for (int i = 0; i < kLen; ++i) {
        for (int d = 0; d < kDim; ++d) {
          const double difference = std::abs(o[((b * kLen + i) * kHeads + h) * kDim + d] -
                                             expected[((b * kHeads + h) * kLen + i) * kDim + d]);
          if (!(difference <= worst) && !std::isnan(worst)) worst = difference;
        }
      }
    }
  }
  return example::report("O", worst, 3e-6) ? 0 : 1;
}
