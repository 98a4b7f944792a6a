// SPDX-License-Identifier: MIT
// The steps of an engine that generates text, from the prompts on: new keys are appended to a cache
// in pages, and each row attends to all keys of its sequence. Every step of one row for each
// sequence is one replay of a CUDA graph, within which the lengths grow.
//
// Read engine.cuh next: it has the calls of attile and their arguments. model.cuh stands in for the
// model, and expected.h says what it has to compute.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <random>
#include <vector>

#include "../command_line.h"
#include "engine.cuh"
#include "expected.h"
#include "graph.cuh"

namespace generate {
namespace {

using Tokens = std::vector<std::vector<int>>;

/// V is at most 1, so that P and O, which are rounded to bf16, are off by 2^-9 each. The rest is
/// for elements of Q and K that fp32 and fp64 bring to different sides of a rounding.
constexpr double kBound = 0x1p-7;

/// Ends `tokens` with the rows of the next step: each sequence that has begun and has no more
/// prompt goes on by a token.
void grow(Tokens& tokens, const Tokens& prompts) {
  for (std::size_t b = 0; b < tokens.size(); ++b) {
    const std::size_t length = tokens[b].size();
    if (length < prompts[b].size()) {
      tokens[b].insert(tokens[b].end(), prompts[b].begin() + static_cast<std::ptrdiff_t>(length),
                       prompts[b].end());
    } else if (length > 0) {
      tokens[b].push_back(next_token(tokens[b].back()));
    }
  }
}

/// Checks O of all layers of the step that has run, and that padding rows have been left alone.
/// `tokens`: the sequences to the end of that step.
bool check(const char* what, const Engine& engine, const Step& step, const Tokens& tokens,
           const RopeTables& rope) {
  const std::vector<bf16> outputs = engine.outputs();
  std::vector<double> found, expected;
  for (int layer = 0; layer < kLayers; ++layer) {
    const auto output = [&](int row, int head, int d) {
      const std::size_t rows = std::size_t(layer) * engine.most_rows() + row;
      return attile::to_float(outputs[(rows * kQHeads + head) * kDim + d]);
    };
    int first_row = 0;
    for (int b = 0; b < step.batch(); ++b) {
      const int first = static_cast<int>(tokens[b].size()) - step.rows(b);
      for (int head = 0; head < kQHeads; ++head) {
        int row = first_row;
        for (const HeadRow& o : expected_outputs(tokens[b], layer, head, first, rope)) {
          expected.insert(expected.end(), o.begin(), o.end());
          for (int d = 0; d < kDim; ++d) found.push_back(output(row, head, d));
          ++row;
        }
      }
      first_row += step.rows(b);
    }
    for (int row = first_row; row < step.total(); ++row) {
      if (std::isnan(output(row, 0, 0))) continue;
      std::printf("%s: a padding row was written\n", what);
      return false;
    }
  }
  return example::report(what, example::max_difference(found, expected), kBound);
}

/// Replays a step again and again. Returns the seconds that one takes.
double seconds_of_step(const Graph& graph, int steps) {
  must(cudaDeviceSynchronize(), "the steps");
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) graph.replay();
  must(cudaDeviceSynchronize(), "the steps");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return seconds.count() / steps;
}

int run(int steps) {
  // Two chunks of the second prompt are read, so that its last rows are in a call with the first
  // rows of others. The last sequence is padding: a graph is captured for a fixed number of them.
  constexpr int kChecked = 3;
  const std::vector<int> prompt_lengths{13, 50, 290, 0}, first_rows{13, 30, 290, 0};
  const std::vector<int> mixed_rows{1, 20, 1, 0}, single_rows{1, 1, 1, 0};
  Tokens prompts, tokens;
  std::vector<int> longest;
  std::mt19937 generator(1);
  for (std::size_t b = 0; b < prompt_lengths.size(); ++b) {
    prompts.emplace_back();
    for (int i = 0; i < prompt_lengths[b]; ++i) {
      prompts[b].push_back(static_cast<int>(generator() % kVocabulary));
    }
    tokens.emplace_back(prompts[b].begin(), prompts[b].begin() + first_rows[b]);
    longest.push_back(prompts[b].empty() ? 0 : prompt_lengths[b] + 2 + kChecked + steps);
  }
  const int kv_len = attile::round_up(*std::max_element(longest.begin(), longest.end()), kPageSize);
  const RopeTables rope(kv_len, kDim);

  const Step first(first_rows, tokens);
  Engine engine(longest, kv_len, first.total());
  engine.set_lengths(first_rows);
  const Tokens begun = tokens;
  grow(tokens, prompts);
  const Step mixed(mixed_rows, tokens), single(single_rows, tokens);
  for (const Step* step : {&first, &mixed, &single}) engine.prepare(*step);
  std::printf("kernel of single rows: %s\n", engine.kernel_name(single));

  engine.clear_outputs();
  engine.run(first, nullptr);
  bool good = check("prompts", engine, first, begun, rope);

  engine.clear_outputs();
  engine.advance(first, mixed, nullptr);
  engine.run(mixed, nullptr);
  good &= check("a chunk beside single rows", engine, mixed, tokens, rope);

  grow(tokens, prompts);
  engine.clear_outputs();
  engine.advance(mixed, single, nullptr);
  engine.run(single, nullptr);
  good &= check("single rows", engine, single, tokens, rope);

  const Graph graph([&](cudaStream_t stream) {
    engine.advance(single, single, stream);
    engine.run(single, stream);
  });
  for (int i = 0; i < kChecked; ++i) {
    grow(tokens, prompts);
    engine.clear_outputs();
    graph.replay();
    good &= check("a replay", engine, single, tokens, rope);
  }

  const double seconds = seconds_of_step(graph, steps);
  for (int i = 0; i < steps; ++i) grow(tokens, prompts);
  good &= check("the last replay", engine, single, tokens, rope);
  if (Graph::kCaptures) {
    const int rows = single.total() - single.padding();
    std::printf("%d steps of %d rows and %d layers: %.1f us each, %.0f rows per second\n", steps,
                rows, kLayers, 1e6 * seconds, rows / seconds);
  }
  if (engine.dropped() != 0) std::printf("the cache had no row for some of the keys\n");
  return good && engine.dropped() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace generate

int main(int argc, char** argv) {
  const std::optional<int> steps = argc < 2 ? 1000 : example::number<int>(argv[1]);
  if (argc > 2 || !steps || *steps < 1 || *steps > 10000) {
    std::fprintf(stderr, "usage: 10_generate [steps, 1 to 10000]\n");
    return 64;
  }
  example::need_gpu();
  return generate::run(*steps);
}
