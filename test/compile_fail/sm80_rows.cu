// SPDX-License-Identifier: MIT
// promises: attile::sm80::ForwardTraits: Br must be a multiple of 16
// promises: attile::sm80::ForwardTraits: Bc must be a multiple of 16
// promises: attile::sm80::ForwardTraits: Br must be a multiple of 16 rows for each warp
// promises: attile::sm80::ForwardTraits: Bc must be a multiple of 16 for each of the warps_n
// promises: attile::sm80::ForwardTraits: Br must be a multiple of the warps
// promises: attile::sm80::ForwardTraits: the warps must be a multiple of the warps_n
// promises: attile::tile::RowWarps: at most 15 groups
#include <attile/forward.cuh>

attile::ForwardTraits<57, 64, 64, __half>::Args rows;
attile::ForwardTraits<64, 57, 64, __half>::Args columns;
attile::ForwardTraits<64, 64, 64, __half, attile::NoMask, attile::NoScoreMod, attile::NoDropout, 64,
                      attile::sm80::Tuning<attile::sm80::TuningValues{.warps = 3}>>::Args warps;
attile::ForwardTraits<64, 48, 64, __half, attile::NoMask, attile::NoScoreMod, attile::NoDropout, 64,
                      attile::sm80::Tuning<attile::sm80::TuningValues{.warps = 4, .warps_n = 2}>>::
    Args columns_across;
attile::ForwardTraits<
    32, 96, 64, __half, attile::NoMask, attile::NoScoreMod, attile::NoDropout, 64,
    attile::sm80::Tuning<attile::sm80::TuningValues{.warps = 6, .warps_n = 3}>>::Args rows_across;
attile::ForwardTraits<
    32, 64, 64, __half, attile::NoMask, attile::NoScoreMod, attile::NoDropout, 64,
    attile::sm80::Tuning<attile::sm80::TuningValues{.warps = 1, .warps_n = 2}>>::Args warps_across;
attile::ForwardTraits<
    256, 32, 64, __half, attile::NoMask, attile::NoScoreMod, attile::NoDropout, 64,
    attile::sm80::Tuning<attile::sm80::TuningValues{.warps = 32, .warps_n = 2}>>::Args lines;
