// SPDX-License-Identifier: MIT
// The ladder of tile/softmax.h on the device, each rung with fp64, and the merge of two online
// softmax states whose rows lie in the registers of a block.
#include <attile/tile/register_tile.cuh>
#include <attile/tile/softmax.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/catch.h"
#include "support/random.h"
#include "tile/softmax_rows.h"

namespace kernel_softmax {

using namespace attile_test;
using attile::kInf;
using attile::kLog2e;

/// A function, because nvcc 13.0 does not end on Catch2 3's REQUIRE in the members of a class.
void must(cudaError_t error) { REQUIRE(error == cudaSuccess); }

/// Device memory that holds `values`.
class Device {
 public:
  explicit Device(const std::vector<float>& values) : size_(values.size()) {
    must(cudaMalloc(&data_, bytes()));
    must(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice));
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() { static_cast<void>(cudaFree(data_)); }

  float* get() const { return data_; }
  std::vector<float> download() const {
    std::vector<float> values(size_);
    must(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  std::size_t bytes() const { return size_ * sizeof(float); }

  float* data_ = nullptr;
  std::size_t size_;
};

enum class Rung { kNaive, kSafe, kThreePass, kOnline, kBlockwise };

/// A row for each thread: begin[i] is where the i-th starts, begin[rows] where the last ends.
__global__ void rows_kernel(Rung rung, int block, const float* x, float* y, const int* begin,
                            const float* unit, int rows) {
  using namespace attile::tile;
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= rows) return;
  const int n = begin[i + 1] - begin[i];
  x += begin[i], y += begin[i];
  switch (rung) {
    case Rung::kNaive:
      return naive_softmax(x, y, n, unit[i]);
    case Rung::kSafe:
      return safe_softmax(x, y, n, unit[i]);
    case Rung::kThreePass:
      return three_pass_softmax(x, y, n, unit[i]);
    case Rung::kOnline:
      return online_softmax(x, y, n, unit[i]);
    case Rung::kBlockwise:
      return blockwise_softmax(x, y, n, block, unit[i]);
  }
}

/// What a rung makes of all the rows, one after the other; NaN where it wrote nothing.
std::vector<float> run(Rung rung, const std::vector<ScoreRow>& rows, int block = 1) {
  std::vector<float> x, unit;
  std::vector<int> begin = {0};
  for (const ScoreRow& row : rows) {
    x.insert(x.end(), row.x.begin(), row.x.end());
    begin.push_back(static_cast<int>(x.size()));
    unit.push_back(row.unit);
  }
  const Device x_gmem(x), unit_gmem(unit), y_gmem(std::vector<float>(x.size(), std::nanf("")));
  int* begin_gmem = nullptr;
  must(cudaMalloc(&begin_gmem, begin.size() * sizeof(int)));
  must(cudaMemcpy(begin_gmem, begin.data(), begin.size() * sizeof(int), cudaMemcpyHostToDevice));
  const int count = static_cast<int>(rows.size());
  rows_kernel<<<(count + 63) / 64, 64>>>(rung, block, x_gmem.get(), y_gmem.get(), begin_gmem,
                                         unit_gmem.get(), count);
  must(cudaGetLastError());
  must(cudaDeviceSynchronize());
  must(cudaFree(begin_gmem));
  return y_gmem.download();
}

void check_rung(Rung rung, int block = 1) {
  const std::vector<ScoreRow> rows = score_rows();
  const std::vector<float> y = run(rung, rows, block);
  const float* at = y.data();
  for (const ScoreRow& row : rows) {
    INFO("rung " << static_cast<int>(rung) << ", block " << block << ", " << row.name);
    CHECK(first_wrong(row, at) == -1);
    at += row.x.size();
  }
}

constexpr int kRows = 20, kCols = 24, kTiles = 5, kThreads = 64;
using Tile = attile::tile::RegisterTile<kRows, kCols, kThreads / attile::tile::kColLanes, 1, 1>;
using Softmax = attile::tile::OnlineSoftmax<Tile::kRegRows>;

/// o(r, c) = sum over tiles t of P(r, t * kCols + c), the tiles [0, cut) in one state, the others
/// in another, the two merged; lse(r).
__global__ void merge_kernel(const float* s, float* o, float* lse, int cut) {
  Softmax softmax[2];
  Tile o_frag[2];
  for (int part = 0; part < 2; ++part) {
    softmax[part].reset();
    o_frag[part].clear();
    for (int t = part == 0 ? 0 : cut; t < (part == 0 ? cut : kTiles); ++t) {
      Tile s_frag;
      s_frag.clear();
      s_frag.for_each([&](int r, int c, float& x) { x = s[(r * kTiles + t) * kCols + c]; });
      softmax[part].step(s_frag, o_frag[part], kLog2e);
      for (int r = 0; r < Tile::kRegRows; ++r) {
        for (int c = 0; c < Tile::kRegCols; ++c) o_frag[part].x[r][c] += s_frag.x[r][c];
      }
    }
  }
  softmax[0].merge(softmax[1], o_frag[0], o_frag[1], kLog2e);
  for (int r = 0; r < Tile::kRegRows; ++r) {
    for (int c = 0; c < Tile::kRegCols; ++c) o_frag[0].x[r][c] += o_frag[1].x[r][c];
  }
  softmax[0].finish(o_frag[0]);
  o_frag[0].for_each([&](int r, int c, float& x) { o[r * kCols + c] = x; });
  for (int r = 0; r < Tile::kRegRows; ++r) {
    if (Tile::has_row(r) && Tile::col(0) == 0) lse[Tile::row(r)] = softmax[0].lse(r, kLog2e);
  }
}

TEST_CASE("the safe rungs of the softmax ladder equal fp64") {
  for (const Rung rung : {Rung::kSafe, Rung::kThreePass, Rung::kOnline}) check_rung(rung);
  for (const int block : {1, 3, 16, 64, 5000}) check_rung(Rung::kBlockwise, block);
}

TEST_CASE("the naive softmax is right in its range and overflows beyond") {
  const Random random(1);
  ScoreRow row{"", {}};
  for (int i = 0; i < 1000; ++i) row.x.push_back(5 * random.normal(i));
  const std::vector<double> exact = exact_softmax(row);
  const std::vector<float> y = run(Rung::kNaive, {row});
  // The exponents are x itself, up to 25 here, and not x - m.
  const double bound = sum_tolerance(row.x.size()) + 2 * 25 * kUnitRoundoff;
  bool right = true;
  for (std::size_t i = 0; i < y.size(); ++i) {
    right = right && std::abs(y[i] - exact[i]) <= bound * exact[i];
  }
  CHECK(right);
  for (const float offset : {89.0f, -110.0f}) {
    const ScoreRow beyond{"", {offset, offset - 1}};
    CHECK(std::isnan(run(Rung::kNaive, {beyond})[0]));
    CHECK(std::isfinite(run(Rung::kSafe, {beyond})[0]));
  }
}

TEST_CASE("two online softmax states in registers merge to the softmax of all scores") {
  constexpr int kScores = kTiles * kCols;
  const Random random(2);
  std::vector<ScoreRow> rows(kRows);
  std::vector<float> s;
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kScores; ++j) {
      // Rows: all hidden, one half hidden, far from 0, plain.
      const bool hidden = r == 0 || (r == 1 && j < 60) || (r == 2 && j >= 60);
      const float z = 3 * random.normal(s.size()) + (r == 3 ? 1e4f : 0.0f);
      s.push_back(hidden ? -kInf : z);
    }
    rows[r].x.assign(s.end() - kScores, s.end());
  }
  const Device s_gmem(s);
  for (int cut = 0; cut <= kTiles; ++cut) {
    const Device o_gmem(std::vector<float>(kRows * kCols, std::nanf("")));
    const Device lse_gmem(std::vector<float>(kRows, std::nanf("")));
    merge_kernel<<<1, kThreads>>>(s_gmem.get(), o_gmem.get(), lse_gmem.get(), cut);
    must(cudaGetLastError());
    must(cudaDeviceSynchronize());
    const std::vector<float> o = o_gmem.download(), lse = lse_gmem.download();
    for (int r = 0; r < kRows; ++r) {
      const std::vector<double> p = exact_softmax(rows[r]);
      double worst = 0;
      for (int c = 0; c < kCols; ++c) {
        double exact = 0;
        for (int t = 0; t < kTiles; ++t) exact += p[t * kCols + c];
        const double error = std::abs(o[r * kCols + c] - exact);
        if (!(error <= worst) && !std::isnan(worst)) worst = error;
      }
      INFO("cut " << cut << ", row " << r);
      // `step` takes s * unit - m * unit: at 1e4 each product is off by up to 2^-11.
      CHECK(worst <= (r == 3 ? 2e-3 : 2 * sum_tolerance(kScores)));
      double m = -kInf, l = 0;
      for (const float x : rows[r].x) m = std::max(m, double{x});
      for (const float x : rows[r].x) l += r == 0 ? 0 : std::exp(x - m);
      if (r == 0) {
        CHECK(lse[r] == -kInf);
      } else {
        CHECK(std::abs(lse[r] - (m + std::log(l))) <= 1e-6 * (1 + std::abs(m)));
      }
    }
  }
}

}  // namespace kernel_softmax
