# SPDX-License-Identifier: MIT
"""Attention as the formula says, in any type, with PyTorch's autograd, and how results are
compared: in fp64 it is the truth, in the type of the inputs the plain computation whose error is
the yardstick."""
import os

import torch

# Whether all cases run: on a GPU, or where it is asked for. The CPU executor has one body for all
# types, so that there a policy is tested in one type, and fewer variants are compiled.
FULL = torch.cuda.is_available() or os.environ.get("ATTILE_TORCH_TEST_FULL", "") not in ("", "0")


def run_without_waiting(step):
    """Runs a step that must not wait for the GPU, after it has run once."""
    step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def mask_of(rows, columns, causal=False, window=None, device=None):
    """(rows, columns): what is seen."""
    i = torch.arange(rows, device=device)[:, None]
    j = torch.arange(columns, device=device)[None, :]
    if causal == "top_left":
        return j <= i
    left, right = (-1, -1) if window is None else window
    right = 0 if causal else right
    middle = i + columns - rows
    seen = torch.ones(rows, columns, dtype=torch.bool, device=device)
    if left >= 0:
        seen &= j >= middle - left
    if right >= 0:
        seen &= j <= middle + right
    return seen


def attention(q, k, v, *, causal=False, window=None, scale=None, softcap=0.0, alibi_slopes=None,
              bias=None, kept=None, dropout_p=0.0, sinks=None):
    """(out, lse) of (batch, rows, heads, dim); kept: which elements of the softmax are."""
    dtype = q.dtype
    group = q.shape[2] // k.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    rows, columns = q.shape[2], k.shape[2]
    scores = (q @ k.transpose(-1, -2)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores.to(torch.promote_types(dtype, torch.float32))
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if alibi_slopes is not None:
        i = torch.arange(rows, device=q.device)[:, None] + columns - rows
        distance = (i - torch.arange(columns, device=q.device)[None, :]).abs()
        scores = scores - alibi_slopes.to(scores.dtype).view(-1, q.shape[1], 1, 1) * distance
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    seen = mask_of(rows, columns, causal, window, q.device)
    scores = scores.masked_fill(~seen, float("-inf"))
    if sinks is not None:
        sink = sinks.to(scores.dtype).view(1, -1, 1, 1).expand(q.shape[0], -1, rows, 1)
        joined = torch.cat([scores, sink], -1)
    else:
        joined = scores
    lse = torch.logsumexp(joined, -1)
    blind = torch.isneginf(lse)
    weights = torch.exp(scores - lse.masked_fill(blind, 0.0)[..., None])
    if kept is not None:
        weights = weights * kept / (1 - round(dropout_p * 65536) / 65536)
    return (weights.to(dtype) @ v).transpose(1, 2), lse


def clone(tensor, dtype):
    """A leaf in another type with the same values."""
    if tensor is None or not tensor.is_floating_point():
        return tensor
    return tensor.detach().to(dtype).requires_grad_(tensor.requires_grad)


def close(name, got, exact, plain, extra=0.0):
    """At most twice the error of the plain computation, and a rounding of the type, in max-norm."""
    exact = exact.double()
    finite = torch.isfinite(exact)
    assert torch.equal(torch.isfinite(got), finite), f"{name}: other elements are finite"
    if not finite.any():
        return
    error = (got.double() - exact)[finite].abs().max().item()
    allowed = 2 * (plain.double() - exact)[finite].abs().max().item()
    allowed += torch.finfo(got.dtype).eps * exact[finite].abs().max().item() + extra
    # Where sums have few terms the plain computation may be right by luck.
    allowed += 4e-6
    if got.is_cuda and got.dtype == torch.float32:  # products of TF32 in three parts
        allowed += 2**-19 * exact[finite].abs().max().item()
    assert error <= allowed, f"{name}: off by {error:.3g}, allowed {allowed:.3g}"


def compare(function, tensors, options, extra=None):
    """Compares a function of (tensors, options) -> (out, lse), and the gradients of all tensors
    that require one, to the reference. `function` gets the options that the reference gets; `extra`
    has what else a result may be off by."""
    runs = {}
    for name, dtype in (("got", None), ("exact", torch.float64), ("plain", tensors["q"].dtype)):
        own = {key: tensor if dtype is None or not torch.is_tensor(tensor) else clone(tensor, dtype)
               for key, tensor in tensors.items()}
        if dtype is None:
            own = {key: clone(x, x.dtype) if torch.is_tensor(x) else x for key, x in own.items()}
        out, lse = (function if name == "got" else attention)(**own, **options)
        results = {"out": out.detach(), "lse": lse.detach()}
        if any(torch.is_tensor(x) and x.requires_grad for x in own.values()):
            generator = torch.Generator().manual_seed(3)
            dout = torch.randn(out.shape, generator=generator).to(tensors["q"].dtype)
            dlse = torch.randn(lse.shape, generator=generator)
            dlse = dlse.to(lse.device).masked_fill(torch.isneginf(lse), 0.0)
            lse = lse.masked_fill(torch.isneginf(lse), 0.0)
            ((out * dout.to(out)).sum() + (lse * dlse.to(lse)).sum()).backward()
            results |= {f"d{key}": x.grad for key, x in own.items()
                        if torch.is_tensor(x) and x.requires_grad}
        runs[name] = results
    for key, got in runs["got"].items():
        close(key, got, runs["exact"][key], runs["plain"][key], (extra or {}).get(key, 0.0))
    return runs["got"]
