# SPDX-License-Identifier: MIT
"""From tensors to a call of a variant: one struct.pack, one or two calls of C.

What is here runs for each attention call of a model, so that it has few Python operations; the
arguments have been checked by `_operators.py` as far as the library cannot check them.
"""
import os
import struct
from typing import NamedTuple

import torch

from . import _variants

# AttileTorchCall in kernel.h; the forward pass leaves zeros where the backward pass has more.
_FORMAT = struct.Struct("=45q3d23q")
_NOTHING = (0,) * 23
_NO_BIAS = (0, 0, 0, 0, 0)

_DTYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
_CPUS = os.cpu_count() or 1
_libraries = {}, {}  # by what _key says; forward, backward

# Layouts of Q, K, V and O.
BSHD, BHSD, PACKED = 0, 1, 2  # (batch, row, head, dim), (batch, head, row, dim), (row, head, dim)
# Masks, by number: an operator's argument. A window has two more numbers.
MASKS = ("", "causal", "top_left", "window")


class Options(NamedTuple):
    """What forward and backward have in common beside tensors."""
    layout: int
    max_q: int  # of sequences with lengths of their own: bounds of the lengths; else not used
    max_k: int
    scale: float  # None: 1 / sqrt(head_dim)
    mask: int
    left: int
    right: int
    softcap: float
    dropout: float
    in_order: bool


class Extras(NamedTuple):
    """The tensors beside Q, K and V; None for what is not there."""
    bias: torch.Tensor
    slopes: torch.Tensor
    sinks: torch.Tensor
    rng: torch.Tensor
    cu_seqlens_q: torch.Tensor
    cu_seqlens_k: torch.Tensor
    seqused_q: torch.Tensor
    seqused_k: torch.Tensor


def _view(tensor, layout):
    """The address, and the strides of batch, head and row."""
    s = tensor.stride()
    if layout == BSHD:
        return tensor.data_ptr(), s[0], s[2], s[1]
    if layout == BHSD:
        return tensor.data_ptr(), s[0], s[1], s[2]
    return tensor.data_ptr(), 0, s[1], s[0]


def _address(tensor):
    return 0 if tensor is None else tensor.data_ptr()


