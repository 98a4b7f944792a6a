// SPDX-License-Identifier: MIT
// attend: attention of the tensors in .npy files, forward and backward, on the GPU or the CPU.
// `attend --help` says how it is called.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "accuracy.h"
#include "inputs.h"
#include "options.h"
#include "outputs.h"
#include "problem.h"
#include "report.h"
#include "run.h"

namespace attend {
namespace {

constexpr int kExitDone = 0, kExitBeyondBound = 1, kExitFailed = 2, kExitUsage = 64;

/// Runs on the device that the options name; `--device auto` falls back to the CPU and says why.
template <class T>
Run run(const Options& options, const Problem& problem, Tensors<T>& tensors) {
  if (options.device == Device::kCpu) return run_on_cpu(problem, tensors);
  const std::string why_not = why_no_gpu();
  if (why_not.empty()) return run_on_gpu(problem, tensors);
  Run result = run_on_cpu(problem, tensors);
  result.device += " (no GPU: " + why_not + ")";
  return result;
}

/// The whole job in T.
template <class T>
int attend_as(const Options& options, const Inputs& inputs, const Problem& problem) {
  Tensors<T> tensors = make_tensors<T>(options, inputs, problem);
  OutputFiles outputs(options);
  const Run result = run(options, problem, tensors);
  outputs.write(problem, tensors);

  print_problem(problem, attile::element_name<T>());
  print_run(problem, result);
  if (!options.expect.empty()) {
    print_errors(options.expect, {error_against(inputs.expect.values, tensors)});
  }
  if (!options.check) return kExitDone;
  const bool within = print_errors("fp64", errors_against_fp64(problem, tensors, result));
  if (!within) std::fprintf(stderr, "attend: an error is beyond the bound of the contract.\n");
  return within ? kExitDone : kExitBeyondBound;
}

int run_command(const Options& options) {
  if (options.help) {
    std::printf("%s\n%s", kUsage, kHelp);
    return kExitDone;
  }
  if (options.device == Device::kCuda) {
    const std::string why_not = why_no_gpu();
    if (!why_not.empty()) throw npy::Error("--device cuda needs a GPU: " + why_not + ".");
  }
  const Inputs inputs = read_inputs(options);
  const Problem problem = make_problem(options, inputs);
  switch (options.dtype) {
    case Dtype::kFp16:
      return attend_as<__half>(options, inputs, problem);
    case Dtype::kBf16:
      return attend_as<__nv_bfloat16>(options, inputs, problem);
    default:
      return attend_as<float>(options, inputs, problem);
  }
}

}  // namespace
}  // namespace attend

int main(int argc, char** argv) {
  try {
    return attend::run_command(attend::parse(argc, argv));
  } catch (const attend::UsageError& error) {
    std::fprintf(stderr, "attend: %s\n%s", error.what(), attend::kUsage);
    return attend::kExitUsage;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "attend: There is not enough memory for these tensors.\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "attend: %s\n", error.what());
  }
  return attend::kExitFailed;
}
