// SPDX-License-Identifier: MIT
// A user's program: runs the CPU executor on one row that sees one key, and then asks it, and with
// WITH_KERNEL a kernel as well, why 3 query heads over 2 key heads are refused.
#include <attile/host.h>

#include <cstdio>

#ifdef WITH_KERNEL
const char* why_the_kernel_refuses(const attile::ForwardArgs<float>& args);
#endif

int main() {
  const float q[4] = {1, 2, 3, 4};
  const float v[4] = {5, 6, 7, 8};
  float o[4] = {};
  attile::ForwardArgs<float> args{.q = attile::bhsd(q, {.rows = 1, .heads = 1, .dim = 4}),
                                  .k = attile::bhsd(q, {.rows = 1, .heads = 1, .dim = 4}),
                                  .v = attile::bhsd(v, {.rows = 1, .heads = 1, .dim = 4}),
                                  .o = attile::bhsd(o, {.rows = 1, .heads = 1, .dim = 4}),
                                  .batch = 1,
                                  .q_heads = 1,
                                  .kv_heads = 1,
                                  .q_len = 1,
                                  .kv_len = 1,
                                  .head_dim = 4,
                                  .head_dim_v = 4};
  const attile::Check done = attile::host::forward(args);
  std::printf("computed: %g %g %g %g %s\n", o[0], o[1], o[2], o[3], done.why);

  args.q_heads = 3;
  args.kv_heads = 2;
  const attile::Check refused = attile::host::forward(args);
  std::printf("refused: %s\n", refused.why);
#ifdef WITH_KERNEL
  std::printf("refused: %s\n", why_the_kernel_refuses(args));
#endif
  return done && !refused ? 0 : 1;
}
