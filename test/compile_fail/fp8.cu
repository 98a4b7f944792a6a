// SPDX-License-Identifier: MIT
// promises: attile: there are no gradients of queries, keys and values in fp8
// promises: attile: the kernels take Q, K, V and O of one element type
// promises: attile::sm90::ForwardTraits: Q, K and V of one element type
// promises: attile::flash1: keys and values in fp8 are for the kernels of attile::forward
// promises: attile::sm80::DecodeTraits: decode takes queries of 16 bits
// promises: attile: Fp8Sums::kUnpromoted is for Q, K and V in fp8
// promises: attile: append takes Q, K and V of one element type, or K and V in fp8
#include <attile/append.cuh>
#include <attile/backward.cuh>
#include <attile/decode.cuh>
#include <attile/flash1.cuh>
#include <attile/forward.cuh>

using E4m3 = __nv_fp8_e4m3;
using Half = attile::Elements<__half, E4m3, E4m3>;
using All = attile::Elements<E4m3, E4m3, E4m3, __half>;
using Policies = attile::Policies<>;

attile::BackwardArgs<Half> gradients;
attile::ForwardTraits<64, 64, 64, attile::Elements<float, E4m3, E4m3>>::Args fp32_queries;
attile::sm90::ForwardTraits<128, 128, 64, Half, Policies, 64>::Args sm90;
attile::DecodeTraits<16, 64, 64, All>::Args decode;
attile::Elements<E4m3, E4m3, __half, __half, attile::Fp8Sums::kUnpromoted> unpromoted;
attile::ForwardTraits<64, 64, 64, attile::Elements<E4m3, __half, __half, __half>>::Args fp8_queries;
attile::flash1::ForwardTraits<32, 32, 64, Half>::Args flash1;
attile::AppendArgs<attile::Elements<float, E4m3, E4m3>, attile::Cached> fp32_rows;
