# SPDX-License-Identifier: MIT
"""Exact attention by attile's kernels for PyTorch: see README.md."""
from ._decode import DroppedRowsError, append, attention_decode, check_dropped
from ._operators import attention, attention_varlen
from ._prebuild import prebuild
from ._transformers import register_transformers
from ._variants import BuildError

__all__ = ["BuildError", "DroppedRowsError", "append", "attention", "attention_decode",
           "attention_varlen", "check_dropped", "prebuild", "register_transformers"]
