// SPDX-License-Identifier: MIT
// What callers get wrong is one error each, whose line says what is wanted.
// error: attile: forward<D>(args, stream) wants D, the largest head_dim that its kernel takes
// error: attile: backward<D>(workspace, workspace_bytes, args, stream) wants D
// error: attile: forward<D> takes ForwardArgs, not BackwardArgs
// error: attile: backward<D> takes BackwardArgs, not ForwardArgs
// error: attile: backward<D>(workspace, workspace_bytes, args, stream) wants scratch memory before
// error: attile: workspace_bytes is a variable of type std::size_t
// error: attile: workspace_bytes is a variable of type std::size_t
// error: attile: backward<D, Dv, mode> has Dv before the mode: backward<64, 64, attile::DqMode::
// error: attile: workspace_size<D, Dv, mode> has Dv before the mode
// error: attile: traits and arguments have different policies
// error: attile: traits and arguments have different element types
// error: attile: ForwardTraits take ForwardArgs, and BackwardTraits BackwardArgs
// error: attile: traits and arguments have different policies
// error: attile: traits and arguments have different element types
#include <attile/attile.cuh>

using Forward = attile::ForwardArgs<float>;
using Backward = attile::BackwardArgs<float>;

cudaError_t without_d(const Forward& args) { return attile::forward(args); }
cudaError_t without_d(void* memory, std::size_t bytes, const Backward& args) {
  return attile::backward(memory, bytes, args);
}

cudaError_t other_pass(const Backward& args) { return attile::forward<64>(args); }
cudaError_t other_pass(void* memory, std::size_t bytes, const Forward& args) {
  return attile::backward<64>(memory, bytes, args);
}

cudaError_t arguments_first(void* memory, std::size_t bytes, const Backward& args) {
  return attile::backward<64>(args, memory, bytes);
}
cudaError_t no_size(void* memory, int bytes, const Backward& args) {
  return attile::backward<64>(memory, bytes, args);
}
cudaError_t no_variable(void* memory, std::size_t* bytes, const Backward& args) {
  return attile::backward<64>(memory, bytes, args);
}

constexpr auto kInOrder = attile::DqMode::kInOrder;
cudaError_t mode_for_dv(void* memory, std::size_t bytes, const Backward& args) {
  return attile::backward<64, kInOrder>(memory, bytes, args);
}
std::size_t mode_for_dv(const Backward& args) {
  return attile::workspace_size<64, kInOrder>(args).bytes;
}

using OfCausal = attile::ForwardTraits<64, 64, 64, float, attile::Causal>;
using OfHalf = attile::ForwardTraits<64, 64, 64, __half>;
using OfBackward = attile::BackwardTraits<64, 64, 64, float>;
using OfHalfBackward = attile::BackwardTraits<64, 64, 64, __half>;
cudaError_t other_mask(const Forward& args) { return attile::forward<OfCausal>(args); }
attile::Check other_type(const Forward& args) { return attile::check<OfHalf>(args); }
cudaError_t traits_of_other_pass(const Forward& args) { return attile::forward<OfBackward>(args); }
cudaError_t other_mask(void* memory, std::size_t bytes,
                       const attile::BackwardArgs<float, attile::Causal>& args) {
  return attile::backward<OfBackward>(memory, bytes, args);
}
attile::WorkspaceSize other_type(const Backward& args) {
  return attile::workspace_size<OfHalfBackward>(args);
}
