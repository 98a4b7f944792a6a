// SPDX-License-Identifier: MIT
// Reading the tensors of attend. Every failure is an npy::Error: one sentence naming the file.
#pragma once

#include <attile/core/check.h>
#include <attile/core/element.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../npy.h"
#include "options.h"
#include "problem.h"
#include "progress.h"

namespace attend {

/// The inputs as they were read; `dout`, `sinks` and `expect` are empty where they are not wanted.
struct Inputs {
  npy::Array q, k, v, dout, sinks, expect;
};

inline Inputs read_inputs(const Options& options) {
  const Progress progress("reading", options.progress);
  Inputs in;
  in.q = npy::read(options.q, 4);
  in.k = npy::read(options.k, 4);
  in.v = npy::read(options.v, 4);
  if (options.backward()) in.dout = npy::read(options.dout, 4);
  if (!options.sinks.empty()) in.sinks = npy::read(options.sinks, 1);
  if (!options.expect.empty()) in.expect = npy::read(options.expect, 4);
  return in;
}

namespace detail {

/// One input's extents by name.
struct Extents {
  std::string path, shape;
  std::int64_t batch, rows, heads, dim;
};

inline Extents extents(const std::string& path, const npy::Shape& s, Layout layout) {
  const bool rows_first = layout == Layout::kBshd;
  const Extents e{path, npy::to_string(s), s[0], rows_first ? s[1] : s[2], rows_first ? s[2] : s[1],
                  s[3]};
  const auto refuse = [&](const std::string& reason) {
    throw npy::Error(path + " has the shape " + e.shape + ", " + reason + ".");
  };
  for (const std::int64_t extent : s) {
    if (extent > attile::kMaxLength) refuse("an extent of which is above 2^30");
  }
  if (e.heads == 0) refuse("which has no heads");
  if (e.dim == 0) refuse("whose head dim is 0");
  if (e.dim > 256) refuse("whose head dim is above 256");
  return e;
}

/// The end of a sentence on shapes.
inline std::string if_other_layout(const Options& options) {
  return options.layout_said ? "." : "; --layout bhsd reads (batch, head, row, dim).";
}

inline void require_equal(const Extents& a, std::int64_t x, const Extents& b, std::int64_t y,
                          const std::string& what) {
  if (x == y) return;
  throw npy::Error(a.path + " has the shape " + a.shape + ", whose " + what + " " +
                   std::to_string(x) + " is not the " + std::to_string(y) + " of " + b.path + ".");
}

inline void require_shape(const std::string& path, const npy::Shape& shape,
                          const npy::Shape& expected) {
  if (shape == expected) return;
  throw npy::Error(path + " has the shape " + npy::to_string(shape) + ", but O has " +
                   npy::to_string(expected) + ".");
}

/// "(0, 5, 2, 7)": where the `at`-th element of an array is.
inline std::string index_text(const npy::Shape& shape, std::int64_t at) {
  npy::Shape index(shape.size());
  for (std::size_t i = shape.size(); i-- > 0; at /= shape[i]) index[i] = at % shape[i];
  return npy::to_string(index);
}

/// A sentence on the values of an input that are no finite numbers; empty where there are none.
/// Of a sink, -inf is none of them.
inline std::string not_finite(const npy::Array& array, const std::string& path) {
  std::int64_t nans = 0, infinities = 0, first = -1;
  const bool sinks = array.shape.size() == 1;
  for (std::size_t i = 0; i < array.values.size(); ++i) {
    const float x = array.values[i];
    if (std::isfinite(x) || (sinks && x == -attile::kInf)) continue;
    ++(std::isnan(x) ? nans : infinities);
    if (first < 0) first = static_cast<std::int64_t>(i);
  }
  if (first < 0) return "";
  const auto some = [](std::int64_t n, const char* what) {
    return n == 0 ? "" : std::to_string(n) + what;
  };
  return path + " holds " + some(nans, " NaN") + (nans > 0 && infinities > 0 ? " and " : "") +
         some(infinities, " infinite") + " among its " + std::to_string(array.values.size()) +
         " values, the first one at " + index_text(array.shape, first) +
         "; what they reach in the outputs is NaN.";
}

/// The length of the longest packed sequence in a tensor.
inline int longest(const Extents& e, const std::vector<int>& cu_seqlens) {
  if (e.batch != 1) {
    throw npy::Error(e.path + " has the shape " + e.shape + ", but packed sequences have batch 1.");
  }
  if (cu_seqlens.back() > e.rows) {
    throw npy::Error(e.path + " has " + std::to_string(e.rows) +
                     " rows, but the sequences end at " + std::to_string(cu_seqlens.back()) + ".");
  }
  int length = 0;
  for (std::size_t b = 1; b < cu_seqlens.size(); ++b) {
    length = std::max(length, cu_seqlens[b] - cu_seqlens[b - 1]);
  }
  return length;
}

}  // namespace detail

/// The problem that the shapes of the inputs describe.
inline Problem make_problem(const Options& options, const Inputs& in) {
  using detail::require_equal;
  const auto q = detail::extents(options.q, in.q.shape, options.layout);
  const auto k = detail::extents(options.k, in.k.shape, options.layout);
  const auto v = detail::extents(options.v, in.v.shape, options.layout);
  require_equal(k, k.batch, q, q.batch, "batch");
  require_equal(k, k.dim, q, q.dim, "head dim");
  require_equal(v, v.batch, k, k.batch, "batch");
  require_equal(v, v.rows, k, k.rows, "length");
  require_equal(v, v.heads, k, k.heads, "number of heads");
  if (q.heads % k.heads != 0) {
    throw npy::Error(k.path + " has " + std::to_string(k.heads) +
                     " heads, which do not divide the " + std::to_string(q.heads) + " of " +
                     q.path + detail::if_other_layout(options));
  }
  Problem p;
  p.layout = options.layout;
  p.batch = p.batches = static_cast<int>(q.batch);
  p.q_heads = static_cast<int>(q.heads);
  p.kv_heads = static_cast<int>(k.heads);
  p.q_len = p.q_rows = static_cast<int>(q.rows);
  p.kv_len = p.kv_rows = static_cast<int>(k.rows);
  if (!options.cu_seqlens_q.empty()) {
    p.cu_seqlens_q = options.cu_seqlens_q;
    p.cu_seqlens_k = options.cu_seqlens_k.empty() ? p.cu_seqlens_q : options.cu_seqlens_k;
    p.batch = static_cast<int>(p.cu_seqlens_q.size()) - 1;
    p.q_len = detail::longest(q, p.cu_seqlens_q);
    p.kv_len = detail::longest(k, p.cu_seqlens_k);
  }
  p.head_dim = static_cast<int>(q.dim);
  p.head_dim_v = static_cast<int>(v.dim);
  if (options.window) p.mask = {options.window->left, options.window->right};
  if (options.causal) p.mask.right = 0;
  p.scale = options.scale.value_or(1.0f / std::sqrt(static_cast<float>(p.head_dim)));
  p.backward = options.backward();
  p.sinks = !options.sinks.empty();
  if (p.sinks && in.sinks.shape != p.sinks_shape()) {
    throw npy::Error(options.sinks + " has the shape " + npy::to_string(in.sinks.shape) +
                     ", but there are " + std::to_string(p.q_heads) + " query heads.");
  }
  if (p.backward) detail::require_shape(options.dout, in.dout.shape, p.o_shape());
  if (!options.expect.empty()) {
    detail::require_shape(options.expect, in.expect.shape, p.o_shape());
  }
  return p;
}

/// What is odd about inputs that can be computed with, a sentence each.
inline std::vector<std::string> oddities(const Options& options, const Inputs& in,
                                         const Problem& p) {
  std::vector<std::string> sentences;
  const auto look = [&](const npy::Array& array, const std::string& path) {
    const std::string sentence = detail::not_finite(array, path);
    if (!sentence.empty()) sentences.push_back(sentence);
  };
  look(in.q, options.q);
  look(in.k, options.k);
  look(in.v, options.v);
  look(in.dout, options.dout);
  look(in.sinks, options.sinks);
  if (!options.layout_said && p.kv_rows > 0 && p.kv_heads > p.kv_rows) {
    sentences.push_back(options.k + " is read as " + std::to_string(p.kv_rows) + " rows of " +
                        std::to_string(p.kv_heads) +
                        " heads; if it is (batch, head, row, dim), say --layout bhsd, else bshd.");
  }
  return sentences;
}

/// The values rounded to T; a finite value must stay finite.
template <class T>
std::vector<T> rounded(const npy::Array& array, const std::string& path) {
  std::vector<T> values;
  values.reserve(array.values.size());
  for (const float x : array.values) {
    values.push_back(attile::from_float<T>(x));
    if (std::isfinite(x) && !std::isfinite(attile::to_float(values.back()))) {
      throw npy::Error(path + " holds a value that " + attile::element_name<T>() +
                       " cannot hold: try another --dtype.");
    }
  }
  return values;
}

/// The inputs in T, and memory for the outputs.
template <class T>
Tensors<T> make_tensors(const Options& options, const Inputs& in, const Problem& p) {
  Tensors<T> t;
  t.q = rounded<T>(in.q, options.q);
  t.k = rounded<T>(in.k, options.k);
  t.v = rounded<T>(in.v, options.v);
  t.o.resize(p.statistics() * p.head_dim_v);
  t.lse.resize(p.statistics());
  t.sinks = in.sinks.values;
  if (!p.sinks) t.sinks.assign(p.q_heads, -attile::kInf);
  if (!p.backward) return t;
  t.dout = rounded<T>(in.dout, options.dout);
  t.dq.resize(t.q.size());
  t.dk.resize(t.k.size());
  t.dv.resize(t.v.size());
  if (p.sinks) t.dsinks.resize(t.sinks.size());
  return t;
}

}  // namespace attend
