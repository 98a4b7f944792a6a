# SPDX-License-Identifier: MIT
"""attention() against the formula in fp64: shapes, types, layouts, masks, modifiers, dropout."""
import attile_torch
import pytest
import torch
from reference import FULL, clone, compare
from torch.nn.functional import scaled_dot_product_attention

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
# (rows, columns); test_grids.py has more of FlashAttention's and PyTorch's own tests.
LENGTHS = [(1, 1), (1, 147), (3, 3), (64, 128), (113, 203), (113, 211), (128, 217), (256, 113)]
if FULL:
    LENGTHS += [(108, 256), (256, 512), (512, 256), (1024, 1024), (1023, 1024), (1024, 1023),
                (2048, 2048)]
HEADS = [(4, 4), (6, 1), (6, 2)]
MASKS = [{}, {"causal": True}, {"window": (23, 11)}]
KINDS = [(dtype, mask) for dtype in DTYPES for mask in MASKS] if FULL else \
    [*[(torch.float32, mask) for mask in MASKS], (torch.float16, MASKS[2]),
     (torch.bfloat16, MASKS[1])]


def tensors(device, dtype, rows, columns, heads=(4, 2), dim=64, dim_v=None, batch=2, grads=True):
    def make(length, count, width):
        x = torch.randn(batch, length, count, width, device=device).to(dtype)
        return x.requires_grad_(grads)
    return {"q": make(rows, heads[0], dim), "k": make(columns, heads[1], dim),
            "v": make(columns, heads[1], dim_v or dim)}


def attend(q, k, v, **options):
    return attile_torch.attention(q, k, v, return_lse=True, **options)


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize(("dtype", "mask"), KINDS, ids=str)
def test_lengths(device, dtype, mask, lengths):
    heads = HEADS[sum(lengths) % len(HEADS)]
    compare(attend, tensors(device, dtype, *lengths, heads), mask)


@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize("dim", [8, 40, 59, 64])
def test_dims_and_heads(device, dim, heads):
    compare(attend, tensors(device, torch.bfloat16, 97, 128, heads, dim), {"causal": True})


@pytest.mark.parametrize("dims", [(32, 32), (96, 96), (128, 128), (192, 128), (64, 128),
                                  (256, 256)], ids=str)
def test_large_dims(device, dims):
    dtype = torch.bfloat16
    compare(attend, tensors(device, dtype, 100, 130, (2, 1), *dims), {"causal": True})


def test_top_left(device):
    for lengths in ((50, 70), (70, 50)):
        compare(attend, tensors(device, torch.float32, *lengths), {"causal": "top_left"})


@pytest.mark.parametrize("window", [(0, 0), (-1, 5), (7, -1), (30, 0), (1000, 1000)], ids=str)
def test_windows(device, window):
    compare(attend, tensors(device, torch.float32, 70, 90), {"window": window})


def test_causal_window_sees_no_later_column(device):
    data = tensors(device, torch.float32, 60, 60, grads=False)
    both = attend(**data, causal=True, window=(9, 9))[0]
    assert torch.equal(both, attend(**data, window=(9, 0))[0])


def test_scale(device):
    compare(attend, tensors(device, torch.float32, 40, 60), {"scale": 0.31, "causal": True})


@pytest.mark.parametrize("dtype", DTYPES if FULL else DTYPES[:1], ids=str)
def test_softcap(device, dtype):
    compare(attend, tensors(device, dtype, 70, 90), {"softcap": 3.0, "causal": True})


@pytest.mark.parametrize("by_batch", [False, True])
def test_alibi(device, by_batch):
    data = tensors(device, torch.float32, 70, 90)
    slopes = torch.rand(*(2, 4) if by_batch else (4,), device=device)
    compare(attend, data, {"alibi_slopes": slopes, "causal": True})


@pytest.mark.parametrize("shape", [(2, 4, 30, 50), (1, 4, 30, 50), (2, 1, 1, 50), (30, 1),
                                   (4, 1, 1)], ids=str)
def test_learned_bias(device, shape):
    data = tensors(device, torch.float32, 30, 50)
    data["bias"] = torch.randn(shape, device=device, requires_grad=True)
    # A sum of many terms may be off by 2^-22 of the sum of their absolute values.
    compare(attend, data, {}, {"dbias": 2e-8 * 2 * 4 * 30 * 50 / data["bias"].numel()})


