// SPDX-License-Identifier: MIT
#include "compare.cuh"

template algorithms::Result algorithms::compare<__half, 64, attile::NoMask>(const Problem&,
                                                                            const Options&);
