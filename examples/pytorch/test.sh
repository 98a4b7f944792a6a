#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs PyTorch and this package into an environment of its own, and runs the tests: on the GPU
# where there is one, else on the CPU by the CPU executor.
#
#   examples/pytorch/test.sh [FOLDER]    FOLDER keeps the environment; without it nothing is kept
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
folder="${1:-}"
if [ -z "$folder" ]; then
  folder="$(mktemp -d)"
  trap 'rm -rf "$folder"' EXIT
fi
[ -x "$folder/bin/python" ] || python3 -m venv "$folder"
"$folder/bin/pip" install --quiet "$here[test]"
export ATTILE_TORCH_CACHE="${ATTILE_TORCH_CACHE:-$folder/variants}"
export ATTILE_TORCH_CXXFLAGS="${ATTILE_TORCH_CXXFLAGS--O1}"  # compiling takes longer than running
cd "$folder"  # the package that was installed is tested
"$folder/bin/python" -m pytest -q -p no:cacheprovider "$here/tests"