def _bias(tensor):
    """The address and strides of a bias; an axis that it lacks, or of one element, has 0."""
    missing = 4 - tensor.dim()
    strides = [0 if size == 1 else stride
               for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    return (tensor.data_ptr(), *(0,) * missing, *strides)


_architectures = {}


def _architecture(device):
    """What nvcc calls the device's compute capability: with the features of that device alone."""
    if device.type != "cuda":
        return ""
    arch = _architectures.get(device.index)
    if arch is None:
        major, minor = torch.cuda.get_device_capability(device)
        arch = _architectures[device.index] = f"{major}{minor}{'a' if major >= 9 else ''}"
    return arch


def variant_of(device, dtype, head_dim, head_dim_v, options, *, softcap=False, alibi=False,
               bias=None, bias_gradient=False, dropout=False, sequences="", sinks=None,
               backward=False):
    """The variant that serves a call: `bias` and `sinks` are element types, or None."""
    arch = _architecture(device)
    d, dv = _variants.kernel_dims(head_dim, head_dim_v) if arch else (0, 0)
    return _variants.Variant(
        arch, _DTYPES[dtype], d, dv, MASKS[options.mask], softcap, alibi,
        "" if bias is None else _DTYPES[bias], bias_gradient and backward, dropout, sequences,
        "" if sinks is None else _DTYPES[sinks], backward,
        options.in_order and backward and bool(arch))


def _key(q, v, extras, options, bias_gradient):
    """What chooses the variants of a problem, of both directions."""
    bias, sinks = extras.bias, extras.sinks
    sequences = 2 if options.layout == PACKED else int(has_gaps(extras))
    return (q.device, q.dtype, q.shape[-1], v.shape[-1], options.mask, options.in_order,
            options.softcap != 0, extras.slopes is not None, None if bias is None else bias.dtype,
            bias_gradient, extras.rng is not None, sequences,
            None if sinks is None else sinks.dtype)


def _request(key, options, backward):
    """A future of a key's variant: compiling it, where it is not there yet, takes seconds."""
    device, dtype, head_dim, head_dim_v, _, _, softcap, alibi, bias, learned, dropout, own, sinks \
        = key
    variant = variant_of(device, dtype, head_dim, head_dim_v, options, softcap=softcap,
                         alibi=alibi, bias=bias, bias_gradient=learned, dropout=dropout,
                         sequences=("", "padded", "packed")[own], sinks=sinks, backward=backward)
    return _variants.request(variant, _FORMAT.size)


def _library(key, options, backward):
    found = _libraries[backward].get(key)
    if found is None:
        found = _libraries[backward][key] = _request(key, options, backward).result()
    return found


def prebuild(*wanted):
    """Compiles variants in parallel, and returns when all are there; both directions of each.

    Each of `wanted` is a dict: dtype, head_dim, and if it differs head_dim_v, causal, window (True
    for any), softcap, alibi, dropout and deterministic (True or False), bias and sinks (a dtype),
    bias_gradient, sequences ("padded", "packed"), backward (False: forward alone), device.
    """
    variants = []
    for want in wanted:
        want = dict(want)
        device = torch.device(want.pop("device", "cuda" if torch.cuda.is_available() else "cpu"))
        dtype, head_dim = want.pop("dtype"), want.pop("head_dim")
        head_dim_v = want.pop("head_dim_v", head_dim)
        causal, window = want.pop("causal", False), want.pop("window", False)
        mask = "window" if window else {False: "", True: "causal"}.get(causal, causal)
        options = Options(BSHD, 0, 0, None, MASKS.index(mask), -1, -1, 0.0, 0.0,
                          want.pop("deterministic", False))
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        for backward in (False, True) if want.pop("backward", True) else (False,):
            variants.append(variant_of(device, dtype, head_dim, head_dim_v, options, **want,
                                       backward=backward))
    for future in [_variants.request(variant, _FORMAT.size) for variant in variants]:
        future.result()


def _threads():
    """The CPU executor's threads; 0 lets it choose."""
    threads = torch.get_num_threads()
    return 0 if threads >= _CPUS else threads


def _common(q, k, v, o, lse, extras, options):
    """The words of a call that both directions have."""
    layout = options.layout
    bias, slopes = extras.bias, extras.slopes
    device = q.device
    if layout == PACKED:
        batch, q_len, kv_len = extras.cu_seqlens_q.shape[0] - 1, options.max_q, options.max_k
        total_q, total_k = q.shape[0], k.shape[0]
        q_heads, kv_heads = q.shape[1], k.shape[1]
    else:
        row, head = (1, 2) if layout == BSHD else (2, 1)
        shape, kv_shape = q.shape, k.shape
        batch, q_len, q_heads = shape[0], shape[row], shape[head]
        kv_len, kv_heads, total_q, total_k = kv_shape[row], kv_shape[head], 0, 0
    if device.type == "cuda":
        index, stream, threads = device.index, current_stream(device.index), 0
    else:
        index, stream, threads = 0, 0, _threads()
    return (
        *_view(q, layout), *_view(k, layout), *_view(v, layout), *_view(o, layout),
        _address(lse), batch, q_heads, kv_heads, q_len, kv_len, q.shape[-1], v.shape[-1],
        options.left, options.right,
        *(_NO_BIAS if bias is None else _bias(bias)),
        _address(slopes), 0 if slopes is None or slopes.dim() < 2 else slopes.stride(0),
        _address(extras.sinks), _address(extras.rng),
        _address(extras.cu_seqlens_q), _address(extras.cu_seqlens_k),
        _address(extras.seqused_q), _address(extras.seqused_k), total_q, total_k,
        index, stream, threads, int(options.scale is not None),
        options.scale or 0.0, options.softcap, options.dropout)


try:
    current_stream = torch._C._cuda_getCurrentRawStream
except AttributeError:  # a PyTorch without CUDA, or a later one
    def current_stream(index):
        return torch.cuda.current_stream(index).cuda_stream


def _workspace(size, device):
    return torch.empty(size, dtype=torch.uint8, device=device)


def _run(library, call, workspace, device):
    address, size = (0, 0) if workspace is None else (workspace.data_ptr(), workspace.numel())
    if device.type == "cuda" and torch.cuda.current_device() != device.index:
        with torch.cuda.device(device):
            error = library.run(call, address, size)
    else:
        error = library.run(call, address, size)
    if error:
        library.explain(call, error)


def has_gaps(extras):
    """Whether rows of the tensors may belong to no sequence: the kernels never write these."""
    return extras.seqused_q is not None or extras.seqused_k is not None


def out_like(q, v, options, zeros=False):
    """The output: (batch, row, head, dim) in memory, whatever the layout, so that joining heads
    costs no copy."""
    make = torch.zeros if zeros else torch.empty
    shape = (*q.shape[:-1], v.shape[-1])
    if options.layout == BHSD:
        b, h, s, d = shape
        return make((b, s, h, d), dtype=q.dtype, device=q.device).transpose(1, 2)
    return make(shape, dtype=q.dtype, device=q.device)


def lse_like(q, options, gaps=False):
    """LSE: (batch, head, row), of packed sequences (head, row)."""
    shape = q.shape
    if options.layout == PACKED:
        shape = (shape[1], shape[0])
    elif options.layout == BHSD:
        shape = shape[:3]
    else:
        shape = (shape[0], shape[2], shape[1])
    if gaps:
        return torch.full(shape, float("-inf"), dtype=torch.float32, device=q.device)
    return torch.empty(shape, dtype=torch.float32, device=q.device)


def grad_like(tensor, zeros=False):
    """A gradient with the tensor's order of axes in memory, and its last axis contiguous."""
    if tensor.stride(-1) == 1:
        return torch.zeros_like(tensor) if zeros else torch.empty_like(tensor)
    return tensor.new_zeros(tensor.shape) if zeros else tensor.new_empty(tensor.shape)


def _last_contiguous(tensor):
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def forward(q, k, v, extras, options, want_lse=True, then_backward=False, bias_gradient=False):
    """(out, lse); lse is None where it is not wanted. A backward pass that is to follow is begun to
    be compiled, so that both directions take one wait."""
    key = _key(q, v, extras, options, bias_gradient)
    if then_backward and key not in _libraries[True]:
        _request(key, options, True)
    library = _library(key, options, False)
    q, k, v = _last_contiguous(q), _last_contiguous(k), _last_contiguous(v)
    out = out_like(q, v, options, has_gaps(extras))
    lse = lse_like(q, options, has_gaps(extras)) if want_lse else None
    call = _FORMAT.pack(*_common(q, k, v, out, lse, extras, options), *_NOTHING)
    own_lengths = options.layout == PACKED or has_gaps(extras)
    workspace = _workspace(16, q.device) if own_lengths and q.is_cuda else None
    _run(library, call, workspace, q.device)
    return out, lse


def backward(dout, dlse, q, k, v, out, lse, extras, options, bias_gradient, sinks_gradient):
    """(dq, dk, dv, dbias, dsinks); the last two are None where they are not wanted, and fp32."""
    library = _library(_key(q, v, extras, options, bias_gradient), options, True)
    dq, dk, dv = (grad_like(x, has_gaps(extras)) for x in (q, k, v))
    q, k, v = _last_contiguous(q), _last_contiguous(k), _last_contiguous(v)
    dout = _last_contiguous(dout)
    dlse = None if dlse is None else dlse.contiguous()
    dbias = torch.empty(extras.bias.shape, dtype=torch.float32, device=q.device) \
        if bias_gradient else None
    dsinks = torch.empty(extras.sinks.shape, dtype=torch.float32, device=q.device) \
        if sinks_gradient else None
    layout = options.layout
    call = _FORMAT.pack(
        *_common(q, k, v, out, lse, extras, options),
        *_view(dout, layout), *_view(dq, layout), *_view(dk, layout), *_view(dv, layout),
        *(_NO_BIAS if dbias is None else _bias(dbias)), _address(dlse), _address(dsinks))
    workspace = None
    if q.is_cuda:
        size = library.workspace(call)
        if size < 0:
            library.explain(call, 1)
        workspace = _workspace(size, q.device)
    _run(library, call, workspace, q.device)
    return dq, dk, dv, dbias, dsinks
