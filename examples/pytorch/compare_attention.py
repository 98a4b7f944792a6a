#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Attention alone through the operator, beside PyTorch's: eager, SDPA's flash backend (FA2), cuDNN.

Builds the variants that it needs, in parallel, checks each against the formula in fp64, and prints
milliseconds of GPT-2's attention, host time included: forward, and forward + backward, without and
with dropout. It needs a GPU, and no installation:

    python3 examples/pytorch/compare_attention.py [--heads 12 16] [--json FILE]
"""
import argparse
import contextlib
import json
import pathlib
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import dropout, scaled_dot_product_attention

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import attile_torch  # noqa: E402
from attile_torch import _variants  # noqa: E402

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
FAILED = (RuntimeError, ValueError)


def eager(q, k, v, p, seen):
    """What the GPT-2 of transformers 4 did, the published baseline: each step reads and writes the
    scores."""
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    scores = torch.where(seen, scores, torch.finfo(scores.dtype).min)
    weights = torch.softmax(scores, -1)
    return dropout(weights, p) @ v


def by_sdpa(backend):
    def attend(q, k, v, p, _):
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
    return attend


def attile(q, k, v, p, _):
    return attile_torch.attention(q, k, v, causal=True, dropout_p=p, layout="bhsd")


WAYS = {"eager": eager, "FA2": by_sdpa(SDPBackend.FLASH_ATTENTION),
        "cuDNN": by_sdpa(SDPBackend.CUDNN_ATTENTION), "attile": attile}


def inputs(shape, dtype, grads):
    """Q, K and V as a model has them: (batch, heads, rows, dim) views of one product's result."""
    batch, heads, rows, dim = shape
    qkv = torch.randn(batch, rows, 3, heads, dim, device="cuda", dtype=dtype)
    return [x.transpose(1, 2).detach().requires_grad_(grads) for x in qkv.unbind(2)]


