// SPDX-License-Identifier: MIT
// Prints the version of the headers; those of CUDA are found, too.
#include <attile/core/status.h>
#include <attile/version.h>

#include <cstdio>

int main() {
  std::printf("%s %d.%d.%d%s\n", ATTILE_VERSION_STRING, ATTILE_VERSION_MAJOR, ATTILE_VERSION_MINOR,
              ATTILE_VERSION_PATCH, attile::Check{}.why);
  return 0;
}
