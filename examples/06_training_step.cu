// SPDX-License-Identifier: MIT
// One training step by hand: forward, a loss, backward, a step down the gradient. The gradient is
// held against the slope of the loss along it, and the step must make the loss smaller. What is
// learned is kept in fp32; attention reads it in bf16.
//   loss = 1/2 sum (O - target)^2,  so dO = O - target
#include <attile/attile.cuh>

#include "support.cuh"

namespace {

constexpr int kHeads = 4, kLen = 256, kDim = 64;
constexpr std::size_t kSize = std::size_t{kHeads} * kLen * kDim;

using T = __nv_bfloat16;
using example::moved;

template <class To, class From>
std::vector<To> rounded(const std::vector<From>& from) {
  std::vector<To> to(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    to[i] = attile::from_float<To>(attile::to_float(from[i]));
  }
  return to;
}

struct Step {
  const example::DeviceArray<T>& q;
  const example::DeviceArray<T>& k;
  const example::DeviceArray<T>& v;
  example::DeviceArray<T> o{kSize}, dout{kSize}, dq{kSize}, dk{kSize}, dv{kSize};
  example::DeviceArray<float> lse{kHeads * kLen};

  static attile::Tensor<const T> read(const example::DeviceArray<T>& a) {
    return attile::bshd<const T>(a.get(), {.rows = kLen, .heads = kHeads, .dim = kDim});
  }
  static attile::Tensor<T> write(const example::DeviceArray<T>& a) {
    return attile::bshd(a.get(), {.rows = kLen, .heads = kHeads, .dim = kDim});
  }

  /// Runs the forward pass; the loss is summed in fp64, dO is left on the device.
  double loss(const std::vector<float>& target) {
    const attile::ForwardArgs<T, attile::Causal> args{
        .q = read(q),
        .k = read(k),
        .v = read(v),
        .o = write(o),
        .lse = lse.get(),
        .batch = 1,
        .q_heads = kHeads,
        .kv_heads = kHeads,
        .q_len = kLen,
        .kv_len = kLen,
    };
    example::must(attile::forward<kDim>(args), "forward");
    auto difference = rounded<float>(o.download());
    double sum = 0.0;
    for (std::size_t i = 0; i < kSize; ++i) {
      difference[i] -= target[i];
      sum += 0.5 * difference[i] * difference[i];
    }
    dout.upload(rounded<T>(difference));
    return sum;
  }

  /// dQ, dK and dV of that loss.
  void gradients() {
    const attile::BackwardArgs<T, attile::Causal> args{
        .q = read(q),
        .k = read(k),
        .v = read(v),
        .o = read(o),
        .lse = lse.get(),
        .dout = read(dout),
        .dq = write(dq),
        .dk = write(dk),
        .dv = write(dv),
        .batch = 1,
        .q_heads = kHeads,
        .kv_heads = kHeads,
        .q_len = kLen,
        .kv_len = kLen,
    };
    std::size_t bytes = 0;
    example::must(attile::backward<kDim>(nullptr, bytes, args), "workspace size");
    const example::DeviceArray<unsigned char> workspace(bytes);
    example::must(attile::backward<kDim>(workspace.get(), bytes, args), "backward");
    example::must(cudaDeviceSynchronize(), "the kernels");
  }
};

}  // namespace

int main() {
  example::need_gpu();
  const std::vector<float> inputs[3] = {example::normal<float>(kSize, 1),
                                        example::normal<float>(kSize, 2),
                                        example::normal<float>(kSize, 3)};
  const auto target = example::normal<float>(kSize, 4);
  const auto loss_at = [&](const std::vector<float>(&at)[3], std::vector<float>(*gradient)[3]) {
    const example::DeviceArray<T> q(rounded<T>(at[0])), k(rounded<T>(at[1])), v(rounded<T>(at[2]));
    Step step{q, k, v};
    const double loss = step.loss(target);
    if (gradient != nullptr) {
      step.gradients();
      (*gradient)[0] = rounded<float>(step.dq.download());
      (*gradient)[1] = rounded<float>(step.dk.download());
      (*gradient)[2] = rounded<float>(step.dv.download());
    }
    return loss;
  };

  std::vector<float> gradient[3];
  const double loss = loss_at(inputs, &gradient);
  double squared = 0.0;
  for (const auto& part : gradient) {
    for (const float x : part) squared += static_cast<double>(x) * x;
  }
  // The slope along the gradient is its squared length; the central difference misses it by
  // O(h^2), and by the roundings of inputs and of O to bf16, which a shorter step drowns in: here,
  // with a step of length 1, by a thousandth.
  const double h = 1.0 / std::sqrt(squared);
  double side[2];
  for (int s = 0; s < 2; ++s) {
    const double by = s == 0 ? -h : h;
    const std::vector<float> at[3] = {moved(inputs[0], gradient[0], by),
                                      moved(inputs[1], gradient[1], by),
                                      moved(inputs[2], gradient[2], by)};
    side[s] = loss_at(at, nullptr);
  }
  const double slope = (side[1] - side[0]) / (2.0 * h);
  const bool slope_ok = example::report("slope", std::abs(slope / squared - 1.0), 1e-2);

  const double rate = -0.1;
  const std::vector<float> next[3] = {moved(inputs[0], gradient[0], rate),
                                      moved(inputs[1], gradient[1], rate),
                                      moved(inputs[2], gradient[2], rate)};
  const double next_loss = loss_at(next, nullptr);
  std::printf("loss %.3f, after one step %.3f\n", loss, next_loss);
  return slope_ok && next_loss < loss ? 0 : 1;
}
