// SPDX-License-Identifier: MIT
// attend: attention of the tensors in .npy files, forward and backward, on the GPU or the CPU.
// `attend --help` says how it is called.
#include <attile/version.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdio>
#include <exception>
#include <new>
#include <optional>
#include <string>

#include "accuracy.h"
#include "inputs.h"
#include "map.h"
#include "options.h"
#include "outputs.h"
#include "problem.h"
#include "report.h"
#include "run.h"

namespace attend {
namespace {

constexpr int kExitDone = 0, kExitBeyondBound = 1, kExitFailed = 2, kExitUsage = 64;

/// The name of the device that the options name, and whether that is the GPU. `--device auto` falls
/// back to the CPU and says why.
struct Place {
  bool gpu = false;
  std::string name;
};

Place choose_device(Device wanted) {
  if (wanted == Device::kCpu) return {false, cpu_name()};
  const std::string why_not = why_no_gpu();
  if (why_not.empty()) return {true, gpu_name()};
  if (wanted == Device::kAuto) return {false, cpu_name() + " (no GPU: " + why_not + ")"};
  throw npy::Error("--device cuda needs a GPU: " + why_not + "; --device cpu needs none.");
}

/// The whole job in T.
template <class T>
int attend_as(const Options& options, const Inputs& inputs, const Problem& problem,
              const Place& place) {
  Tensors<T> tensors = make_tensors<T>(options, inputs, problem);
  std::optional<Map> map;
  if (!options.map.empty()) map = make_map(options, problem);
  OutputFiles outputs(options);
  for (const std::string& sentence : oddities(options, inputs, problem)) {
    std::fprintf(stderr, "attend: %s\n", sentence.c_str());
  }

  print_heading(problem, attile::element_name<T>(), place.name);
  const Pace pace{options.repeat, options.progress};
  const Run result =
      place.gpu ? run_on_gpu(problem, tensors, pace) : run_on_cpu(problem, tensors, pace);
  if (map) weigh(*map, problem, tensors);
  outputs.write(problem, tensors, map ? svg(*map) : "");

  print_run(problem, result);
  bool within = true;
  if (!options.expect.empty()) {
    print_errors(options.expect, {error_against(inputs.expect.values, tensors)});
  }
  if (options.check) {
    within = print_errors("fp64", errors_against_fp64(problem, tensors, result, pace));
  }
  if (map) print_map(options.map, *map);
  if (!within) std::fprintf(stderr, "attend: an error is beyond the bound of the contract.\n");
  return within ? kExitDone : kExitBeyondBound;
}

int run_command(const Options& options) {
  if (options.help) {
    std::printf("%s\n%s", kUsage, kHelp);
    return kExitDone;
  }
  if (options.version) {
    std::printf("attend, of attile %s\n", ATTILE_VERSION_STRING);
    return kExitDone;
  }
  const Place place = choose_device(options.device);
  const Inputs inputs = read_inputs(options);
  const Problem problem = make_problem(options, inputs);
  switch (options.dtype) {
    case Dtype::kFp16:
      return attend_as<__half>(options, inputs, problem, place);
    case Dtype::kBf16:
      return attend_as<__nv_bfloat16>(options, inputs, problem, place);
    default:
      return attend_as<float>(options, inputs, problem, place);
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
