// SPDX-License-Identifier: MIT
// promises: attile::sm80::ForwardTraits: Products::k1xTf32 is of fp32
// promises: attile::sm80::BackwardTraits: Products::k1xTf32 is of fp32
#include <attile/backward.cuh>
#include <attile/forward.cuh>

using attile::sm80::Products;

attile::ForwardTraits<
    64, 64, 64, __half, attile::NoMask, attile::NoScoreMod, attile::NoDropout, 64,
    attile::sm80::Tuning<attile::sm80::TuningValues{.products = Products::k1xTf32}>>::Args forward;
attile::BackwardTraits<64, 64, 64, __half, attile::NoMask, attile::NoScoreMod, attile::NoDropout,
                       64, attile::DqMode::kAccumulate,
                       attile::sm80::BackwardTuning<attile::sm80::BackwardTuningValues{
                           .products = Products::k1xTf32}>>::Args backward;
