// SPDX-License-Identifier: MIT
// error: attile: D and Dv, as in forward<D, Dv>, must be 1 to 256
// error: attile: D and Dv, as in forward<D, Dv>, must be 1 to 256
// error: attile: D and Dv, as in forward<D, Dv>, must be 1 to 256
#include <attile/attile.cuh>

cudaError_t forward(const attile::ForwardArgs<__half>& args) { return attile::forward<264>(args); }
cudaError_t backward(void* memory, std::size_t bytes, const attile::BackwardArgs<float>& args) {
  return attile::backward<64, 0>(memory, bytes, args);
}
cudaError_t decode(const attile::ForwardArgs<__half>& args) {
  return attile::decode<64, 320>(args);
}
