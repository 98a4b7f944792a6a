# SPDX-License-Identifier: MIT
"""Says where attile's headers and its CMake package are."""
import pathlib

__all__ = ["cmake_dir", "include_dir"]

_ROOT = pathlib.Path(__file__).resolve().parent


def include_dir() -> str:
    """Returns the folder for a compiler's include path: `#include <attile/attile.cuh>`."""
    return str(_ROOT / "include")


def cmake_dir() -> str:
    """Returns the folder for CMake's variable attile_DIR: `find_package(attile)`."""
    return str(_ROOT / "share" / "cmake" / "attile")
