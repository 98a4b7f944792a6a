// SPDX-License-Identifier: MIT
// Instantiates the host's entry points, so that the compiler also warns of what is in templates.
#include <attile/host.h>
#include <attile/reference.h>

namespace {

template <class T, class... Policies>
double computed() {
  const attile::ForwardArgs<T, Policies...> forward{};
  const attile::BackwardArgs<T, Policies...> backward{};
  return attile::host::forward(forward) && attile::host::backward(backward)
             ? attile::reference::forward(forward).o[0] +
                   attile::reference::backward(backward).dq[0]
             : 0.0;
}

}  // namespace

double calls() {
  return computed<float>() + computed<__half, attile::Causal, attile::Softcap>() +
         computed<__nv_bfloat16, attile::SlidingWindow, attile::Alibi, attile::PhiloxDropout>();
}
