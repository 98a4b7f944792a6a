# SPDX-License-Identifier: MIT
"""Exact attention by attile's kernels for PyTorch: see README.md."""
from ._call import prebuild
from ._operators import attention, attention_varlen
from ._transformers import register_transformers
from ._variants import BuildError

__all__ = ["BuildError", "attention", "attention_varlen", "prebuild", "register_transformers"]
