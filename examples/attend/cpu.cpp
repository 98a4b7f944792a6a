// SPDX-License-Identifier: MIT
#include <attile/host.h>

#include <chrono>
#include <string>
#include <thread>

#include "run.h"

namespace attend {
namespace {

void require(attile::Check check) {
  if (!check) throw npy::Error(std::string("The CPU executor refuses: ") + check.why + ".");
}

template <class Work>
double elapsed_ms(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace

std::string cpu_name() {
  return "CPU, up to " + std::to_string(std::thread::hardware_concurrency()) + " threads";
}

template <class T>
Run run_on_cpu(const Problem& p, Tensors<T>& tensors, const Pace& pace) {
  Run run;
  run.family = "CPU executor";
  run.bytes = tensors.bytes();
  const Pointers<T> at = tensors.pointers(p);
  with_sequences(p, [&]<class Sequences>() {
    run.forward = times_of("forward on the CPU", pace, [&] {
      return elapsed_ms([&] { require(attile::host::forward(forward_args<Sequences>(p, at))); });
    });
    if (!p.backward) return;
    run.backward = times_of("backward on the CPU", pace, [&] {
      return elapsed_ms([&] { require(attile::host::backward(backward_args<Sequences>(p, at))); });
    });
  });
  return run;
}

template Run run_on_cpu(const Problem&, Tensors<float>&, const Pace&);
template Run run_on_cpu(const Problem&, Tensors<__half>&, const Pace&);
template Run run_on_cpu(const Problem&, Tensors<__nv_bfloat16>&, const Pace&);

}  // namespace attend
