# SPDX-License-Identifier: MIT
"""From tensors to calls of `decode` and `append`, as `_call.py` has it for the other passes.

A plan has what follows from shapes, strides, types and options; `_decode.py` has checked these as
far as the library cannot. Scratch memory of `decode` is here, too.
"""
import struct
from typing import NamedTuple

import torch

from . import _call, _variants
from ._call import BSHD, PACKED, OnDevice

# AttileTorchDecode in kernel.h, and AttileTorchAppend in append.h: the words of a plan, and the
# addresses. Both end with an AttileTorchCache of call.h, six words and six addresses; a decode's
# splits follow.
_DECODE = struct.Struct("=6q6q3q")
_APPEND = struct.Struct("=12q15q")
_APPEND_DATA = struct.Struct("=10q6q6q")
DECODE_BYTES = _call.CALL_BYTES + _DECODE.size
APPEND_BYTES = _APPEND.size + _APPEND_DATA.size

_NO_BIAS, _NO_GRADIENTS = (0,) * 4, (0,) * 7
SPLITS = {"none": 0, "fill": 1}  # a number of keys has kind 2
_FIXED = 2


class Where(NamedTuple):
    """The tensors that say where queries, or new rows, and keys are; None for what is not there."""
    cu_seqlens_q: torch.Tensor
    seqused_q: torch.Tensor
    seqused_k: torch.Tensor
    page_table: torch.Tensor
    cache_batch_idx: torch.Tensor
    leftpad_k: torch.Tensor

    @property
    def kind(self):
        """A key of _variants.CACHES."""
        keys = "cached" if self.page_table is None else "paged"
        return keys if self.cu_seqlens_q is None else f"{keys}_packed"

    def batch(self, queries):
        return queries.shape[0] if self.cu_seqlens_q is None else self.cu_seqlens_q.shape[0] - 1


class DecodeOptions(NamedTuple):
    """What a call of attention_decode has beside tensors."""
    max_q: int  # bounds of the lengths; None: what the tensors have
    max_k: int
    scale: float  # None: 1 / sqrt(head_dim)
    mask: int  # see _call.MASKS
    left: int
    right: int
    softcap: float
    splits: int
    split_keys: int


class AppendOptions(NamedTuple):
    """What a call of append has beside tensors."""
    max_q: int
    max_k: int
    interleaved: bool


def splits_of(splits):
    """(kind, keys) of the argument `splits`; None where it is none of its values."""
    if isinstance(splits, str):
        kind = SPLITS.get(splits)
        return None if kind is None else (kind, 0)
    return None if isinstance(splits, bool) or not isinstance(splits, int) else (_FIXED, splits)


# ---- variants -----------------------------------------------------------------------------------


def append_variant(device, dtype, sequences, rotary):
    """The variant that serves a call of append: `rotary` is the tables' dtype, or None."""
    return _variants.AppendVariant(_call.architecture(device), _call.DTYPES[dtype], sequences,
                                   "" if rotary is None else _call.DTYPES[rotary])


# ---- plans --------------------------------------------------------------------------------------


def _bounds(queries, cache, where, max_q, max_k):
    """(rows, keys) of the longest sequence that there may be."""
    rows = queries.shape[0] if where.cu_seqlens_q is not None else queries.shape[1]
    keys = cache.shape[1]
    if where.page_table is not None:
        keys = min(keys * where.page_table.shape[1], 2**30)
    return (rows if max_q is None else min(max_q, rows),
            keys if max_k is None else min(max_k, keys))


def _cache_words(queries, cache, where):
    table = where.page_table
    of_table = (0, 0, 0) if table is None else (table.shape[1], table.stride(0), table.shape[0])
    return queries.shape[0], cache.shape[0], cache.shape[1], *of_table


def _cache_addresses(where):
    return [0 if tensor is None else tensor.data_ptr() for tensor in where]


