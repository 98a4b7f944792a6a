// SPDX-License-Identifier: MIT
// A user's program: asks attile, from a file of any C++ compiler and from one of nvcc, why it would
// refuse 3 query heads over 2 key heads.
#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/reference.h>

#include <cstdio>

#ifdef WITH_KERNEL
const char* why_the_kernel_refuses(const attile::ForwardArgs<float>& args);
#endif

int main() {
  const attile::ForwardArgs<float> args{
      .batch = 1, .q_heads = 3, .kv_heads = 2, .q_len = 8, .kv_len = 8};
  const attile::Check check = attile::check_arguments(args, 64, 64);
  std::printf("refused: %s\n", check.why);
#ifdef WITH_KERNEL
  std::printf("kernel refused: %s\n", why_the_kernel_refuses(args));
#endif
  return check ? 1 : 0;
}
