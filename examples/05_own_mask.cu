// SPDX-License-Identifier: MIT
// A mask and a score modifier of the caller's own, forward and backward: blocks of a square image
// see each other when they are near in two dimensions, and scores fade with that distance.
#include <attile/attile.cuh>
#include <attile/core/check_mask.h>
#include <attile/reference.h>

#include "support.cuh"

namespace {

/// Row i and column j are pixels of a `width` wide image; i sees j within `radius` pixels.
struct Neighbourhood {
  int width = 1;
  int radius = 0;

  ATTILE_HOST_DEVICE bool visible(attile::ScoreIndex i, attile::Extent) const {
    const int dx = i.row % width - i.col % width;
    const int dy = i.row / width - i.col / width;
    return dx * dx + dy * dy <= radius * radius;
  }
  /// Optional: which columns a run of rows may see, so that whole tiles are skipped. None is seen
  /// by all of them without a test.
  ATTILE_HOST_DEVICE attile::Span columns(int, int, attile::Interval rows, attile::Extent e) const {
    const int reach = radius * width + radius;
    return {attile::clip(rows.begin - reach, rows.end + reach, e.kv_len), {}};
  }
  ATTILE_HOST_DEVICE attile::Span rows(int, int, attile::Interval columns, attile::Extent e) const {
    const int reach = radius * width + radius;
    return {attile::clip(columns.begin - reach, columns.end + reach, e.q_len), {}};
  }
};

/// f(s) = s / (1 + strength * dy^2): a multiplier that depends on the place.
struct Fade {
  int width = 1;
  float strength = 0.0f;

  template <class Real>
  ATTILE_HOST_DEVICE attile::ModifiedScore<Real> operator()(Real s, attile::ScoreIndex i,
                                                            attile::Extent) const {
    const int dy = i.row / width - i.col / width;
    const Real factor = Real(1) / (Real(1) + Real(strength) * Real(dy * dy));
    return {s * factor, factor};
  }
};

static_assert(attile::SpanMask<Neighbourhood>, "the mask answers for whole tiles");
static_assert(attile::ScoreMod<Fade>, "the score modifier can be called");

}  // namespace

int main() {
  constexpr int kWidth = 20, kLen = kWidth * kWidth, kHeads = 2, kDim = 32;
  const Neighbourhood mask{.width = kWidth, .radius = 5};
  if (const auto fault = attile::check_mask(mask, 0, 0, {kLen, kLen}, 32)) {
    std::fprintf(stderr, "Neighbourhood: %s (row %d, column %d)\n", fault.what, fault.at.row,
                 fault.at.col);
    return 1;
  }
  example::need_gpu();

  const std::size_t size = kHeads * kLen * kDim;
  const auto q = example::normal<float>(size, 1), k = example::normal<float>(size, 2),
             v = example::normal<float>(size, 3), dout = example::normal<float>(size, 4);
  const example::DeviceArray<float> q_dev(q), k_dev(k), v_dev(v), dout_dev(dout), o_dev(size),
      lse_dev(kHeads * kLen), dq_dev(size), dk_dev(size), dv_dev(size);
  const auto read = [](const float* data) {
    return attile::bhsd(data, {.rows = kLen, .heads = kHeads, .dim = kDim});
  };
  const auto write = [](float* data) {
    return attile::bhsd(data, {.rows = kLen, .heads = kHeads, .dim = kDim});
  };

  attile::ForwardArgs<float, Neighbourhood, Fade> forward{
      .q = read(q_dev.get()),
      .k = read(k_dev.get()),
      .v = read(v_dev.get()),
      .o = write(o_dev.get()),
      .lse = lse_dev.get(),
      .batch = 1,
      .q_heads = kHeads,
      .kv_heads = kHeads,
      .q_len = kLen,
      .kv_len = kLen,
      .mask = mask,
      .score_mod = {.width = kWidth, .strength = 0.1f},
  };
  example::must(attile::forward<kDim>(forward), "forward");

  attile::BackwardArgs<float, Neighbourhood, Fade> backward{
      .q = forward.q,
      .k = forward.k,
      .v = forward.v,
      .o = forward.o,
      .lse = forward.lse,
      .dout = read(dout_dev.get()),
      .dq = write(dq_dev.get()),
      .dk = write(dk_dev.get()),
      .dv = write(dv_dev.get()),
      .batch = 1,
      .q_heads = kHeads,
      .kv_heads = kHeads,
      .q_len = kLen,
      .kv_len = kLen,
      .mask = mask,
      .score_mod = forward.score_mod,
  };
  std::size_t bytes = 0;
  example::must(attile::backward<kDim>(nullptr, bytes, backward), "workspace size");
  const example::DeviceArray<unsigned char> workspace(bytes);
  example::must(attile::backward<kDim>(workspace.get(), bytes, backward), "backward");

  auto on_host = backward;
  on_host.q = read(q.data());
  on_host.k = read(k.data());
  on_host.v = read(v.data());
  on_host.dout = read(dout.data());
  on_host.head_dim = kDim;
  const auto expected = attile::reference::backward(on_host);
  const bool dq_ok =
      example::report("dQ", example::max_difference(dq_dev.download(), expected.dq), 5e-6);
  const bool dk_ok =
      example::report("dK", example::max_difference(dk_dev.download(), expected.dk), 5e-6);
  const bool dv_ok =
      example::report("dV", example::max_difference(dv_dev.download(), expected.dv), 5e-6);
  return dq_ok && dk_ok && dv_ok ? 0 : 1;
}
