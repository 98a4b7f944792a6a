// SPDX-License-Identifier: MIT
// The steps of an engine, and the calls of attile that each of its layers makes.
#pragma once

#include <attile/append.cuh>
#include <attile/core/cache.h>
#include <attile/core/math.h>
#include <attile/decode.cuh>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <vector>

#include "../support.cuh"
#include "model.cuh"
#include "rope.h"

namespace generate {

using example::DeviceArray;
using example::must;

/// Ends the program with the sentence of a refusal.
inline void must(const attile::Check& check, const char* what) {
  if (check) return;
  std::fprintf(stderr, "%s: %s\n", what, check.why);
  std::exit(1);
}

inline constexpr int kPageSize = 16;

/// Holds the rows of one step, those of the sequences one behind another: a token each.
class Step {
 public:
  /// `rows`: how many each sequence has. One that has none is padding: the tensors have a row for
  /// it at their end, which no kernel touches, so that any step of single rows has the same size.
  /// `tokens`: the sequences up to the end of this step. A chunk's rows are the last of them; a
  /// single row is left to `advance`.
  Step(const std::vector<int>& rows, const std::vector<std::vector<int>>& tokens)
      : rows_(rows), cu_seqlens_(rows.size() + 1), tokens_(total_of(rows)) {
    std::vector<int> offsets{0}, ids;
    for (std::size_t b = 0; b < rows.size(); ++b) {
      offsets.push_back(offsets.back() + rows[b]);
      if (rows[b] == 1) {
        ids.push_back(kUnknown);
      } else {
        ids.insert(ids.end(), tokens[b].end() - rows[b], tokens[b].end());
      }
    }
    ids.resize(tokens_.size(), kUnknown);
    cu_seqlens_.upload(offsets);
    tokens_.upload(ids);
  }

  int batch() const { return static_cast<int>(rows_.size()); }
  int rows(int sequence) const { return rows_[sequence]; }
  int total() const { return static_cast<int>(tokens_.size()); }
  int longest() const { return *std::max_element(rows_.begin(), rows_.end()); }
  /// Returns how many sequences, and rows at the end of the tensors, are padding.
  int padding() const { return static_cast<int>(std::count(rows_.begin(), rows_.end(), 0)); }
  const int* cu_seqlens() const { return cu_seqlens_.get(); }
  int* tokens() const { return tokens_.get(); }

 private:
  static constexpr int kUnknown = -1;

  static std::size_t total_of(const std::vector<int>& rows) {
    std::size_t total = 0;
    for (const int n : rows) total += std::max(n, 1);
    return total;
  }

  std::vector<int> rows_;
  DeviceArray<int> cu_seqlens_, tokens_;
};

/// Holds the cache, and what all layers of all steps share: scratch memory, lengths, a page table.
class Engine {
 public:
  using Sequences = attile::PagedPacked;
  using NewKeys = attile::AppendArgs<bf16, Sequences, attile::Rotary<float>>;
  using Attention = attile::ForwardArgs<bf16, attile::Causal, Sequences>;

  /// `longest`: the length that each sequence may reach; it has its pages from the beginning.
  /// `kv_len`: the largest of them, a multiple of kPageSize. `most_rows`: of a step.
  Engine(const std::vector<int>& longest, int kv_len, int most_rows)
      : kv_len_(kv_len),
        columns_(kv_len / kPageSize),
        pages_(pages_of(longest)),
        most_rows_(most_rows),
        cache_(std::size_t{kLayers} * pages_ * 2 * kPageElements),
        qkv_(std::size_t(most_rows) * kRowElements),
        o_(std::size_t{kLayers} * most_rows * kQHeads * kDim),
        cos_(RopeTables(kv_len, kDim).cos),
        sin_(RopeTables(kv_len, kDim).sin),
        page_table_(make_page_table(longest)),
        seqused_k_(std::vector<int>(longest.size(), 0)),
        dropped_(std::vector<int>{0}) {
    // Rows of the cache that nobody has written are NaN, and would show.
    must(cudaMemset(cache_.get(), 0xff, cache_.size() * sizeof(bf16)), "cudaMemset");
  }

  /// Checks what the calls of a step will be asked, and makes room for their scratch memory. Bad
  /// arguments end the program with a sentence.
  void prepare(const Step& step) {
    must(attile::check_append(new_keys(step, 0)), "append");
    const Attention args = attention(step, 0);
    const attile::WorkspaceSize size = attile::decode_workspace_size<kDim>(args);
    must(size.check, "decode");
    if (!workspace_ || workspace_->size() < size.bytes) {
      workspace_.emplace(size.bytes);
      // Once: every call of decode leaves it ready for the next one, of any layer and step.
      must(attile::reset_workspace(workspace_->get(), workspace_->size()), "reset_workspace");
    }
    must(attile::check_decode<kDim>(args, workspace_->get(), workspace_->size()), "decode");
  }

  const char* kernel_name(const Step& step) const {
    return attile::decode_kernel_name<kDim>(attention(step, 0));
  }

