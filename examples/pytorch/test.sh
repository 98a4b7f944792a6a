#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs PyTorch and this package into an environment of its own, and runs the tests: on the GPU
# where there is one, else on the CPU by the CPU executor. One process for each core.
#
#   examples/pytorch/test.sh [--all] [FOLDER]
#     --all     on a CPU too all cases run, which takes long
#     FOLDER    keeps the environment and the compiled variants; without it nothing is kept
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
if [ "${1:-}" = --all ]; then
  export ATTILE_TORCH_TEST_FULL=1
  shift
fi
folder="${1:-}"
if [ -z "$folder" ]; then
  folder="$(mktemp -d)"
  trap 'rm -rf "$folder"' EXIT
fi
[ -x "$folder/bin/python" ] || python3 -m venv "$folder"
cd "$folder"  # the package that was installed is tested
bin/pip install --quiet --no-compile "$here[test]"
export ATTILE_TORCH_CACHE="${ATTILE_TORCH_CACHE:-$PWD/variants}"
export ATTILE_TORCH_CXXFLAGS="${ATTILE_TORCH_CXXFLAGS--O1}"  # compiling takes longer than running
export OMP_NUM_THREADS=1  # of PyTorch: processes share the cores
bin/python -m pytest -q -p no:cacheprovider -n "$(nproc)" --dist worksteal "$here/tests"
