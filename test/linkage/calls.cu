// SPDX-License-Identifier: MIT
// Instantiates the host's side of calls whose kernels compile fast, so that the compiler also warns
// of what is in templates. A training step's calls are in examples/06_training_step.cu.
#include <attile/attile.cuh>

namespace calls {

using E4m3 = __nv_fp8_e4m3;
using Fp8 = attile::Elements<E4m3, E4m3, E4m3, __nv_bfloat16>;
using NewKeys = attile::AppendArgs<__half, attile::PagedPacked, attile::Rotary<float>>;

cudaError_t append(const NewKeys& args) { return attile::append(args); }
cudaError_t merge(const attile::MergeArgs<__half>& args) { return attile::merge(args); }
cudaError_t quantize(const attile::QuantizeArgs<__nv_bfloat16, Fp8>& args) {
  return attile::quantize(args);
}
cudaError_t prepare(void* table, std::size_t bytes, const attile::SortedIds& source) {
  return attile::prepare(table, bytes, source, nullptr);
}
cudaError_t prepare(void* table, std::size_t bytes, const attile::SeenIntervals& source) {
  return attile::prepare(table, bytes, source, nullptr);
}

}  // namespace calls
