// SPDX-License-Identifier: MIT
// The caller's launch: grid, block, shared memory and the kernel's parameter come from public
// functions, and `<<<>>>` is the caller's. Captured into a CUDA graph and replayed.
#include <attile/attile.cuh>

#include "support.cuh"

int main() {
  example::need_gpu();
  constexpr int kHeads = 4, kLen = 777, kDim = 128;
  using Kernel = attile::ForwardTraits<64, 64, kDim, __nv_bfloat16, attile::SlidingWindow>;

  const std::size_t size = kHeads * kLen * kDim;
  const example::DeviceArray<__nv_bfloat16> q(example::normal<__nv_bfloat16>(size, 1));
  const example::DeviceArray<__nv_bfloat16> k(example::normal<__nv_bfloat16>(size, 2));
  const example::DeviceArray<__nv_bfloat16> v(example::normal<__nv_bfloat16>(size, 3));
  const example::DeviceArray<__nv_bfloat16> o(size), o_library(size);
  Kernel::Args args{
      .q = attile::bhsd<const __nv_bfloat16>(q.get(), {.rows = kLen, .heads = kHeads, .dim = kDim}),
      .k = attile::bhsd<const __nv_bfloat16>(k.get(), {.rows = kLen, .heads = kHeads, .dim = kDim}),
      .v = attile::bhsd<const __nv_bfloat16>(v.get(), {.rows = kLen, .heads = kHeads, .dim = kDim}),
      .o = attile::bhsd(o.get(), {.rows = kLen, .heads = kHeads, .dim = kDim}),
      .batch = 1,
      .q_heads = kHeads,
      .kv_heads = kHeads,
      .q_len = kLen,
      .kv_len = kLen,
      .mask = {.left = 100, .right = 0},
  };
  if (const attile::Check ok = attile::check<Kernel>(args); !ok) {
    std::fprintf(stderr, "attention: %s\n", ok.why);
    return 1;
  }
  example::must(attile::forward_prepare<Kernel>(), "forward_prepare");

  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  example::must(cudaStreamCreate(&stream), "cudaStreamCreate");
  example::must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin capture");
  attile::forward_kernel<Kernel>
      <<<attile::forward_blocks<Kernel>(args), attile::forward_threads<Kernel>(),
         attile::forward_shared_bytes<Kernel>(), stream>>>(attile::forward_params<Kernel>(args));
  example::must(cudaGetLastError(), "launch");
  example::must(cudaStreamEndCapture(stream, &graph), "end capture");
  example::must(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  for (int i = 0; i < 3; ++i) example::must(cudaGraphLaunch(executable, stream), "replay");
  example::must(cudaStreamSynchronize(stream), "the kernel");

  args.o = attile::bhsd(o_library.get(), {.rows = kLen, .heads = kHeads, .dim = kDim});
  example::must(attile::forward<Kernel>(args, stream), "forward");
  example::must(cudaStreamSynchronize(stream), "the kernel");
  std::vector<float> mine, theirs;
  for (const auto x : o.download()) mine.push_back(attile::to_float(x));
  for (const auto x : o_library.download()) theirs.push_back(attile::to_float(x));
  const bool ok = example::report("O", example::max_difference(mine, theirs), 0.0);

  example::must(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
  example::must(cudaGraphDestroy(graph), "cudaGraphDestroy");
  example::must(cudaStreamDestroy(stream), "cudaStreamDestroy");
  return ok ? 0 : 1;
}
