# SPDX-License-Identifier: MIT
"""attention_varlen() against the formula, sequence by sequence."""
import inspect

import attile_torch
import pytest
import torch
from reference import FULL, attention, clone, close

LENGTHS = {  # of queries and of keys
    "equal": ([64, 64, 64], [64, 64, 64]),
    "ragged": ([17, 1, 130, 0, 33], [17, 1, 130, 0, 33]),
    "cross": ([0, 1, 0, 1, 40], [0, 3, 0, 5, 77]),
    "no keys": ([5, 9], [0, 20]),
    "short": ([9, 8, 8, 8, 12, 8, 12], [9, 8, 8, 8, 12, 8, 12]),
}

MASKS = [{}, {"causal": True}, {"window": (20, 5)}]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
KINDS = [(dtype, mask) for dtype in (DTYPES if FULL else DTYPES[:1]) for mask in MASKS]


def packed(device, dtype, lengths, heads=(4, 2), dim=64, grads=True):
    q_len, k_len = lengths

    def offsets(of):
        return torch.tensor([0, *torch.tensor(of).cumsum(0)], dtype=torch.int32, device=device)

    def make(total, count):
        return torch.randn(total, count, dim, device=device).to(dtype).requires_grad_(grads)

    return {"q": make(sum(q_len), heads[0]), "k": make(sum(k_len), heads[1]),
            "v": make(sum(k_len), heads[1]), "cu_seqlens_q": offsets(q_len),
            "cu_seqlens_k": offsets(k_len), "max_seqlen_q": max(q_len), "max_seqlen_k": max(k_len)}


def one_by_one(data, dtype, options):
    """(out, lse, leaves) of each sequence by the formula."""
    leaves = {key: clone(data[key], dtype) for key in "qkv"}
    outs, lses = [], []
    cu_q, cu_k = data["cu_seqlens_q"].tolist(), data["cu_seqlens_k"].tolist()
    for b in range(len(cu_q) - 1):
        q = leaves["q"][None, cu_q[b]:cu_q[b + 1]]
        k, v = (leaves[key][None, cu_k[b]:cu_k[b + 1]] for key in "kv")
        out, lse = attention(q, k, v, **options)
        outs.append(out[0])
        lses.append(lse[0])
    return torch.cat(outs), torch.cat(lses, -1), leaves


def compare_packed(data, options):
    """Compares results and gradients to those of each sequence by the formula."""
    out, lse = attile_torch.attention_varlen(**data, return_lse=True, **options)
    dout = torch.randn_like(out)
    out.backward(dout)
    runs = []
    for kind in (torch.float64, out.dtype):
        result, result_lse, leaves = one_by_one(data, kind, options)
        result.backward(dout.to(kind))
        runs.append({"out": result, "lse": result_lse} | {key: leaves[key].grad for key in "qkv"})
    got = {"out": out, "lse": lse} | {key: data[key].grad for key in "qkv"}
    # dS = P (dP - D). Where a row sees one key the difference is 0, up to the fp32 rounding of two
    # sums of at most |dO| |V|.
    norms = dout.float().norm(dim=-1).max() * data["v"].float().norm(dim=-1).max()
    scale = options.get("scale") or data["q"].shape[-1] ** -0.5
    rounding = {key: (2**-23 * norms * scale * data[other].abs().max()).item()
                for key, other in ("qk", "kq")}
    for key, x in got.items():
        close(key, x.detach(), runs[0][key].detach(), runs[1][key].detach(),
              rounding.get(key, 0.0))


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(("dtype", "options"), KINDS, ids=str)
def test_lengths(device, dtype, options, lengths):
    compare_packed(packed(device, dtype, LENGTHS[lengths]), options)


def test_bounds_change_no_bit(device):
    data = packed(device, torch.float32, LENGTHS["ragged"], grads=False)
    out = attile_torch.attention_varlen(**data, causal=True)
    data |= {"max_seqlen_q": 500, "max_seqlen_k": 700}
    assert torch.equal(out, attile_torch.attention_varlen(**data, causal=True))


def test_lengths_in_gaps(device):
    """seqused leaves gaps, whose rows may hold anything, and get 0."""
    data = packed(device, torch.float32, ([30, 20, 10], [30, 20, 10]), grads=False)
    used = torch.tensor([12, 0, 10], dtype=torch.int32, device=device)
    inside = torch.cat([torch.arange(12), torch.arange(50, 60)])
    outside = torch.tensor([i for i in range(60) if i not in inside.tolist()])
    for key in "qkv":
        data[key][outside] = float("nan")
        data[key].requires_grad_()
    out = attile_torch.attention_varlen(**data, causal=True, seqused_q=used, seqused_k=used)
    out.square().sum().backward()
    only = {key: data[key].detach()[inside].requires_grad_() for key in "qkv"}
    cu = torch.tensor([0, 12, 12, 22], dtype=torch.int32, device=device)
    truth = attile_torch.attention_varlen(*only.values(), cu, cu, 30, 30, causal=True)
    truth.square().sum().backward()
    assert torch.equal(out[inside], truth) and (out[outside] == 0).all()
    for key in "qkv":
        assert torch.allclose(data[key].grad[inside], only[key].grad, atol=1e-5)
        assert (data[key].grad[outside] == 0).all()


def test_is_varlen_attn(device):
    """The same arguments and results as PyTorch's function, where it runs."""
    varlen = pytest.importorskip("torch.nn.attention.varlen").varlen_attn
    if device.type != "cuda":
        pytest.skip("varlen_attn needs a GPU")
    data = packed(device, torch.bfloat16, LENGTHS["ragged"], (4, 4), grads=False)
    has_windows = "window_size" in inspect.signature(varlen).parameters
    causal = {"window_size": (-1, 0)} if has_windows else {"is_causal": True}
    truth = varlen(*data.values(), **causal)
    out = attile_torch.attention_varlen(**data, window=(-1, 0))
    assert torch.allclose(out, truth, atol=2e-2)


def test_modifiers(device):
    lengths = LENGTHS["cross"]
    data = packed(device, torch.float32, lengths)
    options = {"alibi_slopes": torch.rand(4, device=device), "softcap": 3.0, "causal": True}
    out = attile_torch.attention_varlen(**data, **options)
    truth, _, leaves = one_by_one(data, torch.float64, options)
    dout = torch.randn_like(out)
    out.backward(dout)
    truth.backward(dout.double())
    assert torch.allclose(out.double(), truth, atol=1e-5)
    for key in "qkv":
        assert torch.allclose(data[key].grad.double(), leaves[key].grad, atol=1e-4), key
