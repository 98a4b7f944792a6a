// SPDX-License-Identifier: MIT
// promises: attile::sm80::ForwardTraits: fp32 is not in this family yet; fp16 and bf16 are
#include <attile/forward.cuh>

attile::ForwardTraits<64, 64, 64, float, attile::NoMask, attile::NoScoreMod, attile::NoDropout, 64,
                      attile::sm80::Tuning<>>::Args args;
