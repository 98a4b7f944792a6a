// SPDX-License-Identifier: MIT
// The model of examples/08_train_gpt is trained with the one calls and with standard attention,
// from the same weights on the same batches: the losses are the same to within what roundings to
// bf16 make of them.
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "../../examples/08_train_gpt/attentions.cuh"
#include "../../examples/08_train_gpt/curves.h"
#include "../../examples/08_train_gpt/train.cuh"
#include "support/catch.h"

namespace kernel_training {

using namespace gpt;
using gpt::Shape;  // not another test's, where all are one translation unit

constexpr int kSteps = 200;
constexpr Shape kShape{.layers = 2, .heads = 2, .vocabulary = 32, .batch = 4, .len = 128};

/// Each sequence repeats 8 random tokens, which only attention can find.
Batch repeated_tokens(int step) {
  std::mt19937 random(100 + step);
  Batch batch;
  for (int b = 0; b < kShape.batch; ++b) {
    int period[8];
    for (int& token : period) token = static_cast<int>(random() % kShape.vocabulary);
    for (int t = 0; t < kShape.len; ++t) {
      batch.tokens.push_back(period[t % 8]);
      batch.targets.push_back(period[(t + 1) % 8]);
    }
  }
  return batch;
}

Curve losses(Attention<Bf16>&& attention) {
  const Training training{
      .shape = kShape, .seed = 1, .steps = kSteps, .batch = repeated_tokens, .rate = [](int) {
        return 1e-3f;
      }};
  return train(training, attention, kSteps, [](int, float) {});
}

/// A backward pass that is wrong: its scale is a quarter too large.
class WrongScale : public FlashAttention {
 public:
  void backward(const AttentionBackward<Bf16>& args, int layer) override {
    AttentionBackward<Bf16> wrong = args;
    wrong.scale = 1.25f / std::sqrt(static_cast<float>(kHeadDim));
    FlashAttention::backward(wrong, layer);
  }
};

TEST_CASE("training.losses_are_those_of_standard_attention") {
  const Curve standard = losses(StandardAttention{});
  CHECK(standard.back() < 0.5 * standard.front());  // it learns
  std::vector<Curve> nudged;
  for (const std::uint32_t seed : {1000u, 100000u, 10000000u}) {
    nudged.push_back(losses(NudgedAttention{seed}));
  }
  const Curve ours = losses(FlashAttention{});
  INFO("last losses " << standard.back() << " and " << ours.back() << ", at most "
                      << largest_difference(ours, standard, kSteps) << " apart; spread "
                      << spread(standard, nudged, kSteps));
  CHECK(is_same(ours, standard, nudged));
  CHECK_FALSE(is_same(losses(WrongScale{}), standard, nudged));
}

}  // namespace kernel_training
