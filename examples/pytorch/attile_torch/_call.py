# SPDX-License-Identifier: MIT
"""From tensors to a call of a variant.

A Plan has what follows from shapes, strides, types and options; `_operators.py` keeps plans, and
has checked what one is made of as far as the library cannot. What is left for a call of a model is
to allocate results, to pack addresses behind the plan's words, and one call of C.
"""
import os
import struct
from typing import NamedTuple

import torch

from . import _variants

# AttileTorchCall in kernel.h: the words of a plan, of which the last ones are those of the backward
# pass, and the addresses.
PLAN = struct.Struct("=13q3d17q")
_BACKWARD = struct.Struct("=16q")
DATA = struct.Struct("=15q2Q7q")
CALL_BYTES = PLAN.size + _BACKWARD.size + DATA.size
NO_BACKWARD = bytes(_BACKWARD.size)

DTYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
_CPUS = os.cpu_count() or 1

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
    cu_seqlens_q: torch.Tensor
    cu_seqlens_k: torch.Tensor
    seqused_q: torch.Tensor
    seqused_k: torch.Tensor


NO_EXTRAS = Extras(*(None,) * 7)
_NO_ADDRESSES = (0,) * 7

# What dropout draws: a tensor of a seed and an offset in device memory, or both as numbers.
NO_DRAW = (None, 0, 0)
SEED_END = 2**63 - 1


def draw_on_device(device):
    """A draw whose numbers are made when a kernel runs: a captured graph, and a compiled one, draw
    afresh at every replay."""
    return torch.randint(0, SEED_END, (2,), dtype=torch.int64, device=device)


def draw(device):
    """A draw from PyTorch's generator, whose numbers the host has: without work for the device but
    in a stream that is captured."""
    if device.type != "cuda":
        return (None, *draw_on_device(device).tolist())
    if torch.cuda.is_current_stream_capturing():
        return draw_on_device(device), 0, 0
    # As PyTorch's own kernels do, which take a seed and advance the offset by multiples of 4.
    generator = torch.cuda.default_generators[device.index]
    offset = generator.get_offset()
    generator.set_offset(offset + 4)
    return None, generator.initial_seed(), offset


# ---- variants -----------------------------------------------------------------------------------

_architectures = {}


def architecture(device):
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
    arch = architecture(device)
    d, dv = _variants.kernel_dims(head_dim, head_dim_v) if arch else (0, 0)
    return _variants.Variant(
        arch, DTYPES[dtype], d, dv, MASKS[options.mask], softcap, alibi,
        "" if bias is None else DTYPES[bias], bias_gradient and backward, dropout, sequences,
        "" if sinks is None else DTYPES[sinks], backward,
        backward and options.in_order and bool(arch))


def request(variant, call_bytes=CALL_BYTES):
    """A future of a variant's library: compiling it, where it is not there yet, takes seconds."""
    return _variants.request(variant, call_bytes)


# ---- shapes of results --------------------------------------------------------------------------


def out_like(q, v, layout):
    """The output: (batch, row, head, dim) in memory, whatever the layout, so that joining heads
    costs no copy."""
    return q.new_empty_strided(*out_form(q.shape, v.shape[-1], layout))


def out_form(q_shape, d, layout):
    """The output's shape and strides."""
    if layout == PACKED:
        total, h, _ = q_shape
        return (total, h, d), (h * d, d, 1)
    if layout == BHSD:
        b, h, s, _ = q_shape
        return (b, h, s, d), (s * h * d, d, h * d, 1)
    b, s, h, _ = q_shape
    return (b, s, h, d), (s * h * d, h * d, d, 1)


def lse_like(q, layout):
    """LSE: (batch, head, row), of packed sequences (head, row)."""
    return q.new_empty(lse_shape(q.shape, layout), dtype=torch.float32)


def lse_shape(q_shape, layout):
    if layout == PACKED:
        return q_shape[1], q_shape[0]
    if layout == BHSD:
        return q_shape[:3]
    return q_shape[0], q_shape[2], q_shape[1]


def last_contiguous(tensor):
    """The tensor, or a copy, with a contiguous last axis."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def grad_like(tensor):
    """A gradient with the tensor's order of axes in memory, and its last axis contiguous."""
    if tensor.stride(-1) == 1 or tensor.shape[-1] == 1:
        return torch.empty_like(tensor)
    return tensor.new_empty(tensor.shape)


# ---- plans --------------------------------------------------------------------------------------


