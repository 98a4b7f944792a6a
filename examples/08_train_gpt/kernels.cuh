// SPDX-License-Identifier: MIT
// The layers between the products, forward and backward: a small kernel for each, with its
// equation. They are written to be read; what they take is memory traffic, which one kernel for
// several of them would save.
//
// The number of rows is batch * length, one row for each token. What runs along the residual stream
// is fp32; T is what products and attention read: bf16 to train.
#pragma once

#include <attile/arch/launch.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/element.h>
#include <attile/tile/warp_sum.cuh>

#include <cmath>
#include <type_traits>

#include "../support.cuh"

namespace gpt {

namespace arch = attile::arch;
using attile::from_float;
using attile::to_float;
using attile::tile::warp_sum;

// ---- launches -----------------------------------------------------------------------------------

inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / arch::kWarpSize;

/// The number of this thread in the grid, and of this thread's warp.
ATTILE_DEVICE int thread_of_grid() { return arch::block_index() * kThreads + arch::thread_index(); }
ATTILE_DEVICE int warp_of_grid() { return thread_of_grid() / arch::kWarpSize; }
ATTILE_DEVICE int lane() { return arch::thread_index() % arch::kWarpSize; }

/// Runs kernel(count, params...) with `count` threads and, to fill the last block, some more.
template <class... Params>
void launch(void (*kernel)(int, Params...), int count, std::type_identity_t<Params>... params) {
  const unsigned blocks = (count + kThreads - 1) / kThreads;
  example::must(arch::launch(kernel, blocks, kThreads, 0, nullptr, count, params...),
                "a kernel of the model");
}

/// Runs it with `count` warps, likewise.
template <class... Params>
void launch_warps(void (*kernel)(int, Params...), int count,
                  std::type_identity_t<Params>... params) {
  const unsigned blocks = (count + kWarps - 1) / kWarps;
  example::must(arch::launch(kernel, blocks, kThreads, 0, nullptr, count, params...),
                "a kernel of the model");
}

// ---- embedding ----------------------------------------------------------------------------------

/// x = table[token] + position, a thread for each element of x.
ATTILE_KERNEL void embed(int count, int width, int len, const int* tokens, const float* table,
                         const float* positions, float* x) {
  const int i = thread_of_grid();
  if (i >= count) return;
  const int row = i / width, c = i % width;
  x[i] = table[tokens[row] * width + c] + positions[row % len * width + c];
}

/// dtable[t] = the sum of dx over the rows whose token is t, a thread for each element of dtable.
/// Threads that add to dtable for each row would be fewer reads, and a sum in another order at
/// every run.
ATTILE_KERNEL void embed_table_backward(int count, int width, int rows, const int* tokens,
                                        const float* dx, float* dtable) {
  const int i = thread_of_grid();
  if (i >= count) return;
  const int token = i / width, c = i % width;
  float sum = 0;
  for (int row = 0; row < rows; ++row) {
    if (tokens[row] == token) sum += dx[row * width + c];
  }
  dtable[i] = sum;
}

/// dposition[p] = the sum of dx over the sequences, a thread for each element of dposition.
ATTILE_KERNEL void embed_positions_backward(int count, int batch, const float* dx,
                                            float* dpositions) {
  const int i = thread_of_grid();
  if (i >= count) return;
  float sum = 0;
  for (int b = 0; b < batch; ++b) sum += dx[b * count + i];
  dpositions[i] = sum;
}

// ---- layer norm ---------------------------------------------------------------------------------

/// What the backward pass needs of a row: x^ = (x - mean) * inverse_deviation.
struct RowStatistics {
  float mean, inverse_deviation;
};

/// y = gain * x^ + bias, a warp for each row.
template <class T>
ATTILE_KERNEL void layer_norm(int rows, int width, const float* x, const float* gain,
                              const float* bias, T* y, RowStatistics* statistics) {
  const int row = warp_of_grid();
  if (row >= rows) return;
  x += row * width, y += row * width;
  float sum = 0, squares = 0;
  for (int c = lane(); c < width; c += arch::kWarpSize) sum += x[c];
  const float mean = warp_sum(sum) / width;
  for (int c = lane(); c < width; c += arch::kWarpSize) squares += (x[c] - mean) * (x[c] - mean);
  const float inverse_deviation = 1.0f / sqrtf(warp_sum(squares) / width + 1e-5f);
  for (int c = lane(); c < width; c += arch::kWarpSize) {
    y[c] = from_float<T>(gain[c] * (x[c] - mean) * inverse_deviation + bias[c]);
  }
  if (lane() == 0) statistics[row] = {mean, inverse_deviation};
}

/// dx += inverse_deviation * (g - mean(g) - x^ * mean(g * x^)) with g = gain * dy, a warp for each
/// row. It adds, since x goes around the layer as well.
template <class T>
ATTILE_KERNEL void layer_norm_backward(int rows, int width, const float* x, const float* gain,
                                       const RowStatistics* statistics, const T* dy, float* dx) {
  const int row = warp_of_grid();
  if (row >= rows) return;
  x += row * width, dy += row * width, dx += row * width;
  const auto [mean, inverse_deviation] = statistics[row];
  float sum = 0, along = 0;
  for (int c = lane(); c < width; c += arch::kWarpSize) {
    const float g = gain[c] * to_float(dy[c]);
    sum += g;
    along += g * (x[c] - mean) * inverse_deviation;
  }
  const float mean_g = warp_sum(sum) / width, mean_along = warp_sum(along) / width;
  for (int c = lane(); c < width; c += arch::kWarpSize) {
    const float normal = (x[c] - mean) * inverse_deviation;
    dx[c] += inverse_deviation * (gain[c] * to_float(dy[c]) - mean_g - normal * mean_along);
  }
}

/// The rows that one thread of the next kernel adds up.
inline constexpr int kRowsOfPart = 64;

/// dgain = the sum of dy * x^ over the rows, dbias = that of dy, in parts of kRowsOfPart rows: a
/// thread for each column of each part. `parts` is (parts, 2, width).
template <class T>
ATTILE_KERNEL void layer_norm_parameters_backward(int count, int rows, int width, const float* x,
                                                  const RowStatistics* statistics, const T* dy,
                                                  float* parts) {
  const int i = thread_of_grid();
  if (i >= count) return;
  const int part = i / width, c = i % width, first = part * kRowsOfPart;
  float dgain = 0, dbias = 0;
  for (int row = first; row < rows && row < first + kRowsOfPart; ++row) {
    const auto [mean, inverse_deviation] = statistics[row];
    const float g = to_float(dy[row * width + c]);
    dgain += g * (x[row * width + c] - mean) * inverse_deviation;
    dbias += g;
  }
  parts[(part * 2 + 0) * width + c] = dgain;
  parts[(part * 2 + 1) * width + c] = dbias;
}

/// The sum of these parts, a thread for each column of both.
ATTILE_KERNEL void add_parts(int count, int parts_count, const float* parts, float* dgain,
                             float* dbias) {
  const int c = thread_of_grid(), width = count / 2;
  if (c >= count) return;
  float sum = 0;
  for (int part = 0; part < parts_count; ++part) sum += parts[part * count + c];
  (c < width ? dgain[c] : dbias[c - width]) = sum;
}

// ---- element by element -------------------------------------------------------------------------

/// The normal distribution: the share of it that lies below x.
ATTILE_HOST_DEVICE float normal_below(float x) { return 0.5f * (1 + erff(x * 0.70710678f)); }

/// GELU: y = x * normal_below(x).
template <class T>
ATTILE_KERNEL void gelu(int count, const T* x, T* y) {
  const int i = thread_of_grid();
  if (i < count) y[i] = from_float<T>(to_float(x[i]) * normal_below(to_float(x[i])));
}

/// dx = dy * (normal_below(x) + x * density(x)), in place of dy.
template <class T>
ATTILE_KERNEL void gelu_backward(int count, const T* x, T* dy) {
  const int i = thread_of_grid();
  if (i >= count) return;
  const float at = to_float(x[i]);
  const float density = 0.39894228f * expf(-0.5f * at * at);
  dy[i] = from_float<T>(to_float(dy[i]) * (normal_below(at) + at * density));
}

/// A residual: sum = x + y.
template <class T>
ATTILE_KERNEL void add(int count, const float* x, const T* y, float* sum) {
  const int i = thread_of_grid();
  if (i < count) sum[i] = x[i] + to_float(y[i]);
}

/// y = x in the type that products read.
template <class T>
ATTILE_KERNEL void round(int count, const float* x, T* y) {
  const int i = thread_of_grid();
  if (i < count) y[i] = from_float<T>(x[i]);
}

ATTILE_KERNEL void clear(int count, float* x) {
  const int i = thread_of_grid();
  if (i < count) x[i] = 0;
}

// ---- loss ---------------------------------------------------------------------------------------

ATTILE_DEVICE float warp_max(float x) {
  for (int mask = arch::kWarpSize / 2; mask > 0; mask /= 2) {
    x = fmaxf(x, arch::shuffle_xor(x, mask));
  }
  return x;
}

/// Cross entropy: loss = ln(sum of exp(logits)) - logits[target], a warp for each row; and the
/// gradient of the mean loss, dlogits = (softmax(logits) - (1 at the target)) / rows.
template <class T>
ATTILE_KERNEL void cross_entropy(int rows, int vocabulary, const float* logits, const int* targets,
                                 float* loss, T* dlogits) {
  const int row = warp_of_grid();
  if (row >= rows) return;
  logits += row * vocabulary, dlogits += row * vocabulary;
  float largest = logits[0], sum = 0;  // the largest is subtracted: no exponential is infinite
  for (int v = lane(); v < vocabulary; v += arch::kWarpSize) largest = fmaxf(largest, logits[v]);
  largest = warp_max(largest);
  for (int v = lane(); v < vocabulary; v += arch::kWarpSize) sum += expf(logits[v] - largest);
  sum = warp_sum(sum);
  const int target = targets[row];
  for (int v = lane(); v < vocabulary; v += arch::kWarpSize) {
    const float p = expf(logits[v] - largest) / sum;
    dlogits[v] = from_float<T>((p - (v == target ? 1.0f : 0.0f)) / rows);
  }
  if (lane() == 0) loss[row] = largest + logf(sum) - logits[target];
}

/// The mean of all rows' losses, by the one warp that it is launched for.
ATTILE_KERNEL void mean_loss(int count, int rows, const float* loss, float* mean) {
  if (warp_of_grid() >= count) return;
  float sum = 0;
  for (int row = lane(); row < rows; row += arch::kWarpSize) sum += loss[row];
  sum = warp_sum(sum);
  if (lane() == 0) *mean = sum / rows;
}

// ---- optimizer ----------------------------------------------------------------------------------

/// What AdamW is set to at one step.
struct AdamW {
  float rate;
  float decay = 0.1f;                      ///< at each step a weight loses rate * decay of itself
  float beta1 = 0.9f, beta2 = 0.95f;       ///< how slowly the means of g and of g^2 move
  float correction1 = 1, correction2 = 1;  ///< 1 / (1 - beta^step), since the means begin at 0
  float epsilon = 1e-8f;
};

/// m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2,
/// w = w - rate (m^ / (sqrt(v^) + epsilon) + decay w), and w in the type that products read.
template <class T>
ATTILE_KERNEL void adamw(int count, AdamW set, const float* g, float* m, float* v, float* w,
                         T* rounded) {
  const int i = thread_of_grid();
  if (i >= count) return;
  m[i] = set.beta1 * m[i] + (1 - set.beta1) * g[i];
  v[i] = set.beta2 * v[i] + (1 - set.beta2) * g[i] * g[i];
  const float step = m[i] * set.correction1 / (sqrtf(v[i] * set.correction2) + set.epsilon);
  w[i] -= set.rate * (step + set.decay * w[i]);
  rounded[i] = from_float<T>(w[i]);
}

}  // namespace gpt