  /// Launches what comes between two steps: lengths grow, and tokens are chosen.
  void advance(const Step& from, const Step& to, cudaStream_t stream) const {
    must(arch::launch(generate::advance, 1, kThreads, 0, stream, from.cu_seqlens(),
                      static_cast<const int*>(from.tokens()), to.cu_seqlens(), to.tokens(),
                      to.batch(), seqused_k_.get()),
         "advance");
  }
  /// Launches the layers of a step. The lengths already count its rows.
  void run(const Step& step, cudaStream_t stream) const {
    const unsigned blocks = attile::ceil_div(step.total() * kRowElements, kThreads);
    for (int layer = 0; layer < kLayers; ++layer) {
      must(arch::launch(project, blocks, kThreads, 0, stream, step.cu_seqlens(), step.batch(),
                        static_cast<const int*>(step.tokens()), layer, qkv_.get()),
           "project");
      must(attile::append(new_keys(step, layer), stream), "append");
      must(attile::decode<kDim>(workspace_->get(), workspace_->size(), attention(step, layer),
                                stream),
           "decode");
    }
  }

  /// Sets the lengths of the sequences at the end of the first step.
  void set_lengths(const std::vector<int>& lengths) const { seqused_k_.upload(lengths); }
  /// Makes all outputs NaN, so that those that a step does not write can be told.
  void clear_outputs() const {
    must(cudaMemset(o_.get(), 0xff, o_.size() * sizeof(bf16)), "cudaMemset");
  }
  /// Returns O of the last step: (layers, most_rows, q_heads, dim), of which it has the first rows.
  std::vector<bf16> outputs() const { return o_.download(); }
  int most_rows() const { return most_rows_; }
  /// Returns how many new keys the cache had no row for.
  int dropped() const { return dropped_.download()[0]; }

 private:
  /// The keys, or the values, of a page.
  static constexpr int kPageElements = kPageSize * kKvHeads * kDim;

  static int pages_of(const std::vector<int>& longest) {
    int pages = 0;
    for (const int length : longest) pages += attile::ceil_div(length, kPageSize);
    return pages;
  }

  /// Gives the sequences pages from all over the cache. Entries that no key needs are -1.
  std::vector<int> make_page_table(const std::vector<int>& longest) const {
    std::vector<int> free(pages_);
    for (int i = 0; i < pages_; ++i) free[i] = i;
    std::shuffle(free.begin(), free.end(), std::mt19937(1));
    std::vector<int> table(longest.size() * columns_, -1);
    for (std::size_t b = 0; b < longest.size(); ++b) {
      for (int i = 0; i * kPageSize < longest[b]; ++i) {
        table[b * columns_ + i] = free.back();
        free.pop_back();
      }
    }
    return table;
  }

  Sequences sequences(const Step& step) const {
    return {.queries = {.cu_seqlens_q = step.cu_seqlens(), .total_q = step.total()},
            .page_table = page_table_.get(),
            .pages_per_sequence = columns_,
            .page_size = kPageSize,
            .pages = pages_,
            .seqused_k = seqused_k_.get()};
  }
  /// Returns some heads of qkv, from number `head` on.
  attile::Tensor<bf16> heads_of_rows(int head) const {
    return {.data = qkv_.get() + head * kDim, .head_stride = kDim, .row_stride = kRowElements};
  }
  /// Returns the keys, or the values, of a layer: (pages, kv_heads, page_size, dim). Both of a page
  /// lie in one piece, (2, page_size, kv_heads, dim).
  attile::Tensor<bf16> cached(int layer, bool values) const {
    const std::size_t first = (std::size_t(layer) * pages_ * 2 + values) * kPageElements;
    return {.data = cache_.get() + first,
            .batch_stride = 2 * kPageElements,
            .head_stride = kDim,
            .row_stride = kKvHeads * kDim};
  }

  NewKeys new_keys(const Step& step, int layer) const {
    return {.k_new = heads_of_rows(kKHead),
            .v_new = heads_of_rows(kVHead),
            .k = cached(layer, false),
            .v = cached(layer, true),
            .q = heads_of_rows(0),
            .q_out = heads_of_rows(0),  // in place
            .dropped = dropped_.get(),
            .batch = step.batch(),
            .q_heads = kQHeads,
            .kv_heads = kKvHeads,
            .q_len = step.longest(),
            .kv_len = kv_len_,
            .head_dim = kDim,
            .rotary = {.cos = cos_.get(), .sin = sin_.get(), .rows = kv_len_, .dims = kDim},
            .sequences = sequences(step)};
  }
  Attention attention(const Step& step, int layer) const {
    bf16* const o = o_.get() + std::size_t(layer) * most_rows_ * kQHeads * kDim;
    return {.q = heads_of_rows(0),
            .k = cached(layer, false),
            .v = cached(layer, true),
            .o = attile::bshd(o, {.rows = step.total(), .heads = kQHeads, .dim = kDim}),
            .batch = step.batch(),
            .q_heads = kQHeads,
            .kv_heads = kKvHeads,
            .q_len = step.longest(),
            .kv_len = kv_len_,
            .scale = kScale,
            .sequences = sequences(step),
            .splits = attile::Splits::fill()};
  }

  int kv_len_, columns_, pages_, most_rows_;
  DeviceArray<bf16> cache_, qkv_, o_;
  DeviceArray<float> cos_, sin_;
  DeviceArray<int> page_table_, seqused_k_, dropped_;
  std::optional<DeviceArray<unsigned char>> workspace_;
};

}  // namespace generate
