// SPDX-License-Identifier: MIT
// The products of tile/matmul.cuh in each layout of their operands, and load and stage of
// tile/copy.cuh, on the device, beside plain loops on the host. Inputs are small integers: every
// sum is exact, whatever its order.
#include <attile/arch/atomic.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/thread.cuh>
#include <attile/tile/copy.cuh>
#include <attile/tile/matmul.cuh>
#include <attile/tile/register_tile.cuh>

#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "support/catch.h"
#include "support/gpu_executor.h"
#include "support/random.h"

namespace kernel_matmul {

namespace arch = attile::arch;
namespace tile = attile::tile;
using attile_test::DeviceMemory;
using tile::Order;
using tile::Padding;

constexpr int kThreads = 128, kRowLanes = kThreads / tile::kColLanes;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kGuard = 12345.0f;
constexpr int kGuards = 4;  // floats behind a tile that nobody may write

/// Shared memory as a tile of NaN with guards behind it. Barriers: one inside.
template <int kBlock, class Tile>
ATTILE_DEVICE Tile take_poisoned(tile::SharedCarver& carver) {
  constexpr int kFloats = Tile::kBytes / sizeof(float);
  const Tile shared = carver.take<Tile>(Tile::kBytes + kGuards * sizeof(float));
  for (int i = arch::thread_index(); i < kFloats + kGuards; i += kBlock) {
    shared.data[i] = i < kFloats ? kNan : kGuard;
  }
  arch::barrier();
  return shared;
}

template <class Tile>
constexpr std::size_t kSharedBytes = Tile::kBytes + kGuards * sizeof(float);

/// out = the tile, row by row, and its guards.
template <int kBlock, class Tile>
ATTILE_DEVICE void write_out(const Tile& shared, float* out) {
  constexpr int kFloats = Tile::kBytes / sizeof(float), kCount = Tile::kRows * Tile::kCols;
  for (int i = arch::thread_index(); i < kCount + kGuards; i += kBlock) {
    out[i] = i < kCount ? shared.at(i / Tile::kCols, i % Tile::kCols)
                        : shared.data[kFloats + i - kCount];
  }
}

/// kernel(out, params...) in one block; what it does not write of `out` stays as it was.
template <class... Params>
void run(void (*kernel)(float*, Params...), int threads, std::size_t shared_bytes,
         std::vector<float>& out, const std::type_identity_t<Params>&... params) {
  DeviceMemory memory({{out.data(), out.size() * sizeof(float)}});
  float* const out_gmem = static_cast<float*>(memory.device(out.data()));
  memory.keep(arch::launch(kernel, 1, threads, shared_bytes, nullptr, out_gmem, params...));
  memory.keep(cudaDeviceSynchronize());
  memory.copy_back();
  REQUIRE(memory.error() == cudaSuccess);
}

/// The place of the first element of `got` that is not what the tile should hold, or that is a
/// lost guard; -1 if there is none.
template <class Expected>
int first_wrong(const std::vector<float>& got, int rows, int cols, const Expected& expected) {
  for (int i = 0; i < static_cast<int>(got.size()); ++i) {
    const float want = i < rows * cols ? expected(i / cols, i % cols) : kGuard;
    if (!(got[i] == want)) return i;
  }
  return -1;
}

/// An integer from -8 to 8.
float small_integer(const attile_test::Random& random, std::uint64_t i) {
  return static_cast<float>(random.bits(i) % 17) - 8.0f;
}

std::vector<float> small_integers(std::uint64_t seed, int size) {
  std::vector<float> values(size);
  for (int i = 0; i < size; ++i) values[i] = small_integer(attile_test::Random(seed), i);
  return values;
}

enum class Form { kNN, kNT, kTN };

/// What the register tile is before the product is added.
constexpr float kBefore = 3.0f;

/// out += kBefore + the product, each element as often as a thread holds it. a and b: dense, of the
/// tiles' shapes.
template <Form kForm, class Acc, class A, class B>
ATTILE_KERNEL void product_kernel(float* out, const float* a, const float* b) {
  tile::SharedCarver carver{arch::dynamic_shared()};
  const auto fill = [](const auto& shared, const float* from) {
    for (int i = arch::thread_index(); i < shared.kRows * shared.kCols; i += kThreads) {
      shared.at(i / shared.kCols, i % shared.kCols) = from[i];
    }
  };
  const A a_smem = take_poisoned<kThreads, A>(carver);
  const B b_smem = take_poisoned<kThreads, B>(carver);
  fill(a_smem, a);
  fill(b_smem, b);
  arch::barrier();  // the operands are written before anyone reads them

  Acc acc;
  acc.clear();
  acc.for_each([](int, int, float& x) { x = kBefore; });
  if constexpr (kForm == Form::kNN) {
    tile::matmul_nn(acc, a_smem, b_smem);
  } else if constexpr (kForm == Form::kNT) {
    tile::matmul_nt(acc, a_smem, b_smem);
  } else {
    tile::matmul_tn(acc, a_smem, b_smem);
  }
  acc.for_each([&](int r, int c, float& x) { arch::atomic_add(&out[r * Acc::kCols + c], x); });
}

constexpr Order other(Order order) {
  return order == Order::kRowMajor ? Order::kColumnMajor : Order::kRowMajor;
}

/// One product of (Rows, Depth) by (Depth, Cols). kOrderA, kOrderB: as the product sees its
/// operands; one that the form transposes is stored in the other.
template <Form kForm, Order kOrderA, Order kOrderB, int kRowRun, int kColRun, int Rows, int Cols,
          int Depth>
void check_product() {
  constexpr bool kTransA = kForm == Form::kTN, kTransB = kForm == Form::kNT;
  constexpr Padding kPadA = kRowRun == 2 ? Padding::kNone : Padding::kOdd;
  constexpr Padding kPadB = kRowRun == 2 ? Padding::kOdd : Padding::kNone;
  using A = tile::SharedTile<kTransA ? Depth : Rows, kTransA ? Rows : Depth,
                             kTransA ? other(kOrderA) : kOrderA, kPadA>;
  using B = tile::SharedTile<kTransB ? Cols : Depth, kTransB ? Depth : Cols,
                             kTransB ? other(kOrderB) : kOrderB, kPadB>;
  using Acc = tile::RegisterTile<Rows, Cols, kRowLanes, kRowRun, kColRun>;

  std::vector<float> a = small_integers(1, Rows * Depth), b = small_integers(2, Depth * Cols);
  DeviceMemory memory({{a.data(), a.size() * sizeof(float)}, {b.data(), b.size() * sizeof(float)}});
  REQUIRE(memory.error() == cudaSuccess);
  std::vector<float> out(Rows * Cols, 0.0f);
  run(product_kernel<kForm, Acc, A, B>, kThreads, kSharedBytes<A> + kSharedBytes<B>, out,
      static_cast<const float*>(memory.device(a.data())),
      static_cast<const float*>(memory.device(b.data())));
  const int wrong = first_wrong(out, Rows, Cols, [&](int r, int c) {
    float sum = kBefore;
    for (int k = 0; k < Depth; ++k) {
      sum += a[kTransA ? k * Rows + r : r * Depth + k] * b[kTransB ? c * Depth + k : k * Cols + c];
    }
    return sum;
  });
  CAPTURE(static_cast<int>(kForm), static_cast<int>(kOrderA), static_cast<int>(kOrderB), kRowRun);
  CAPTURE(kColRun, Rows, Cols, Depth);
  CHECK(wrong == -1);
}

template <Order kOrderA, Order kOrderB, int kRowRun, int kColRun, int Rows, int Cols, int Depth>
void check_forms() {
  check_product<Form::kNN, kOrderA, kOrderB, kRowRun, kColRun, Rows, Cols, Depth>();
  check_product<Form::kNT, kOrderA, kOrderB, kRowRun, kColRun, Rows, Cols, Depth>();
  check_product<Form::kTN, kOrderA, kOrderB, kRowRun, kColRun, Rows, Cols, Depth>();
}

template <Order kOrderA, Order kOrderB, int Rows, int Cols, int Depth>
void check_products() {
  check_forms<kOrderA, kOrderB, 1, 1, Rows, Cols, Depth>();
  check_forms<kOrderA, kOrderB, 1, 4, Rows, Cols, Depth>();
  check_forms<kOrderA, kOrderB, 2, 2, Rows, Cols, Depth>();
  check_forms<kOrderA, kOrderB, 4, 4, Rows, Cols, Depth>();
}

template <int kBlock, class Tile, class T>
ATTILE_KERNEL void load_kernel(float* out, tile::Matrix<const T> source, int row0) {
  tile::SharedCarver carver{arch::dynamic_shared()};
  const Tile shared = take_poisoned<kBlock, Tile>(carver);
  tile::load<kBlock>(shared, source, row0);
  arch::barrier();  // the tile is written before it is read
  write_out<kBlock>(shared, out);
}

/// Loads rows row0 ... of a (rows, cols) matrix that begins `offset` elements behind an aligned
/// place, and around which all is NaN.
template <int kBlock, class Tile, class T>
void check_load(bool vectors, int offset, int row_stride, int rows, int cols, int row0) {
  std::vector<T> source(offset + (row0 + Tile::kRows) * row_stride, attile::from_float<T>(kNan));
  const attile_test::Random random(3);
  for (int i = 0; i < rows * cols; ++i) {
    source[offset + i / cols * row_stride + i % cols] =
        attile::from_float<T>(small_integer(random, i));
  }
  DeviceMemory memory({{source.data(), source.size() * sizeof(T)}});
  REQUIRE(memory.error() == cudaSuccess);
  const T* const data = static_cast<const T*>(memory.device(source.data())) + offset;
  const attile::Tensor<const T> tensor{data, 0, 0, row_stride};
  const bool aligned = tile::tensor_param(tensor, cols).vectors;
  const tile::Matrix<const T> matrix{data, row_stride, rows, cols, aligned};
  CAPTURE(kBlock, Tile::kRows, Tile::kCols, Tile::kRowMajor, sizeof(T));
  CAPTURE(vectors, offset, row_stride, rows, cols, row0);
  CHECK(matrix.vectors == vectors);

  std::vector<float> out(Tile::kRows * Tile::kCols + kGuards, kNan);
  run(load_kernel<kBlock, Tile, T>, kBlock, kSharedBytes<Tile>, out, matrix, row0);
  const int wrong = first_wrong(out, Tile::kRows, Tile::kCols, [&](int r, int c) {
    const int row = row0 + r;
    return row < rows && c < cols ? small_integer(random, row * cols + c) : 0.0f;
  });
  CHECK(wrong == -1);
}

template <int kBlock, class Tile, class T>
void check_sources() {
  constexpr int kRows = Tile::kRows, kCols = Tile::kCols;
  constexpr int kStride = attile::round_up(kCols, 8) + 8, kWhole = kCols / 8 * 8;
  check_load<kBlock, Tile, T>(true, 0, kStride, 20 + kRows, kWhole, 20);
  check_load<kBlock, Tile, T>(true, 16, kStride, 20 + kRows / 2, kWhole, 20);
  check_load<kBlock, Tile, T>(kCols % (16 / sizeof(T)) == 0, 0, kStride, kRows, kCols, 0);
  check_load<kBlock, Tile, T>(false, 1, kStride, kRows, kCols, 0);
  check_load<kBlock, Tile, T>(false, 3, kStride + 1, 7 + kRows / 2, kCols - 1, 7);
  check_load<kBlock, Tile, T>(false, 0, kStride + 1, 7, kCols, 7);
}

template <int Rows, int Cols, int kBlock = kThreads>
void check_loads() {
  using ByRows = tile::SharedTile<Rows, Cols, Order::kRowMajor, Padding::kNone>;
  using ByColumns = tile::SharedTile<Rows, Cols, Order::kColumnMajor>;
  check_sources<kBlock, ByRows, float>();
  check_sources<kBlock, ByRows, __half>();
  check_sources<kBlock, ByColumns, float>();
  check_sources<kBlock, ByColumns, __half>();
}

/// What registers hold in `stage_kernel`: tells each element of a tile from the others.
ATTILE_HOST_DEVICE float place_value(int r, int c) { return static_cast<float>(1000 * r + c); }

template <class Registers, class Tile>
ATTILE_KERNEL void stage_kernel(float* out) {
  tile::SharedCarver carver{arch::dynamic_shared()};
  const Tile shared = take_poisoned<kThreads, Tile>(carver);
  Registers registers;
  registers.clear();
  registers.for_each([](int r, int c, float& x) { x = place_value(r, c); });
  tile::stage(shared, registers);
  arch::barrier();  // the tile is written before it is read
  write_out<kThreads>(shared, out);
}

template <class Registers, Order kOrder, Padding kPadding>
void check_stage() {
  constexpr int kRows = Registers::kRows, kCols = Registers::kCols;
  using Tile = tile::SharedTile<kRows, kCols, kOrder, kPadding>;
  std::vector<float> out(kRows * kCols + kGuards, kNan);
  run(stage_kernel<Registers, Tile>, kThreads, kSharedBytes<Tile>, out);
  CAPTURE(kRows, kCols, Registers::kRowRun, Registers::kColRun, static_cast<int>(kOrder));
  CHECK(first_wrong(out, kRows, kCols, place_value) == -1);
}

template <int Rows, int Cols, int kRowRun, int kColRun>
void check_orders() {
  using Registers = tile::RegisterTile<Rows, Cols, kRowLanes, kRowRun, kColRun>;
  check_stage<Registers, Order::kRowMajor, Padding::kOdd>();
  check_stage<Registers, Order::kColumnMajor, Padding::kNone>();
}

template <int Rows, int Cols>
void check_stages() {
  check_orders<Rows, Cols, 1, 1>();
  check_orders<Rows, Cols, 1, 4>();
  check_orders<Rows, Cols, 2, 2>();
  check_orders<Rows, Cols, 4, 4>();
}

TEST_CASE("products of column-major by row-major tiles are exact for integers") {
  check_products<Order::kColumnMajor, Order::kRowMajor, 57, 41, 33>();
  check_products<Order::kColumnMajor, Order::kRowMajor, 64, 64, 128>();
  check_products<Order::kColumnMajor, Order::kRowMajor, 1, 1, 1>();
}

TEST_CASE("products of row-major by row-major tiles are exact for integers") {
  check_products<Order::kRowMajor, Order::kRowMajor, 57, 41, 33>();
  check_products<Order::kRowMajor, Order::kRowMajor, 64, 64, 128>();
  check_products<Order::kRowMajor, Order::kRowMajor, 1, 1, 1>();
}

TEST_CASE("products of row-major by column-major tiles are exact for integers") {
  check_products<Order::kRowMajor, Order::kColumnMajor, 57, 41, 36>();
  check_products<Order::kRowMajor, Order::kColumnMajor, 64, 64, 128>();
  check_products<Order::kRowMajor, Order::kColumnMajor, 1, 1, 4>();
}

TEST_CASE("load fills a tile with what the source has, and zeros beyond") {
  check_loads<57, 44>();
  check_loads<64, 64>();
  check_loads<70, 128>();     // more than a thread reads at once
  check_loads<5, 256, 32>();  // a row has more vectors than the block threads
  check_loads<1, 4>();        // half a vector of fp16
}

TEST_CASE("stage writes a tile as the registers hold it") {
  check_stages<57, 41>();
  check_stages<64, 64>();
  check_stages<1, 1>();
}

}  // namespace kernel_matmul
