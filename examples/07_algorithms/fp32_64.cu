// SPDX-License-Identifier: MIT
#include "compare.cuh"

template algorithms::Result algorithms::compare<float, 64, attile::NoMask>(const Problem&,
                                                                           const Options&);
