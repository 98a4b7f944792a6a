# SPDX-License-Identifier: MIT
import pathlib
import sys

import pytest
import torch

try:
    import attile_torch  # noqa: F401  the installed one, if there is one
except ImportError:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))


@pytest.fixture
def device():
    """The GPU where there is one, else the CPU, whose tensors the CPU executor takes."""
    torch.manual_seed(1)
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
