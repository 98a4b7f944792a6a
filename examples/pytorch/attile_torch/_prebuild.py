# SPDX-License-Identifier: MIT
"""Compiles variants before they are asked for."""
import torch

from . import _cache, _call, _variants


def prebuild(*wanted):
    """Compiles variants in parallel, and returns when all are there.

    Each of `wanted` is a dict: dtype, device, sequences ("padded", "packed"; of keys in a cache
    "cached", "cached_packed", "paged", "paged_packed"), and

    - of attention, both directions, and of attention_decode: head_dim, and if it differs
      head_dim_v, causal, window (True for any), softcap, alibi, dropout and deterministic (True or
      False), bias and sinks (a dtype), bias_gradient, backward (False: forward alone);
    - of append: append (True), rotary (the dtype of its tables, None without).
    """
    requests = []
    for want in wanted:
        want = dict(want)
        device = torch.device(want.pop("device", "cuda" if torch.cuda.is_available() else "cpu"))
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        add = _append if want.pop("append", False) else _attention
        requests += add(device, **want)
    for request in requests:
        request.result()


def _append(device, *, dtype, sequences, rotary=None):
    variant = _cache.append_variant(device, dtype, sequences, rotary)
    return [_call.request(variant, _cache.APPEND_BYTES)]


def _attention(device, *, dtype, head_dim, head_dim_v=None, causal=False, window=False,
               deterministic=False, sequences="", backward=True, **kinds):
    mask = "window" if window else {False: "", True: "causal"}.get(causal, causal)
    options = _call.Options(_call.BSHD, 0, 0, None, _call.MASKS.index(mask), -1, -1, 0.0, 0.0,
                            deterministic)
    decodes = sequences in _variants.CACHES
    size = _cache.DECODE_BYTES if decodes else _call.CALL_BYTES
    return [_call.request(
        _call.variant_of(device, dtype, head_dim, head_dim_v or head_dim, options, **kinds,
                         sequences=sequences, backward=direction), size)
        for direction in ((False, True) if backward and not decodes else (False,))]
