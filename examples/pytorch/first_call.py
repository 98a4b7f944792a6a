#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The time from `import attile_torch` to the end of the first call: with nothing in the cache, and
in another process that finds the variant there.

    python3 examples/pytorch/first_call.py [--backward]

PyTorch has been imported, and the device used, before the clock starts.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

CALL = """
import sys, time
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
q = torch.randn(1, 512, 12, 64, device=device, dtype=torch.bfloat16, requires_grad={backward})
q.detach().sum().item()
start = time.perf_counter()
import attile_torch
out = attile_torch.attention(q, q, q, causal=True)
if {backward}:
    out.sum().backward()
out.detach().sum().item()
print(time.perf_counter() - start)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backward", action="store_true", help="with the backward pass")
    program = CALL.format(backward=parser.parse_args().backward)
    here = str(pathlib.Path(__file__).resolve().parent)
    with tempfile.TemporaryDirectory() as cache:
        environment = dict(os.environ, ATTILE_TORCH_CACHE=cache, PYTHONPATH=os.pathsep.join(
            [here, os.environ.get("PYTHONPATH", "")]))
        for name in ("compiled", "cached"):
            done = subprocess.run([sys.executable, "-c", program], env=environment, check=True,
                                  stdout=subprocess.PIPE, text=True)
            print(f"import to the end of the first call, {name}: {float(done.stdout):.2f} s")


if __name__ == "__main__":
    main()
