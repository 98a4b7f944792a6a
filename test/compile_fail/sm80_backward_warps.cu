// SPDX-License-Identifier: MIT
// promises: attile::sm80::BackwardTraits: Br and Bc must be multiples of 16
// promises: attile::sm80::BackwardTraits: Bc must be a multiple of 16 rows of dK and dV for each of
// promises: attile::sm80::BackwardTraits: Br must be a multiple of 16 for each of the warps_n warps
// promises: attile::sm80::BackwardTraits: Br must be a multiple of 16 rows of dQ for each of warps
// promises: attile::sm80::BackwardTraits: a warp has at most 128 rows of dQ, 64 in fp32
#include <attile/backward.cuh>

using attile::sm80::BackwardTuning;
using attile::sm80::BackwardTuningValues;

template <int Br, int Bc, class T, class Tuning>
using Traits = attile::BackwardTraits<Br, Bc, 64, T, attile::NoMask, attile::NoScoreMod,
                                      attile::NoDropout, 64, attile::DqMode::kAccumulate, Tuning>;

Traits<57, 64, __half, BackwardTuning<>>::Args tiles;
Traits<64, 48, __half,
       BackwardTuning<BackwardTuningValues{.warps = 4, .warps_n = 1, .dq_warps_n = 4}>>::Args
    key_rows;
Traits<48, 64, __half,
       BackwardTuning<BackwardTuningValues{.warps = 4, .warps_n = 2, .dq_warps_n = 4}>>::Args
    columns;
Traits<48, 64, __half,
       BackwardTuning<BackwardTuningValues{.warps = 4, .warps_n = 1, .dq_warps_n = 2}>>::Args
    query_rows;
Traits<256, 16, __half, BackwardTuning<>>::Args too_many;
Traits<128, 16, float, BackwardTuning<>>::Args too_many_in_fp32;