def order(strides, layout):
    """The strides of batch, head and row."""
    if layout == BSHD:
        return strides[0], strides[2], strides[1]
    if layout == BHSD:
        return strides[:3]
    return 0, strides[1], strides[0]


def _bias_strides(tensor):
    """The strides of a bias; an axis that it lacks, or of one element, has 0."""
    if tensor is None:
        return 0, 0, 0, 0
    strides = [0 if size == 1 else stride
               for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    return (*(0,) * (4 - len(strides)), *strides)


def address(tensor):
    return 0 if tensor is None else tensor.data_ptr()


def _addresses(extras):
    return _NO_ADDRESSES if extras is NO_EXTRAS else [address(tensor) for tensor in extras]


try:
    _current_stream = torch._C._cuda_getCurrentRawStream
except AttributeError:  # a PyTorch without CUDA, or a later one
    def _current_stream(index):
        return torch.cuda.current_stream(index).cuda_stream


class _Step:
    """A backward pass of a plan, for tensors of certain strides."""
    __slots__ = ("library", "words", "workspace")

    def __init__(self, library, words):
        self.library, self.words = library, words
        self.workspace = None  # its size, when it has been asked for


class OnDevice:
    """How calls of tensors on one device are made."""

    def __init__(self, device):
        self._device = device
        self._index = device.index if device.type == "cuda" else None  # of the GPU

    def _machine(self):
        """The stream, and the number of threads of the CPU executor."""
        if self._index is not None:
            return _current_stream(self._index), 0
        threads = torch.get_num_threads()
        return 0, 0 if threads >= _CPUS else threads

    def _scratch(self, size):
        return torch.empty(size, dtype=torch.uint8, device=self._device)

    def _run(self, library, call, workspace=None):
        """Runs a call with scratch memory, a tensor, where it takes some."""
        memory, size = (0, 0) if workspace is None else (workspace.data_ptr(), workspace.numel())
        if self._index is not None and torch.cuda.current_device() != self._index:
            with torch.cuda.device(self._index):
                error = library.run(call, memory, size)
        else:
            error = library.run(call, memory, size)
        if error:
            library.explain(call, error)

    def _ask_size(self, library, call):
        """The bytes of scratch memory of a call."""
        if self._index is None:
            size = library.workspace(call)
        else:
            with torch.cuda.device(self._index):
                size = library.workspace(call)
        if size < 0:
            library.explain(call, 1)
        return size


class Plan(OnDevice):
    """What calls have in common whose tensors have the same shapes, strides and types, and whose
    options are the same."""

    def __init__(self, q, k, v, extras, options):
        super().__init__(q.device)
        layout = self._layout = options.layout
        self._options = options
        # The kernels never write rows that belong to no sequence.
        self._has_gaps = extras.seqused_q is not None or extras.seqused_k is not None
        self._has_own_lengths = layout == PACKED or self._has_gaps
        self._dims = q.shape[-1], v.shape[-1]
        self._kinds = {
            "softcap": options.softcap != 0, "alibi": extras.slopes is not None,
            "bias": None if extras.bias is None else extras.bias.dtype,
            "dropout": options.dropout != 0,
            "sequences": "packed" if layout == PACKED else "padded" if self._has_gaps else "",
            "sinks": None if extras.sinks is None else extras.sinks.dtype}
        self._out_form = out_form(q.shape, v.shape[-1], layout)
        self._lse_shape = lse_shape(q.shape, layout)
        self._copies = not (q.stride(-1) == k.stride(-1) == v.stride(-1) == 1)
        if self._copies:
            q, k, v = last_contiguous(q), last_contiguous(k), last_contiguous(v)
        if layout == PACKED:
            batch, q_len, kv_len = extras.cu_seqlens_q.shape[0] - 1, options.max_q, options.max_k
            total_q, total_k, head = q.shape[0], k.shape[0], 1
        else:
            row, head = (1, 2) if layout == BSHD else (2, 1)
            batch, q_len, kv_len = q.shape[0], q.shape[row], k.shape[row]
            total_q, total_k = 0, 0
        slopes = extras.slopes
        self._sizes = (
            self._index or 0, batch, q.shape[head], k.shape[head], q_len, kv_len, *self._dims,
            options.left, options.right, total_q, total_k, int(options.scale is not None),
            options.scale or 0.0, options.softcap, options.dropout,
            0 if slopes is None or slopes.dim() < 2 else slopes.stride(0))
        self._words = self._common(q.stride(), k.stride(), v.stride(), self._out_form[1],
                                   extras.bias) + NO_BACKWARD
        self._library = self._backward_request = None
        self._steps = {}

    def _common(self, q, k, v, out, bias):
        """The words that both directions have, from strides of Q, K, V and O."""
        layout = self._layout
        return PLAN.pack(*self._sizes, *order(q, layout), *order(k, layout),
                          *order(v, layout), *order(out, layout), *_bias_strides(bias))

    def _request(self, dtype, backward=False, bias_gradient=False):
        return request(variant_of(self._device, dtype, *self._dims, self._options, **self._kinds,
                                  backward=backward, bias_gradient=bias_gradient))

    def request_backward(self, dtype, bias_gradient):
        """Begins to compile the backward pass, so that both directions take one wait."""
        if self._backward_request is None:
            self._backward_request = self._request(dtype, True, bias_gradient)

    def forward(self, q, k, v, extras, draw, want_lse=True):
        """(out, lse); lse is None where it is not wanted."""
        library = self._library
        if library is None:
            library = self._library = self._request(q.dtype).result()
        if self._copies:
            q, k, v = last_contiguous(q), last_contiguous(k), last_contiguous(v)
        out = q.new_empty_strided(*self._out_form)
        lse = q.new_empty(self._lse_shape, dtype=torch.float32) if want_lse else None
        if self._has_gaps:
            out.zero_()
            if want_lse:
                lse.fill_(float("-inf"))
        rng, seed, offset = draw
        call = self._words + DATA.pack(
            *self._machine(), q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(),
            address(lse), *_addresses(extras), address(rng), seed, offset, 0, 0, 0, 0, 0, 0, 0)
        has_scratch = self._has_own_lengths and self._index is not None
        self._run(library, call, self._scratch(16) if has_scratch else None)
        return out, lse

    def backward(self, dout, dlse, q, k, v, out, lse, extras, draw, bias_gradient,
                 sinks_gradient):
        """(dq, dk, dv, dbias, dsinks); the last two are None where they are not wanted, and
        fp32."""
        if self._copies:
            q, k, v = last_contiguous(q), last_contiguous(k), last_contiguous(v)
        bias = extras.bias
        strides = dout.stride()
        if strides[-1] != 1:
            dout = last_contiguous(dout)
            strides = dout.stride()
        make = torch.zeros_like if self._has_gaps else torch.empty_like
        dq, dk, dv = make(q), make(k), make(v)
        dbias = q.new_empty(bias.shape, dtype=torch.float32) if bias_gradient else None
        dsinks = q.new_empty(extras.sinks.shape, dtype=torch.float32) if sinks_gradient else None
        if dlse is not None:
            dlse = dlse.contiguous()
        # A hook of saved tensors may have changed the strides of all.
        key = (q.stride(), k.stride(), v.stride(), out.stride(), strides,
               None if bias is None else bias.stride(), bias_gradient)
        step = self._steps.get(key)
        if step is None:
            layout = self._layout
            step = self._steps[key] = _Step(
                self._request(q.dtype, True, bias_gradient).result(),
                self._common(*key[:4], bias) + _BACKWARD.pack(
                    *order(strides, layout), *order(dq.stride(), layout),
                    *order(dk.stride(), layout), *order(dv.stride(), layout),
                    *_bias_strides(dbias)))
        rng, seed, offset = draw
        main = (q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr())
        grads = (dout.data_ptr(), address(dlse), dq.data_ptr(), dk.data_ptr(), dv.data_ptr())
        call = step.words + DATA.pack(
            *self._machine(), *main, lse.data_ptr(), *_addresses(extras), address(rng), seed,
            offset, *grads, address(dbias), address(dsinks))
        size = 0
        if self._index is not None:
            size = self._workspace(step, call, (*main, *grads))
        self._run(step.library, call, self._scratch(size) if size > 0 else None)
        return dq, dk, dv, dbias, dsinks

    def _workspace(self, step, call, addresses):
        """The size of a backward pass's workspace. Which kernels run, and so the size, is the same
        for all addresses that are multiples of 16 bytes."""
        bits = 0
        for address in addresses:
            bits |= address
        aligned = bits % 16 == 0
        if aligned and step.workspace is not None:
            return step.workspace
        size = self._ask_size(step.library, call)
        if aligned:
            step.workspace = size
        return size
