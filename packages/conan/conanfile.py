# SPDX-License-Identifier: MIT
"""attile as a package of Conan 2: `conan create attile/packages/conan`. CMake finds the files that
attile itself installs: Conan's generator CMakeToolchain says where they are."""
import pathlib
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import copy

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Attile(ConanFile):
    name = "attile"
    description = "Exact attention in CUDA C++ templates"
    license = "MIT"
    topics = ("attention", "cuda", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    no_copy_source = True

    def set_version(self):
        header = (ROOT / "include" / "attile" / "version.h").read_text()
        self.version = ".".join(re.findall(r"_(?:MAJOR|MINOR|PATCH) (\d+)$", header, re.MULTILINE))

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*"):
            copy(self, pattern, ROOT, self.export_sources_folder)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "EXAMPLES", "BENCH"):
            toolchain.cache_variables[f"ATTILE_BUILD_{part}"] = False
        toolchain.generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()

    def package_id(self):
        self.info.clear()

    def package_info(self):
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.builddirs = ["share/cmake/attile"]
        self.cpp_info.set_property("cmake_find_mode", "none")
