// SPDX-License-Identifier: MIT
// promises: attile: there are no gradients of a cache
// promises: attile::flash1: keys in pages are for the kernels of attile::forward
// promises: attile: append writes into a cache
// promises: attile: append takes Q, K and V of one element type
#include <attile/append.cuh>
#include <attile/backward.cuh>
#include <attile/flash1.cuh>

attile::BackwardArgs<float, attile::Cached> of_pieces;
attile::BackwardArgs<__half, attile::Causal, attile::PagedPacked> of_pages;
attile::flash1::ForwardTraits<32, 32, 64, float, attile::Paged>::Args flash1;
attile::AppendArgs<float, attile::Packed> of_rows;
attile::AppendArgs<attile::Elements<__half, float>, attile::Cached> of_types;
