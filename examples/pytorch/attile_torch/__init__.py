# SPDX-License-Identifier: MIT
"""Exact attention by attile's kernels for PyTorch: see README.md."""
from ._operators import attention, attention_varlen
from ._transformers import register_transformers
from ._variants import BuildError

__all__ = ["BuildError", "attention", "attention_varlen", "register_transformers"]
