// SPDX-License-Identifier: MIT
// A mask and a modifier without ATTILE_HOST_DEVICE, also where another one joins them.
// error: Lower::visible
// error: is undefined in device code
// error: Halve::operator ()
// error: is undefined in device code
// promises: mask_wants_ATTILE_HOST_DEVICE
// promises: modifier_wants_ATTILE_HOST_DEVICE
#include <attile/attile.cuh>

// The headers are often those of a system, where nvcc's warnings are silent.
#pragma nv_diag_suppress 20011

struct Lower {
  bool visible(attile::ScoreIndex i, attile::Extent) const { return i.col <= i.row; }
};
struct Halve {
  template <class Real>
  attile::ModifiedScore<Real> operator()(Real s, attile::ScoreIndex, attile::Extent) const {
    return {s / 2, Real(0.5)};
  }
};

using Masked = attile::ForwardArgs<__half, attile::And<attile::Causal, Lower>>;
cudaError_t masked(const Masked& args) { return attile::forward<64>(args); }
using Modified = attile::BackwardArgs<__half, Halve>;
cudaError_t modified(void* memory, std::size_t bytes, const Modified& args) {
  return attile::backward<64>(memory, bytes, args);
}
