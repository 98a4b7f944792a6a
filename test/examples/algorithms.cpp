// SPDX-License-Identifier: MIT
// The formulas, the fp64 rows and the command line of examples/07_algorithms.
#include <attile/reference.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../../examples/07_algorithms/accuracy.h"
#include "../../examples/07_algorithms/costs.h"
#include "../../examples/07_algorithms/options.h"
#include "../../examples/07_algorithms/result.h"
#include "support/catch.h"

namespace {

using namespace algorithms;
using attile::Causal;
using attile::NoMask;

/// Whether a row before `row_end` sees the column col0.
bool sees(NoMask, int, int) { return true; }
bool sees(Causal, int row_end, int col0) { return col0 < row_end; }

/// Calls tile(rows of Q, rows of K) for each tile that the mask leaves, of one head.
template <class Mask, class Tile>
void each_tile(Mask mask, int len, int br, int bc, const Tile& tile) {
  for (int row0 = 0; row0 < len; row0 += br) {
    for (int col0 = 0; col0 < len; col0 += bc) {
      const int row_end = std::min(row0 + br, len);
      const int col_end = std::min(col0 + bc, len);
      if (sees(mask, row_end, col0)) tile(row_end - row0, col_end - col0);
    }
  }
}

/// The formulas, whose loops are intervals of tiles, against a sum over each visible tile.
template <class Mask>
void costs_are_sums_over_tiles(int len, int br, int bc, int element) {
  CAPTURE(len, br, bc, element);
  constexpr int kHeads = 3, kDim = 5, kSlabTiles = 2;
  const Shape shape{kHeads, static_cast<double>(len), kDim, static_cast<double>(element)};
  const double row = kDim * element, sums = 4 * kDim;
  Cost forward1, forward2, backward;
  double turns = 0;  // whose turn it is, read and written
  each_tile(Mask{}, len, br, bc, [&](int rows, int cols) {
    for (Cost* cost : {&forward1, &forward2}) cost->flops += 4.0 * kDim * rows * cols;
    backward.flops += 10.0 * kDim * rows * cols;
    forward1.bytes += rows * (row + 2 * sums + 4 * 4);           // Q; O, l and m twice
    forward2.bytes += cols * 2 * row;                            // K, V
    backward.bytes += rows * (2 * row + 2 * sums) + 2 * 4 * br;  // Q, dO; dQ twice; statistics
    turns += 2 * 4;
  });
  each_tile(Mask{}, len, br * kSlabTiles, bc,
            [&](int, int cols) { forward1.bytes += cols * 2 * row; });  // K, V
  forward1.bytes -= len * (sums + 2 * 4);  // the first tile does not read O, l, m
  if (element < 4) forward1.bytes += len * (sums + row);
  forward2.bytes += len * (2 * row + 4);  // Q, O, LSE
  const int stat_rows = (len + br - 1) / br * br;
  backward.bytes += len * (2 * row + 4 + sums) + stat_rows * 2 * 4  // before: O, dO, LSE; dQ
                    + len * 4 * row                                 // K, V, dK, dV
                    + len * (sums + row);                           // after: dQ

  const auto same = [&](const Cost& formula, const Cost& one_head) {
    CHECK(formula.flops == kHeads * one_head.flops);
    CHECK(formula.bytes == kHeads * one_head.bytes);
  };
  same(flash1_forward(shape, Mask{}, br, bc, kSlabTiles), forward1);
  same(flash2_forward(shape, Mask{}, br, bc), forward2);
  same(flash_backward(shape, Mask{}, br, bc, Algorithm::kFlash2), backward);
  backward.bytes += len * 4 - 2 * len * sums + turns;  // l and m for LSE; dQ not set, first read
  same(flash_backward(shape, Mask{}, br, bc, Algorithm::kFlash1), backward);
}

/// The sampled rows of both kinds against attile::reference, in a second head. Up to kExactLen the
/// statistics given are NaN, and must not be looked at.
template <class Mask>
void rows_are_the_references(int len, bool causal) {
  CAPTURE(len, causal);
  constexpr int kHeads = 2, kDim = 8;
  const std::size_t head = static_cast<std::size_t>(len) * kDim;
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> q(kHeads * head), k(q), v(q), dout(q);
  for (auto* tensor : {&q, &k, &v, &dout}) {
    for (float& x : *tensor) x = normal(generator);
  }
  const auto view = [&](const std::vector<float>& x) {
    return attile::bhsd(x.data(), {.rows = len, .heads = kHeads, .dim = kDim});
  };
  const auto describe = [&](auto& args) {
    args.q = view(q);
    args.k = view(k);
    args.v = view(v);
    args.batch = 1;
    args.q_heads = args.kv_heads = kHeads;
    args.q_len = args.kv_len = len;
    args.head_dim = kDim;
  };
  attile::ForwardArgs<float, Mask> forward;
  describe(forward);
  const auto out = attile::reference::forward(forward);
  const std::vector<float> o(out.o.begin(), out.o.end()), lse(out.lse.begin(), out.lse.end());
  attile::BackwardArgs<float, Mask> backward{.o = view(o), .lse = lse.data(), .dout = view(dout)};
  describe(backward);
  const auto gradients = attile::reference::backward(backward);

  const Head fp64(q.data() + head, k.data() + head, v.data() + head, dout.data() + head, len, kDim,
                  causal);
  std::vector<float> given(lse.begin() + len, lse.end());
  if (len <= kExactLen) given.assign(given.size(), std::numeric_limits<float>::quiet_NaN());
  const Reference r = make_reference(fp64, o.data() + head, given.data());
  CHECK(r.places.front() == 0);
  CHECK(r.places.back() == len - 1);
  CHECK(sample_error(r, r.o, out.o.data() + head) < 1e-6);
  CHECK(sample_error(r, r.lse, out.lse.data() + len) < 1e-6);
  CHECK(sample_error(r, r.lse, out.lse.data()) > 1e-3);  // the first head's are others
  CHECK(sample_error(r, r.dq, gradients.dq.data() + head) < 1e-6);
  CHECK(sample_error(r, r.dk, gradients.dk.data() + head) < 2e-6);
  CHECK(sample_error(r, r.dv, gradients.dv.data() + head) < 2e-6);
  CHECK(sample_error(r, r.dv, gradients.dv.data()) > 0.1);  // the first head's are others
}

std::string refusal(const std::vector<std::string>& words) {
  try {
    static_cast<void>(parse(words));
  } catch (const UsageError& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("algorithms.cost_formulas_are_sums_over_visible_tiles") {
  for (const int len : {1, 16, 100, 333}) {
    for (const auto& [br, bc] : {std::pair(64, 192), {128, 64}, {16, 256}, {7, 5}}) {
      for (const int element : {2, 4}) {
        costs_are_sums_over_tiles<NoMask>(len, br, bc, element);
        costs_are_sums_over_tiles<Causal>(len, br, bc, element);
      }
    }
  }
}

TEST_CASE("algorithms.standard_costs_are_those_of_its_table") {
  const auto per_score = [](const Cost& cost, const Shape& s, int tensors) {
    return (cost.bytes - tensors * s.tensor()) / s.scores();
  };
  for (const auto& [element, forward, backward] :
       {std::tuple(4.0, 16.0, 28.0), {2.0, 12.0, 18.0}}) {
    const Shape s{6, 128, 64, element}, longer{6, 32768, 64, element};
    CHECK(per_score(standard_forward(s), s, 4) == forward);
    CHECK(per_score(standard_forward(longer), longer, 4) == forward + 4);
    CHECK(per_score(standard_backward(s), s, 10) == backward);
    CHECK(standard_forward(s).flops == 4.0 * 6 * 128 * 128 * 64);
    CHECK(standard_backward(s).flops == 8.0 * 6 * 128 * 128 * 64);
  }
}

TEST_CASE("algorithms.sampled_rows_are_those_of_the_reference") {
  rows_are_the_references<NoMask>(17, false);
  rows_are_the_references<NoMask>(300, false);
  rows_are_the_references<Causal>(300, true);
  rows_are_the_references<NoMask>(kExactLen + 1, false);
  rows_are_the_references<Causal>(kExactLen + 1, true);
}

TEST_CASE("algorithms.a_nan_is_an_error") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Reference one{.places = {0}, .o = {{1.0, 2.0}}, .lse = {}, .dq = {}, .dk = {}, .dv = {}};
  const double values[] = {nan, 2.0};
  CHECK_FALSE(sample_error(one, one.o, values) <= 1);
  CHECK(tensor_difference<float>({1.0f, 2.0f}, {1.0f, 4.0f}) == 0.5);
  CHECK_FALSE(tensor_difference<float>({static_cast<float>(nan), 2.0f}, {1.0f, 2.0f}) <= 1);
}

TEST_CASE("algorithms.the_worse_of_two_calls_is_kept") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto fails_after = [](Error first, Error second) {
    PassResult result{.pass = {Algorithm::kFlash1, Direction::kForward}, .cost = {}};
    result.add_errors({first});
    CHECK(result.within());
    result.add_errors({second});
    const bool fails = !result.within();
    result.add_errors({first});
    CHECK(fails == !result.within());
    return fails;
  };
  const Error good{"O", 0.1, 0.1, 1.0};
  CHECK_FALSE(fails_after(good, good));
  for (const double bad : {3.0, nan}) {
    CHECK(fails_after(good, {"O", bad, 0.1, 1.0}));
    CHECK(fails_after(good, {"O", 0.1, bad, 1.0}));
  }
}

TEST_CASE("algorithms.nominal_flops_are_those_of_the_papers") {
  Problem p{.batch = 2, .heads = 3, .len = 8, .dim = 64};
  CHECK(nominal_flops(p, Direction::kForward) == 2.0 * 2 * 3 * 8 * 8 * (64 + 64));
  CHECK(nominal_flops(p, Direction::kBackward) == 2.5 * nominal_flops(p, Direction::kForward));
  const double full = nominal_flops(p, Direction::kForward);
  p.causal = true;
  CHECK(nominal_flops(p, Direction::kForward) == full / 2);
}

TEST_CASE("algorithms.command_line") {
  const Options sweep = parse({"--sweep", "--type", "fp16", "--head-dim", "128"});
  REQUIRE(sweep.problems.size() == 8);
  for (const Problem& p : sweep.problems) {
    CHECK(p.type == Type::kFp16);
    CHECK(1LL * p.heads * p.batch * p.len == 16LL * 16384);
    CHECK(p.batch * p.len == std::max(p.len, 16384));
  }
  CHECK(sweep.problems.back().len == 128 * 1024);

  const Options once = parse({"--paper", "--once", "flash1", "backward", "--json"});
  REQUIRE(once.once);
  CHECK(once.once->algorithm == Algorithm::kFlash1);
  CHECK(once.once->direction == Direction::kBackward);
  CHECK(once.json);
  REQUIRE(once.problems.size() == 1);
  CHECK(once.problems[0].batch == 64);

  const Options lengths = parse({"--seqlen", "16,333"});
  REQUIRE(lengths.problems.size() == 2);
  CHECK(lengths.problems[1].len == 333);
  for (const char* wrong : {"16,", ",16", "", "x", "15", "99999999999"}) {
    CHECK(refusal({"--seqlen", wrong}).find("--seqlen needs") == 0);
  }
  CHECK(refusal({"--once", "flash1"}) == "--once needs a value.");
  CHECK(refusal({"--head-dim", "96"}) == "--head-dim needs one of 64, 128, not '96'.");
  CHECK(refusal({"--wrong"}).find("there is no option '--wrong'") == 0);
  for (const char* help : {"-h", "--help"}) CHECK(parse({help}).help);
}

TEST_CASE("algorithms.no_option_is_left_without_effect") {
  const std::pair<std::string, std::string> values[] = {
      {"--batch", "2"},   {"--heads", "2"}, {"--seqlen", "2048"},
      {"--type", "fp32"}, {"--sweep", ""},  {"--head-dim", "128"}};
  for (const auto& [option, value] : values) {
    for (const char* whole : {"--paper", "--sweep"}) {
      CAPTURE(option, whole);
      if (option == whole) continue;
      const bool meets = whole == std::string("--paper") || option == "--batch" ||
                         option == "--heads" || option == "--seqlen";
      const std::string why =
          std::string(whole) + " and " + option + " do not go together; see --help.";
      std::vector<std::string> words = {option};
      if (!value.empty()) words.push_back(value);
      words.push_back(whole);
      CHECK(refusal(words) == (meets ? why : ""));
      std::rotate(words.begin(), words.end() - 1, words.end());
      CHECK(refusal(words) == (meets ? why : ""));
    }
  }
  CHECK(parse({"--paper", "--causal"}).problems[0].causal);
  CHECK(parse({"--sweep", "--causal"}).problems[0].causal);
}
