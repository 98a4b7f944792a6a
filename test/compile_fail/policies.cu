// SPDX-License-Identifier: MIT
// error: attile: no Mask: it wants ATTILE_HOST_DEVICE bool visible(ScoreIndex, Extent) const
// error: attile: no ScoreMod: it wants template <class Real> ATTILE_HOST_DEVICE ModifiedScore<Real>
// error: attile: no ScoreMod: it wants template <class Real> ATTILE_HOST_DEVICE ModifiedScore<Real>
// error: attile: no policy: a Mask has visible, a ScoreMod operator(), and a Dropout, a Sequences
// error: attile: And<A, B> joins two masks, and one of these is no Mask
// error: attile: Then<A, B> joins two score modifiers, and one of these is no ScoreMod
// error: attile: BlockSparse<M> is about a mask M, and this is no Mask
// error: attile: Q, K, V and O are of one type of float, __half and __nv_bfloat16
// error: attile: Q, K, V and O are of one type of float, __half and __nv_bfloat16
#include <attile/forward.cuh>

struct Lower {
  bool visible(int row, int col) const { return col <= row; }
};
struct Halve {
  float operator()(float s) const { return s / 2; }
};
struct HalveAny {
  template <class Real>
  ATTILE_HOST_DEVICE attile::ModifiedScore<Real> operator()(Real s, attile::ScoreIndex) const {
    return {s / 2, Real(0.5)};
  }
};
struct Nothing {};

attile::ForwardArgs<float, Lower> mask;
attile::ForwardArgs<float, attile::NoMask, Halve> score_mod;
attile::ForwardTraits<64, 64, 64, __half, HalveAny>::Args score_mod_of_traits;
attile::ForwardArgs<float, Nothing> nothing;
attile::ForwardArgs<float, attile::And<attile::Causal, Lower>> joined;
attile::ForwardArgs<float, attile::Then<attile::Softcap, Halve>> in_a_row;
attile::ForwardArgs<float, attile::BlockSparse<Lower>> blocks;
attile::ForwardTraits<64, 64, 64, double>::Args element;
attile::ForwardArgs<__nv_fp8_e4m3> element_of_o;
