# SPDX-License-Identifier: MIT
"""Ships the library's headers with the package: kernels are compiled from them at first use."""
import pathlib
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py

HEADERS = pathlib.Path(__file__).resolve().parents[2] / "include" / "attile"


class BuildWithHeaders(build_py):
    def run(self):
        super().run()
        if self.editable_mode:
            return  # the headers of the repository are found where they are
        target = pathlib.Path(self.build_lib) / "attile_torch" / "include" / "attile"
        if not HEADERS.is_dir():
            raise FileNotFoundError("setup.py ships the headers of the repository that it is in")
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(HEADERS, target)


setup(cmdclass={"build_py": BuildWithHeaders})
