# SPDX-License-Identifier: MIT
"""Prints what a build wants to know: python -m attile_headers --help."""
import argparse
import importlib.metadata

from . import cmake_dir, include_dir


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m attile_headers", description=__doc__)
    query = parser.add_mutually_exclusive_group(required=True)
    query.add_argument("--include-dir", action="store_const", dest="answer", const=include_dir,
                       help="the folder for a compiler's include path")
    query.add_argument("--cmake-dir", action="store_const", dest="answer", const=cmake_dir,
                       help="the folder for CMake's variable attile_DIR")
    query.add_argument("--version", action="store_const", dest="answer",
                       const=lambda: importlib.metadata.version("attile-headers"),
                       help="the version of the library")
    print(parser.parse_args().answer())


if __name__ == "__main__":
    main()
