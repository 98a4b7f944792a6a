// SPDX-License-Identifier: MIT
// promises: attile: EarlierKeys are for ForwardArgs alone
// promises: one sequences policy and one sink, or EarlierKeys: join two masks by And
// promises: attile: merge takes the results of earlier keys as one of its parts
// promises: attile: the kernels take Q, K, V and O of one element type
// promises: attile::flash1: EarlierKeys are for the kernels
#include <attile/backward.cuh>
#include <attile/flash1.cuh>
#include <attile/forward.cuh>
#include <attile/merge.cuh>

using Earlier = attile::EarlierKeys<>;
attile::BackwardArgs<float, Earlier> backward;
attile::ForwardArgs<float, attile::Sink<>, Earlier> both;
attile::MergeArgs<float, float, attile::Uniform, Earlier> merge;
attile::ForwardTraits<64, 64, 64, attile::Elements<float, float, float, __half>>::Args narrower;
attile::flash1::ForwardTraits<32, 32, 64, float, Earlier>::Args flash1;