def milliseconds(work, repeats=30, rounds=7):
    """The median of rounds of host time, each of `repeats` calls that follow each other."""
    for _ in range(5):
        work()
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(repeats):
            work()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / repeats * 1e3)
    return sorted(times)[rounds // 2]


def host_microseconds(work, repeats=200):
    """The time that Python and the launches take where the GPU has next to nothing to do."""
    return milliseconds(work, repeats) * 1e3


@contextlib.contextmanager
def nothing_launched():
    """The libraries' functions return at once: what is left is Python, and the allocations."""
    libraries = [future.result() for future in _variants._pending.values()]
    runs = [library.run for library in libraries]
    for library in libraries:
        library.run = lambda *_: 0
    try:
        yield
    finally:
        for library, run in zip(libraries, runs, strict=True):
            library.run = run


def print_host_times(shape, dtype, dropouts):
    print("\nhost time of a call whose GPU work is nothing, microseconds")
    for way, around in (("FA2", contextlib.nullcontext), ("cuDNN", contextlib.nullcontext),
                        ("attile", contextlib.nullcontext), ("attile", nothing_launched)):
        for p in dropouts:
            q, k, v = inputs(shape, dtype, True)
            dout = torch.randn_like(q)

            def forward(attend=WAYS[way], q=q, k=k, v=v, p=p):
                return attend(q, k, v, p, None)

            def both(forward=forward, q=q, k=k, v=v, dout=dout):
                torch.autograd.grad(forward(), (q, k, v), dout)

            both()
            with around():
                with torch.no_grad():
                    alone = host_microseconds(forward)
                print(f"{way:>7}, dropout {p}: forward {alone:.0f}, with backward "
                      f"{host_microseconds(both):.0f}"
                      f"{', of it without launches' if around is nothing_launched else ''}")


def check(dtype, heads, dim, p):
    """Compares with the formula in fp64 on a small problem; with dropout the output shows what has
    been dropped, as V is an identity there, and its statistics are compared."""
    rows = 200
    q, k, v = inputs((2, heads, rows, dim), dtype, True)
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    out = attile(q, k, v, 0.0, None)
    truth = scaled_dot_product_attention(*exact, is_causal=True)
    plain_inputs = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    seen = torch.ones(rows, rows, dtype=torch.bool, device="cuda").tril()
    plain = eager(*plain_inputs, 0.0, seen)
    dout = torch.randn_like(out)
    for result in (out, truth, plain):
        result.backward(dout.to(result.dtype))
    pairs = [("out", out, truth, plain)] + [
        (name, a.grad, b.grad, c.grad) for name, a, b, c in zip(
            ("dq", "dk", "dv"), (q, k, v), exact, plain_inputs, strict=True)]
    for name, got, right, other in pairs:
        error = (got.double() - right).abs().max().item()
        yardstick = (other.double() - right).abs().max().item()
        allowed = 2 * yardstick + torch.finfo(dtype).eps * right.abs().max().item()
        if not error <= allowed:
            raise SystemExit(f"{name} is off by {error:.3g}; {allowed:.3g} is allowed")
    if p > 0:
        eye = torch.eye(dim, device="cuda", dtype=dtype).expand(2, heads, dim, dim)
        q, k = q.detach()[:, :, :dim], k.detach()[:, :, :dim]
        seen = seen[:dim, :dim]
        kept = (attile(q, k, eye, p, None) != 0)[seen.expand(2, heads, dim, dim)].float()
        sigma = (p * (1 - p) / kept.numel()) ** 0.5
        if abs(kept.mean().item() - (1 - p)) > 6 * sigma + 1e-3:
            raise SystemExit(f"dropout keeps {kept.mean().item():.4f}, not {1 - p}")


def measure(way, shape, dtype, p):
    """(forward, forward + backward) in milliseconds; None where there is no memory or kernel."""
    attend = WAYS[way]
    rows = shape[2]
    try:
        seen = torch.ones(rows, rows, dtype=torch.bool, device="cuda").tril()
        q, k, v = inputs(shape, dtype, True)
        dout = torch.randn_like(q)

        def forward():
            with torch.no_grad():
                attend(q, k, v, p, seen)

        def both():
            torch.autograd.grad(attend(q, k, v, p, seen), (q, k, v), dout)

        return milliseconds(forward), milliseconds(both)
    except FAILED as error:
        print(f"{way}: {str(error).splitlines()[0]}", file=sys.stderr)
        return None
    finally:
        torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--heads", type=int, nargs="+", default=[12, 16])
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--dtype", choices=DTYPES, default="fp16")
    parser.add_argument("--dropout", type=float, nargs="+", default=[0.0, 0.1])
    parser.add_argument("--json", type=pathlib.Path, help="where results are written")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("compare_attention.py needs a GPU")
    dtype = DTYPES[options.dtype]
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN "
          f"{torch.backends.cudnn.version()}")
    start = time.perf_counter()
    attile_torch.prebuild(*[
        {"dtype": dtype, "head_dim": options.dim, "causal": True, "dropout": p > 0}
        for p in options.dropout])
    print(f"the variants were there after {time.perf_counter() - start:.1f} s")
    for p in options.dropout:
        check(dtype, options.heads[0], options.dim, p)
    print("results agree with the formula in fp64\n")
    print(f"attention alone, {options.dtype}, B {options.batch}, S {options.rows}, "
          f"D {options.dim}, causal; milliseconds, host time included")
    print(f"{'heads':>5} {'dropout':>7} {'way':>7} {'forward':>9} {'with backward':>14}")
    results = []
    for heads in options.heads:
        shape = (options.batch, heads, options.rows, options.dim)
        for p in options.dropout:
            for way in WAYS:
                found = measure(way, shape, dtype, p)
                forward, both = (f"{x:.3f}" for x in found) if found else ("-", "-")
                print(f"{heads:>5} {p:>7} {way:>7} {forward:>9} {both:>14}", flush=True)
                results.append({"heads": heads, "dropout": p, "way": way, "ms": found})
    print_host_times((1, options.heads[0], 32, options.dim), dtype, options.dropout)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
