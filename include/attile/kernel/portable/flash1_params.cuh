// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/launch.cuh>
#include <attile/core/args.h>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/tensor.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/portable/forward_traits.cuh>
#include <attile/kernel/problem/problem.cuh>
#include <attile/tile/matrix.cuh>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace attile::portable {

/// Holds every constant of one FlashAttention-1 forward kernel: those of ForwardTraits, with shared
/// memory for P beside K, because K is still needed for the next rows of Q.
template <int Br, int Bc, int D, class E, class P, int Dv, class TuningType = Tuning<>>
struct Flash1ForwardTraits : ForwardTraits<Br, Bc, D, E, P, Dv, TuningType> {
  using Base = ForwardTraits<Br, Bc, D, E, P, Dv, TuningType>;
  using Params = ForwardParams<Flash1ForwardTraits>;

  /// Tiles of Q that a block takes through all tiles of K and V; rows need nothing of each other.
  /// They are few enough that Q, O, l and m of the rows of all running blocks stay in the L2 cache,
  /// where whole heads do not, and enough to share the reading of K and V.
  static constexpr int kSlabTiles = 4;
  /// Whether the sums of O, which are fp32, are kept in args.o between tiles of K and V.
  static constexpr bool kSumsInOutput = std::is_same_v<typename E::Q, float>;
  static constexpr std::size_t kSharedBytes =
      Base::QTile::kBytes + Base::KTile::kBytes + Base::PTile::kBytes + Base::VTile::kBytes;
  static_assert(kSharedBytes <= arch::kMaxSharedBytes,
                "attile::flash1::ForwardTraits: the tiles of Q, K, V and P take more than the "
                "232448 bytes of shared memory that a block can have; choose a smaller Br or Bc");
  static_assert(E::kAllEqual,
                "attile::flash1: keys and values in fp8 are for the kernels of attile::forward");
  static_assert(!kIsPaged<typename P::SequencesType>,
                "attile::flash1: keys in pages are for the kernels of attile::forward");
  static_assert(!kIsEarlierKeys<typename P::SinkType>,
                "attile::flash1: EarlierKeys are for the kernels of attile::forward");
};

/// Holds the caller's device pointers to what Algorithm 2 stores besides O, for Algorithm 4.
struct Flash1State {
  float* l = nullptr;  ///< dense (batch, q_heads, q_len): sum of exp(S' - m); 0: empty row
  float* m = nullptr;  ///< the same shape: the largest S', natural units; -inf: empty row
  std::uint64_t* rng = nullptr;  ///< seed and offset that PhiloxDropout drew from; null: not wanted
};

/// Says whether a dropout draws from a seed and an offset that can be saved.
template <class P>
inline constexpr bool kHasSavedState = requires(const P& dropout) {
  { dropout.current_seed() } -> std::convertible_to<std::uint64_t>;
  { dropout.current_offset() } -> std::convertible_to<std::uint64_t>;
};

/// Holds the one argument of the FlashAttention-1 forward kernel.
template <class Traits>
struct Flash1Params : Problem<Traits> {
  tile::TensorParam<float> sums;  ///< O between two tiles of K and V; may be the memory of O
  RowTensor<float> l, m;          ///< Flash1State's
  std::uint64_t* rng;
  int slabs;  ///< of each sequence and query head

  Flash1Params(const typename Traits::Args& args, const Tensor<float>& o_sums,
               const Flash1State& state)
      : Problem<Traits>(args),
        sums(tile::tensor_param(o_sums, this->head_dim_v)),
        l(per_row(args, state.l)),
        m(per_row(args, state.m)),
        rng(state.rng),
        slabs(ceil_div(args.q_len, Traits::kBr * Traits::kSlabTiles)) {}

  /// Returns the work tile of a block, with the first row of its slab. Slabs are counted through
  /// all heads of one sequence after another.
  ATTILE_DEVICE WorkTile slab(int block) const {
    const int batch_head = block / slabs;
    WorkTile at;
    at.sequence = batch_head / this->q_heads;
    at.head = batch_head % this->q_heads;
    at.kv_head = at.head / this->group_heads;
    at.row0 = block % slabs * Traits::kSlabTiles * Traits::kBr;
    this->read_lengths(at);
    return at;
  }
};

}  // namespace attile::portable
