# SPDX-License-Identifier: MIT
"""The shapes of PyTorch's own tests of scaled_dot_product_attention and varlen_attn, and of
FlashAttention's, with gradients, against the formula in fp64. Of a grid's axes that change no
kernel each case takes one value, by turns."""
import itertools

import pytest
import torch
from reference import FULL, attention, clone, compare
from test_attention import attend, compare_dropped, tensors
from test_varlen import compare_packed, packed
from torch.nn.functional import scaled_dot_product_attention

if not FULL:
    pytest.skip("the grids run on a GPU, or by test.sh --all", allow_module_level=True)
HALVES = [torch.float16, torch.bfloat16]
HEADS = [(4, 4), (16, 8), (10, 2)]
LENGTHS = [*itertools.product([4, 143, 2048], [4, 127, 579, 2048])]


@pytest.fixture(autouse=True)
def give_memory_back():
    """Several processes share the GPU."""
    yield
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def turns(values, *numbers):
    """One of the values, by numbers of the case."""
    return values[sum(numbers) % len(values)]


# ---- PyTorch ------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("causal", [False, "top_left"])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("dim", [8, 203, 256])
def test_sdpa(device, dim, dtype, causal, lengths, heads):
    batch = 8 if lengths[0] * lengths[1] <= 2**18 else 1
    data = tensors(device, dtype, *lengths, heads, dim, batch=batch)
    scale = turns([None, 1 / dim], *lengths, dim, heads[0] // 2)
    with torch.no_grad():  # the formula is SDPA's
        exact = [clone(data[key], torch.float64) for key in "qkv"]
        formula = attention(*exact, causal=causal, scale=scale)[0]
        sdpa = scaled_dot_product_attention(*(x.transpose(1, 2) for x in exact), scale=scale,
                                            is_causal=bool(causal), enable_gqa=True)
        assert (formula - sdpa.transpose(1, 2)).abs().max() < 1e-12
    compare(attend, data, {"causal": causal, "scale": scale})


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (4, 0), (-1, 4), (0, 0), (1, 0), (0, 1),
                                    (0, -1), (4, 4), (8, 2), (1025, 1025)], ids=str)
@pytest.mark.parametrize("scale", [None, 0.1])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_varlen_attn(device, dtype, scale, window):
    lengths = (torch.randint(1, 17, (4,)) * 64).tolist()
    compare_packed(packed(device, dtype, (lengths, lengths), (16, 16)),
                   {"window": window, "scale": scale})


# ---- FlashAttention -----------------------------------------------------------------------------

MASKS = [{}, {"causal": True}, {"window": (23, 11)}]
DIMS = [32, 40, 59, 64, 80, 96, 111, 128, 160, 192, 224, 256]
FLASH_HEADS = [(6, 6), (6, 1), (6, 2)]


@pytest.mark.parametrize("lengths", [(113, 203), (512, 256), (1023, 1024)], ids=str)
@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize("dim", DIMS)
def test_dims(device, dim, mask, lengths):
    dtype = turns(HALVES, DIMS.index(dim))
    heads = turns(FLASH_HEADS, *lengths, dim)
    compare(attend, tensors(device, dtype, *lengths, heads, dim), mask)


@pytest.mark.parametrize("lengths", [(113, 203), (256, 512), (1023, 1024)], ids=str)
@pytest.mark.parametrize("options", [
    {"softcap": 50.0}, {"softcap": 50.0, "window": (23, 11)}, {"alibi": True},
    {"alibi": True, "window": (23, 11)}, {"alibi": True, "softcap": 50.0, "causal": True},
    {"dropout_p": 0.17}, {"dropout_p": 0.17, "window": (23, 11)},
    {"dropout_p": 0.17, "causal": True, "alibi": True},
    {"dropout_p": 0.17, "causal": True, "softcap": 50.0}], ids=str)
@pytest.mark.parametrize(("dtype", "dim"), [(torch.float16, 64), (torch.bfloat16, 128)], ids=str)
def test_options(device, dtype, dim, options, lengths):
    options = dict(options)
    data = tensors(device, dtype, *lengths, turns(FLASH_HEADS, *lengths), dim)
    if options.pop("alibi", False):
        options["alibi_slopes"] = torch.rand(2, 6, device=device) * 0.3
    run = compare_dropped if "dropout_p" in options else compare_plain
    run(data, options)


def compare_plain(data, options):
    compare(attend, data, options)


@pytest.mark.parametrize("lengths", [(113, 203), (1023, 1024)], ids=str)
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_deterministic(device, mask, lengths):
    def in_order(**arguments):
        return attend(**arguments, deterministic=True)

    compare(in_order, tensors(device, torch.float16, *lengths, (6, 2)), mask)


@pytest.mark.parametrize("lengths", [
    (1, 147), (113, 203), (128, 217), (113, 211), (108, 256), (256, 512), (512, 256), (1024, 1024),
    (1023, 1024), (1024, 1023), (2048, 2048)], ids=str)
@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_packed(device, dtype, mask, lengths):
    """Sequences of random lengths up to these."""
    some = [torch.randint(max(1, most // 3), most + 1, (4,)).tolist() for most in lengths]
    compare_packed(packed(device, dtype, some, turns(FLASH_HEADS, *lengths)), mask)
