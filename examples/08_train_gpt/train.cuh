// SPDX-License-Identifier: MIT
// The training loop.
#pragma once

#include <functional>
#include <vector>

#include "curves.h"
#include "model.cuh"
#include "text.h"

namespace gpt {

/// What is trained, and how.
struct Training {
  Shape shape;
  unsigned seed;  ///< of the weights
  int steps;
  std::function<Batch(int step)> batch;
  std::function<float(int step)> rate;  ///< the learning rate
};

/// The steps that are reported: the first one, each `every` steps, and the last one.
inline bool is_reported(int step, int steps, int every) {
  return step == 1 || step == steps || step % every == 0;
}

/// Trains a model from its beginning, and returns the loss of each step. Behind a step that is
/// reported it waits for the device, and calls report(number of steps so far, loss of the last
/// one).
template <class T, class Report>
Curve train(const Training& training, Attention<T>& attention, int report_every,
            const Report& report) {
  const int steps = training.steps;
  Model<T> model(training.shape, training.seed, attention);
  const DeviceArray<int> tokens(training.shape.rows()), targets(training.shape.rows());
  const DeviceArray<float> losses(std::vector<float>(steps, 0.0f));
  for (int step = 0; step < steps; ++step) {
    const Batch batch = training.batch(step);
    tokens.upload(batch.tokens);
    targets.upload(batch.targets);
    model.forward(tokens, targets, losses + step);
    model.backward();
    model.update(training.rate(step));
    const int done = step + 1;
    if (is_reported(done, steps, report_every)) report(done, losses.download()[step]);
  }
  const std::vector<float> curve = losses.download();
  return Curve(curve.begin(), curve.end());
}

}  // namespace gpt
