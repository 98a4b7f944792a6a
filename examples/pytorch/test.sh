#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs PyTorch and this package into an environment of its own, and runs the tests: on the GPU
# where there is one, else on the CPU by the CPU executor. One process for each core.
#
#   examples/pytorch/test.sh [--all | --prepare] [FOLDER]
#     --all        on a CPU too all cases run, which takes long
#     --prepare    only installs
#     FOLDER       keeps the environment and the compiled variants; without it nothing is kept
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
option=
case "${1:-}" in
  --all | --prepare) option="$1" && shift ;;
esac
[ "$option" != --all ] || export ATTILE_TORCH_TEST_FULL=1
folder="${1:-}"
if [ -z "$folder" ]; then
  folder="$(mktemp -d)"
  trap 'rm -rf "$folder"' EXIT
fi
[ -x "$folder/bin/python" ] || python3 -m venv "$folder"
cd "$folder"  # the package that was installed is tested
bin/pip install --quiet --no-compile "$here[test]"
[ "$option" != --prepare ] || exit 0
export ATTILE_TORCH_CACHE="${ATTILE_TORCH_CACHE:-$PWD/variants}"
# Compiling takes longer than running, and reading the headers longer than the rest of it: that is
# done once, with the options of a variant.
export ATTILE_TORCH_CXXFLAGS="${ATTILE_TORCH_CXXFLAGS--Og}"
printf '#include <%s>\n' attile/host.h attile/host/append.h call.h >all.h
bin/python - all.h <<'EOF'
import subprocess
import sys

from attile_torch import _variants
compiler, shaping, folders, _ = _variants._compiler("")
subprocess.run([compiler, *shaping, *folders, "-x", "c++-header", *sys.argv[1:]], check=True)
EOF
ATTILE_TORCH_CXXFLAGS="$ATTILE_TORCH_CXXFLAGS -include $PWD/all.h"
export OMP_NUM_THREADS=1  # of PyTorch: processes share the cores
bin/python -m pytest -q -p no:cacheprovider -n "$(nproc)" --dist worksteal "$here/tests"
