// SPDX-License-Identifier: MIT
#include "compare.cuh"

template algorithms::Result algorithms::compare<float, 128, attile::NoMask>(const Problem&,
                                                                            const Options&);
