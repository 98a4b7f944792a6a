// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/tensor_map.cuh>
#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/status.h>
#include <attile/kernel/backward/backward_params.cuh>
#include <attile/kernel/sm90/backward_traits.cuh>
#include <attile/kernel/sm90/boxed.cuh>
#include <attile/kernel/sm90/element_tiles.cuh>
#include <attile/kernel/sm90/modifier_words.cuh>

namespace attile::sm90 {

/// Describes Q, K, V, dO, dK and dV as TMA addresses them.
template <class Traits>
struct BoxedGradients {
  arch::BoxedTensor q, k, v, dout, dk, dv, elements{};
  bool has_keys, has_rows;  ///< whether K and V, and whether Q, have any rows
  Check words;              ///< what `check_words` says

  explicit BoxedGradients(const typename Traits::Args& a)
      : BoxedGradients(a, head_dims(a, Traits::kD, Traits::kDv)) {}

  /// Refuses tensors that TMA cannot address, or past whose rows it would write.
  Check check() const {
    if (!has_keys) return {};
    const bool keys =
        arch::boxable(k) && arch::boxable(v) && arch::boxable(dk) && arch::boxable(dv);
    const bool rows = !has_rows || (arch::boxable(q) && arch::boxable(dout));
    if (!keys || !rows) return not_boxable(Direction::kBackward);
    if (Traits::kElementStages > 0 && has_rows) {
      if (const Check copies = check_elements(elements); !copies) return copies;
    }
    if (has_rows && !words) return words;
    return arch::storable(dk) && arch::storable(dv) ? Check{} : not_storable(Direction::kBackward);
  }

 private:
  using T = typename Traits::ElementType;
  using Boxes = SequenceBoxes<typename Traits::SequencesType>;

  BoxedGradients(const typename Traits::Args& a, HeadDims dims)
      : q(of_rows<typename Traits::QTile>(a, a.q, dims.qk, Boxes::kQ)),
        k(of_keys<typename Traits::KTile>(a, a.k, dims.qk, Boxes::kKv)),
        v(of_keys<typename Traits::VTile>(a, a.v, dims.v, Boxes::kKv)),
        dout(of_rows<typename Traits::DoTile>(a, a.dout, dims.v, Boxes::kO)),
        dk(of_keys<typename Traits::DkTile>(a, a.dk, dims.qk, Boxes::kDk)),
        dv(of_keys<typename Traits::DvTile>(a, a.dv, dims.v, Boxes::kDv)),
        has_keys(a.batch > 0 && longest_lengths(a).kv_len > 0),
        has_rows(a.batch > 0 && longest_lengths(a).q_len > 0),
        words(check_words<Traits::kWords, Direction::kBackward>(a.score_mod)) {
    if constexpr (Traits::kElementStages > 0) {
      elements = boxed_elements<typename Traits::ElementTile, !Traits::kCopiesElements>(
          a.score_mod.elements(), score_shape(a));
    }
  }

  template <class Tile, class Data>
  static arch::BoxedTensor of_rows(const typename Traits::Args& a, const Tensor<Data>& t, int dim,
                                   typename Boxes::Map map) {
    const RowShape shape = a.sequences.q_shape(a.batch, a.q_len);
    return Boxes(a, a.q_heads, a.kv_heads).of(map, boxed<Tile, T>(t, shape, a.q_heads, dim));
  }
  template <class Tile, class Data>
  static arch::BoxedTensor of_keys(const typename Traits::Args& a, const Tensor<Data>& t, int dim,
                                   typename Boxes::Map map) {
    const RowShape shape = a.sequences.kv_shape(a.batch, a.kv_len);
    return Boxes(a, a.q_heads, a.kv_heads).of(map, boxed<Tile, T>(t, shape, a.kv_heads, dim));
  }
};

/// The one argument of the kernels. It adds the tensor maps to BackwardParams.
template <class Traits>
struct TmaBackwardParams : BackwardParams<Traits> {
  arch::TensorMap q_map{}, k_map{}, v_map{}, do_map{}, dk_map{}, dv_map{};
  [[no_unique_address]] ElementMap<(Traits::kElementStages > 0)> elements;
  using Boxes = SequenceBoxes<typename Traits::SequencesType>;
  [[no_unique_address]] Boxes boxes;

  TmaBackwardParams(const typename Traits::Args& args, void* workspace, const float* l_of_rows)
      : BackwardParams<Traits>(args, workspace, l_of_rows),
        boxes(args, args.q_heads, args.kv_heads) {}

  /// Return the coordinates of a work tile's rows of Q, or of dO, and of its keys of K and V, dK or
  /// dV, from key `key0` on.
  ATTILE_DEVICE arch::TmaCoord rows(typename Boxes::Map map, const WorkTile& at) const {
    return boxes.rows(map, at, at.head);
  }
  ATTILE_DEVICE arch::TmaCoord keys(typename Boxes::Map map, const WorkTile& at, int key0) const {
    return boxes.keys(map, at, key0);
  }

  /// Makes the tensor maps.
  /// Errors   the reasons of BoxedGradients::check, and those of arch::make_map.
  [[nodiscard]] Check complete(const typename Traits::Args& args) {
    const BoxedGradients<Traits> boxed(args);
    const Check copies = boxed.check();
    return copies ? check_maps(make_maps(boxed)) : copies;
  }

 private:
  [[nodiscard]] cudaError_t make_maps(const BoxedGradients<Traits>& boxed) {
    if (!boxed.has_keys) return cudaSuccess;  // nothing is read
    if (const cudaError_t error = arch::make_map(k_map, boxed.k)) return error;
    if (const cudaError_t error = arch::make_map(v_map, boxed.v)) return error;
    if (const cudaError_t error = arch::make_map(dk_map, boxed.dk)) return error;
    if (const cudaError_t error = arch::make_map(dv_map, boxed.dv)) return error;
    if (!boxed.has_rows) return cudaSuccess;
    if constexpr (Traits::kElementStages > 0) {
      if (const cudaError_t error = elements.make(boxed.elements)) return error;
    }
    if (const cudaError_t error = arch::make_map(q_map, boxed.q)) return error;
    return arch::make_map(do_map, boxed.dout);
  }
};

}  // namespace attile::sm90
