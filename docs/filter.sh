#!/bin/sh
# SPDX-License-Identifier: MIT
# How Doxygen reads a file (see Doxyfile.in): by filter.sed, and a header as a part of the group of
# its layer (groups.dox), from the line that opens a namespace to the one that closes it. One line
# stays one line, so that messages name the right one.
here=$(dirname "$0")
case $1 in
  */include/attile/core/*) group=arguments ;;
  */include/attile/tile/*) group=pieces ;;
  */include/attile/kernel/*) group=kernels ;;
  */include/attile/arch/*) group=machine ;;
  */include/attile/host/* | */attile/reference.h | */attile/tolerance.h) group=cpu ;;
  */attile/default_tiles.h | */attile/families.cuh | */*tuning.cuh) group=kernels ;;
  */include/attile/*) group=calls ;;
esac
if [ -n "$group" ]; then
  exec sed -E -e "s|^namespace attile.*\\{\$|& /** @addtogroup $group */ /** @{ */|" \
    -e 's|^\}  // namespace attile.*|/** @} */ }|' -f "$here/filter.sed" "$1"
fi
exec sed -E -f "$here/filter.sed" "$1"