def test_bias_of_the_inputs_type(device):
    data = tensors(device, torch.bfloat16, 30, 50)
    data["bias"] = torch.randn(2, 1, 30, 50, device=device).bfloat16().requires_grad_()
    compare(attend, data, {})


def test_bool_bias(device):
    data = tensors(device, torch.float32, 30, 50, grads=False)
    seen = torch.rand(2, 1, 30, 50, device=device) < 0.7
    seen[0, 0, 3] = False
    bias = torch.zeros(seen.shape, device=device).masked_fill(~seen, float("-inf"))
    out, lse = attend(**data, bias=seen)
    assert torch.equal(out, attend(**data, bias=bias)[0])
    assert (out[0, 3] == 0).all() and torch.isneginf(lse[0, :, 3]).all()


def test_modifiers_follow_each_other(device):
    data = tensors(device, torch.float32, 40, 50)
    data["bias"] = torch.randn(4, 40, 50, device=device, requires_grad=True)
    compare(attend, data, {"softcap": 2.0, "alibi_slopes": torch.rand(4, device=device)})


@pytest.mark.parametrize("dtype", DTYPES[::2] if FULL else DTYPES[:1], ids=str)
def test_sinks(device, dtype):
    data = tensors(device, dtype, 70, 50)  # the first rows see no key
    data["sinks"] = torch.randn(4, device=device).to(dtype).requires_grad_()
    compare(attend, data, {"causal": True})


def test_rows_without_keys(device):
    data = tensors(device, torch.float32, 70, 50)
    got = compare(attend, data, {"causal": True})
    assert (got["out"][:, :20] == 0).all() and torch.isneginf(got["lse"][:, :, :20]).all()
    assert (got["dq"][:, :20] == 0).all()


@pytest.mark.parametrize("sizes", [(0, 5, 5), (2, 0, 5), (2, 5, 0)], ids=str)
def test_empty(device, sizes):
    batch, rows, columns = sizes
    data = tensors(device, torch.float32, rows, columns, batch=batch)
    out, _ = attend(**data, causal=True)
    assert out.shape == (batch, rows, 4, 64) and (out == 0).all()
    out.sum().backward()
    assert all((x.grad == 0).all() and x.grad.shape == x.shape for x in data.values())


# ---- layouts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "mask"), [kind for kind in KINDS if kind[1] != MASKS[2]],
                         ids=str)
def test_is_sdpa(device, dtype, mask):
    """layout="bhsd" is scaled_dot_product_attention's, whose causal masks align top-left."""
    data = {key: clone(x.transpose(1, 2), dtype)
            for key, x in tensors(device, dtype, 60, 60, (4, 2)).items()}
    exact = {key: clone(x, torch.float64) for key, x in data.items()}
    out = attile_torch.attention(*data.values(), layout="bhsd", **mask)
    truth = scaled_dot_product_attention(*exact.values(), is_causal=bool(mask), enable_gqa=True)
    assert out.shape == truth.shape and out.transpose(1, 2).is_contiguous()
    dout = torch.randn_like(out)
    out.backward(dout)
    truth.backward(dout.double())
    bound = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]
    assert (out - truth).abs().max() < bound
    for key, x in data.items():
        assert (x.grad - exact[key].grad).abs().max() < 2 * bound, key
        assert x.grad.stride() == x.stride()


def test_strides(device):
    """Packed QKV, a broadcast key, a transposed copy: no copy is made of what has a contiguous
    last axis, and the bits are those of dense tensors."""
    qkv = torch.randn(2, 50, 3, 4, 64, device=device)
    views = qkv.unbind(2)
    dense = [x.contiguous() for x in views]
    out = attile_torch.attention(*views, causal=True)
    assert torch.equal(out, attile_torch.attention(*dense, causal=True))
    last = [x.transpose(-1, -2).contiguous().transpose(-1, -2) for x in dense]
    assert last[0].stride(-1) != 1
    assert torch.equal(out, attile_torch.attention(*last, causal=True))
    one = dense[1][:, :, :1].expand(2, 50, 4, 64)
    repeated = attile_torch.attention(dense[0], one, one, causal=True)
    grouped = attile_torch.attention(dense[0], dense[1][:, :, :1], dense[1][:, :, :1], causal=True)
    assert torch.allclose(repeated, grouped, atol=1e-5)


