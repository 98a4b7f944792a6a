# SPDX-License-Identifier: MIT
import os
import pathlib
import sys

import pytest
import torch

try:
    import attile_torch  # noqa: F401  the installed one, if there is one
except ImportError:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))


def pytest_collection_modifyitems(items):
    """Where there are few processes, those tests share one that need torch.compile or models of
    transformers: importing that takes longer than they do."""
    if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1)) > 2:
        return
    for item in items:
        if any(word in item.nodeid for word in ("compile", "opcheck", "aot_eager", "transformers")):
            item.add_marker(pytest.mark.xdist_group("imports"))


@pytest.fixture
def device():
    """The GPU where there is one, else the CPU, whose tensors the CPU executor takes."""
    torch.manual_seed(1)
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
