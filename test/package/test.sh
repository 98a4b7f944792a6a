#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Makes and installs the packages of pip and of Conan as a user does, in an environment of its own
# into which pip installs both tools, and builds a consumer with each. That of vcpkg, whose tool no
# registry has, is ctest's package.vcpkg.
#
#   test/package/test.sh
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
root="$(cd "$here/../.." && pwd)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/python"
PATH="$work/python/bin:$PATH"
consumer() {
  cmake -DATTILE_SOURCE_DIR="$root" -DWORK="$work/$1" -DOPTIONS="$2" -P "$here/installed.cmake"
}

pip install --quiet --no-compile conan "$root/packages/pip"
cd "$work"  # the module that was installed is asked
consumer pip "-Dattile_DIR=$(python -m attile_headers --cmake-dir)"
headers="$(python -m attile_headers --include-dir)/attile/version.h"
cmp "$headers" "$root/include/attile/version.h"
version="$(python -m attile_headers --version)"

export CONAN_HOME="$work/conan"
conan profile detect >conan.log 2>&1
conan create "$root/packages/conan" >>conan.log 2>&1 || { cat conan.log; exit 1; }
conan install --requires="attile/$version" -g CMakeToolchain -of toolchain >>conan.log 2>&1 ||
  { cat conan.log; exit 1; }
consumer with_conan "-DCMAKE_TOOLCHAIN_FILE=$work/toolchain/conan_toolchain.cmake|-DCMAKE_BUILD_TYPE=Release"