def test_packed_qkv_has_gradients(device):
    qkv = torch.randn(2, 50, 3, 4, 64, device=device, requires_grad=True)
    other = qkv.detach().clone().requires_grad_()
    attile_torch.attention(*qkv.unbind(2), causal=True).square().sum().backward()
    heads_first = [x.transpose(1, 2) for x in other.unbind(2)]
    scaled_dot_product_attention(*heads_first, is_causal=True).square().sum().backward()
    assert torch.allclose(qkv.grad, other.grad, atol=1e-4)


@pytest.mark.parametrize("mask", MASKS[:2] if FULL else MASKS[1:2], ids=str)
def test_padded(device, mask):
    data = tensors(device, torch.float32, 40, 60, batch=3, grads=False)
    used_q = torch.tensor([40, 7, 0], dtype=torch.int32, device=device)
    used_k = torch.tensor([31, 60, 9], dtype=torch.int32, device=device)
    whole = {key: x.clone().requires_grad_() for key, x in data.items()}
    out, lse = attend(**whole, seqused_q=used_q, seqused_k=used_k, **mask)
    out.square().sum().backward()
    for b, (rows, columns) in enumerate(zip(used_q.tolist(), used_k.tolist(), strict=True)):
        cut = {"q": data["q"][b:b + 1, :rows], "k": data["k"][b:b + 1, :columns],
               "v": data["v"][b:b + 1, :columns]}
        cut = {key: x.clone().requires_grad_() for key, x in cut.items()}
        alone, _ = attend(**cut, **mask)
        alone.square().sum().backward()
        assert torch.allclose(out[b:b + 1, :rows], alone, atol=1e-5)
        assert (out[b, rows:] == 0).all() and torch.isneginf(lse[b, :, rows:]).all()
        for key, x in cut.items():
            used = x.shape[1]
            assert torch.allclose(whole[key].grad[b:b + 1, :used], x.grad, atol=1e-4), key
            assert (whole[key].grad[b, used:] == 0).all(), key


# ---- dropout ------------------------------------------------------------------------------------


def kept_of(data, seed, **options):
    """Which elements of the softmax are kept: where V is an identity for some columns and 0 for
    the others, the output shows it. What is dropped does not depend on V."""
    q, k, width = data["q"], data["k"], data["v"].shape[-1]
    parts = []
    for first in range(0, k.shape[1], width):
        v = torch.zeros(*k.shape[:3], width, device=q.device, dtype=q.dtype)
        some = min(width, k.shape[1] - first)
        v[:, first:first + some, :, :some] = torch.eye(some, device=q.device)[:, None]
        torch.manual_seed(seed)
        parts.append(attile_torch.attention(q, k, v, **options)[..., :some] != 0)
    return torch.cat(parts, -1).transpose(1, 2)


def compare_dropped(data, options, seed=5):
    """Compares results and gradients to the formula's with the same elements dropped."""
    kept = kept_of({key: x.detach() for key, x in data.items()}, seed, **options)

    def same_draw(kept, **rest):
        torch.manual_seed(seed)
        return attend(**rest)

    compare(same_draw, data, {**options, "kept": kept})


@pytest.mark.parametrize("dtype", DTYPES if FULL else DTYPES[:1], ids=str)
def test_dropout(device, dtype):
    compare_dropped(tensors(device, dtype, 60, 150), {"causal": True, "dropout_p": 0.17})


def test_dropout_statistics(device):
    data = tensors(device, torch.float32, 64, 64, batch=8, grads=False)
    for p in (0.1, 0.5, 0.9):
        kept = kept_of(data, 7, dropout_p=p)
        count = kept.numel()
        assert abs(kept.float().mean().item() - (1 - p)) < 5 * (p * (1 - p) / count) ** 0.5
        assert torch.equal(kept, kept_of(data, 7, dropout_p=p))


def test_dropout_draws_anew(device):
    """What two calls drop is independent of each other."""
    data = tensors(device, torch.float32, 64, 64, batch=8, grads=False)
    data["v"] = torch.eye(64, device=device)[None, :, None].expand(data["v"].shape)
    first, second = (attile_torch.attention(**data, dropout_p=0.5) != 0 for _ in range(2))
    both = (first & second).float().mean().item()
    assert abs(both - 0.25) < 5 / first.numel() ** 0.5


def test_dropout_keeps_the_mean(device):
    data = tensors(device, torch.float32, 16, 64, grads=False)
    plain = attile_torch.attention(**data)
    total = sum(attile_torch.attention(**data, dropout_p=0.3) for _ in range(200)) / 200
    assert (total - plain).abs().mean() < 0.05 * plain.abs().mean() + 0.02
