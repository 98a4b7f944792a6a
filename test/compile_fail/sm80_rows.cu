// SPDX-License-Identifier: MIT
// promises: attile::sm80::ForwardTraits: Br must be a multiple of 16
// promises: attile::sm80::ForwardTraits: Bc must be a multiple of 16
// promises: attile::sm80::ForwardTraits: Br must be a multiple of 16 rows for each warp
// promises: attile::sm80::ForwardTraits: Bc must be a multiple of 16 for each of the WarpsN
// promises: attile::sm80::ForwardTraits: Br must be a multiple of the warps
// promises: attile::sm80::ForwardTraits: the warps must be a multiple of the WarpsN
// promises: attile::tile::RowWarps: at most 15 groups
#include <attile/forward.cuh>

attile::ForwardTraits<57, 64, 64, __half>::Args rows;
attile::ForwardTraits<64, 57, 64, __half>::Args columns;
attile::ForwardTraits<64, 64, 64, __half, attile::NoMask, attile::NoScoreMod, attile::NoDropout, 64,
                      attile::sm80::Tuning<3>>::Args warps;
attile::ForwardTraits<64, 48, 64, __half, attile::NoMask, attile::NoScoreMod, attile::NoDropout, 64,
                      attile::sm80::Tuning<4, 2>>::Args columns_across;
attile::ForwardTraits<32, 96, 64, __half, attile::NoMask, attile::NoScoreMod, attile::NoDropout, 64,
                      attile::sm80::Tuning<6, 3>>::Args rows_across;
attile::ForwardTraits<32, 64, 64, __half, attile::NoMask, attile::NoScoreMod, attile::NoDropout, 64,
                      attile::sm80::Tuning<1, 2>>::Args warps_across;
attile::ForwardTraits<256, 32, 64, __half, attile::NoMask, attile::NoScoreMod, attile::NoDropout,
                      64, attile::sm80::Tuning<32, 2>>::Args lines;
