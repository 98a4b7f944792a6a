// SPDX-License-Identifier: MIT
// The picture of attend: which query attends to which key.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "options.h"
#include "problem.h"

namespace attend {

/// A picture has at most so many rows, and so many columns: the first ones.
inline constexpr int kMostDrawn = 64;

/// What is drawn of a problem.
struct Map {
  int sequence = 0, sequences = 0;
  int head = 0, heads = 0;        ///< head -1: the mean of all heads
  attile::Extent all{}, drawn{};  ///< queries and keys of the sequence
  bool words = false, sinks = false;
  std::vector<std::string> queries, keys;  ///< the labels of what is drawn
  std::vector<double> weights;             ///< (query, key), of what is drawn

  double weight(int row, int col) const { return weights[std::size_t(row) * drawn.kv_len + col]; }
  bool is_whole() const { return drawn.q_len == all.q_len && drawn.kv_len == all.kv_len; }
  /// The key that a query takes the most of; -1 where it takes nothing.
  int most_of(int row) const;
};

/// "head 7 of 12, sequence 0 of 6", and which rows and columns are drawn, if not all: sentences
/// without their full stops. The second one is empty where all are.
std::string what_is_drawn(const Map& map);
std::string what_is_left_out(const Map& map);

/// The map without its weights. Every problem of options, words and sizes is an npy::Error, one
/// sentence.
Map make_map(const Options& options, const Problem& problem);

/// The picture, readable on white and on black.
std::string svg(const Map& map);

/// Prints where the picture is, and its strongest squares.
void print_map(const std::string& path, const Map& map);

/// Fills in P = exp(scale Q K^T - LSE) from the inputs and the LSE of a run.
template <class T>
void weigh(Map& map, const Problem& p, const Tensors<T>& t) {
  const int first_q = p.is_packed() ? p.cu_seqlens_q[map.sequence] : 0;
  const int first_k = p.is_packed() ? p.cu_seqlens_k[map.sequence] : 0;
  const int batch = p.is_packed() ? 0 : map.sequence;
  const auto q = p.view(t.q.data(), p.q_rows, p.q_heads, p.head_dim);
  const auto k = p.view(t.k.data(), p.kv_rows, p.kv_heads, p.head_dim);
  const auto lse = attile::bhsd(t.lse.data(), {.rows = p.q_rows, .heads = p.q_heads, .dim = 1});
  const bool mean = map.head < 0;
  const int begin = mean ? 0 : map.head, end = mean ? p.q_heads : map.head + 1;
  map.weights.assign(std::size_t(map.drawn.q_len) * map.drawn.kv_len, 0);
  for (int h = begin; h < end; ++h) {
    for (int i = 0; i < map.drawn.q_len; ++i) {
      const T* const q_i = q.row(batch, h, first_q + i);
      const double row_lse = *lse.row(batch, h, first_q + i);
      for (int j = 0; j < map.drawn.kv_len; ++j) {
        if (!p.mask.visible({map.sequence, h, i, j}, map.all)) continue;
        const T* const k_j = k.row(batch, h / (p.q_heads / p.kv_heads), first_k + j);
        double product = 0;
        for (int d = 0; d < p.head_dim; ++d) {
          product += double{attile::to_float(q_i[d])} * attile::to_float(k_j[d]);
        }
        map.weights[std::size_t(i) * map.drawn.kv_len + j] +=
            std::exp(p.scale * product - row_lse) / (end - begin);
      }
    }
  }
}

}  // namespace attend