class DecodePlan(OnDevice):
    """What calls of attention_decode have in common whose tensors have the same shapes, strides
    and types, and whose options are the same. `out` is None where it has the usual form."""

    def __init__(self, q, k, v, out, slopes, sinks, where, options):
        super().__init__(q.device)
        layout = BSHD if where.cu_seqlens_q is None else PACKED
        self._out_form = _call.out_form(q.shape, v.shape[-1], layout)
        self._lse_shape = _call.lse_shape(q.shape, layout)
        self._has_gaps = where.seqused_q is not None
        self._copies = q.stride(-1) != 1
        if self._copies:
            q = _call.last_contiguous(q)
        out_strides = self._out_form[1] if out is None else out.stride()
        max_q, max_k = _bounds(q, k, where, options.max_q, options.max_k)
        words = (
            self._index or 0, where.batch(q), q.shape[-2], k.shape[2], max_q, max_k, q.shape[-1],
            v.shape[-1], options.left, options.right, 0, 0, int(options.scale is not None),
            options.scale or 0.0, options.softcap, 0.0,
            0 if slopes is None or slopes.dim() < 2 else slopes.stride(0))
        order = _call.order
        self._words = _call.PLAN.pack(
            *words, *order(q.stride(), layout), *order(k.stride(), BSHD), *order(v.stride(), BSHD),
            *order(out_strides, layout), *_NO_BIAS) + _call.NO_BACKWARD
        self._cache_words = _cache_words(q, k, where)
        self._splits = options.splits, options.split_keys
        self._is_split = options.splits != 0 and self._index is not None
        self._size = None  # of scratch memory, when it has been asked for
        self._variant = _call.variant_of(
            self._device, q.dtype, q.shape[-1], v.shape[-1], options, softcap=options.softcap != 0,
            alibi=slopes is not None, sequences=where.kind,
            sinks=None if sinks is None else sinks.dtype)
        self._library = None

    def out(self, q):
        """The output. The kernels do not write rows of no sequence, which are 0 where there may be
        some between others."""
        out = q.new_empty_strided(*self._out_form)
        return out.zero_() if self._has_gaps else out

    def lse(self, q):
        lse = q.new_empty(self._lse_shape, dtype=torch.float32)
        return lse.fill_(float("-inf")) if self._has_gaps else lse

    def run(self, q, k, v, out, lse, slopes, sinks, where, keeps_scratch):
        """Writes out, and lse where it is not None."""
        library = self._library
        if library is None:
            library = self._library = _call.request(self._variant, DECODE_BYTES).result()
        if self._copies:
            q = _call.last_contiguous(q)
        machine = self._machine()
        call = self._words + _call.DATA.pack(
            *machine, q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(),
            _call.address(lse), 0, _call.address(slopes), _call.address(sinks), 0, 0, 0, 0, 0, 0,
            0, *_NO_GRADIENTS)
        cache = (*self._cache_words, *_cache_addresses(where), *self._splits)
        if not self._is_split:
            self._run(library, call + _DECODE.pack(*cache, 0))
            return
        if self._size is None:
            self._size = self._ask_size(library, call + _DECODE.pack(*cache, 0))
        if not keeps_scratch:
            self._run(library, call + _DECODE.pack(*cache, 1), self._scratch(self._size))
            return
        key = self._index, machine[0], library.capture(machine[0])
        memory = _ready.get(key)
        if memory is not None and memory.numel() >= self._size:
            try:
                self._run(library, call + _DECODE.pack(*cache, 0), memory)
            except BaseException:
                _ready.pop(key, None)  # a launch that did not end leaves it in any state
                raise
            return
        memory = self._scratch(self._size)
        self._run(library, call + _DECODE.pack(*cache, 1), memory)
        _keep(key, memory)


# Scratch memory that is ready for the next call, by device, stream and capture. Calls of a stream
# follow each other, and each leaves the memory ready for the next. A captured graph may be replayed
# on any stream: it has memory of its own, in the graph's pool, which its first call makes ready at
# every replay. When a later call finds that the capture has ended, the memory is given back to that
# pool, where the graph still has it.
_ready = {}


def _keep(key, memory):
    index, _, capture = key
    for other in list(_ready):
        if other[0] == index and other[2] not in (0, capture):
            _ready.pop(other, None)
    _ready[key] = memory


class AppendPlan(OnDevice):
    """The same of append."""

    def __init__(self, k_new, v_new, k, v, q, cos, sin, where, options):
        super().__init__(k_new.device)
        layout = BSHD if where.cu_seqlens_q is None else PACKED
        order = _call.order
        max_q, max_k = _bounds(k_new, k, where, options.max_q, options.max_k)
        rotary = (0, 0, 0) if cos is None else (cos.shape[0], 2 * cos.shape[1], cos.stride(0))
        self._words = _APPEND.pack(
            self._index or 0, where.batch(k_new), 0 if q is None else q.shape[-2], k.shape[2],
            max_q, max_k, k.shape[-1], v.shape[-1], *rotary, int(options.interleaved),
            *order(k_new.stride(), layout), *order(v_new.stride(), layout),
            *order(k.stride(), BSHD), *order(v.stride(), BSHD),
            *((0, 0, 0) if q is None else order(q.stride(), layout)))
        self._cache_words = _cache_words(k_new, k, where)
        self._variant = append_variant(self._device, k.dtype, where.kind,
                                       None if cos is None else cos.dtype)
        self._library = None

    def run(self, k_new, v_new, k, v, q, cos, sin, rotary_seqlens, dropped, where):
        """Writes into k, v, q and dropped."""
        library = self._library
        if library is None:
            library = self._library = _call.request(self._variant, APPEND_BYTES).result()
        address = _call.address
        self._run(library, self._words + _APPEND_DATA.pack(
            self._machine()[0], k_new.data_ptr(), v_new.data_ptr(), k.data_ptr(), v.data_ptr(),
            address(q), address(cos), address(sin), address(rotary_seqlens), address(dropped),
            *self._cache_words, *_cache_addresses(where)))
