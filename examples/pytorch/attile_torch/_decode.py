# SPDX-License-Identifier: MIT
"""attention_decode and append, and the operators behind them that torch.compile sees.

As of attention, eager calls go straight to the library, and others through the custom operators
attile::decode and attile::append. Both write into tensors that they are given.
"""
from typing import Optional

import torch
from torch import Tensor

from . import _cache, _call
from ._cache import AppendOptions, AppendPlan, DecodeOptions, DecodePlan, Where
from ._call import BSHD, PACKED
from ._operators import (_check_heads, _check_lengths, _masks, _nobody_looks_on,
                         _refuse_tangents, _require)


class DroppedRowsError(RuntimeError):
    """`append` had new rows for which the cache has no row."""


# ---- the operators ------------------------------------------------------------------------------


@torch.library.custom_op("attile::decode", mutates_args=("out", "lse"))
def decode_op(q: Tensor, k_cache: Tensor, v_cache: Tensor, out: Tensor, lse: Optional[Tensor],
              slopes: Optional[Tensor], sinks: Optional[Tensor], cu_seqlens_q: Optional[Tensor],
              seqused_q: Optional[Tensor], seqused_k: Optional[Tensor],
              page_table: Optional[Tensor], cache_batch_idx: Optional[Tensor],
              leftpad_k: Optional[Tensor], max_q: Optional[int], max_k: Optional[int],
              scale: Optional[float], mask: int, left: int, right: int, softcap: float,
              splits: int, split_keys: int) -> None:
    """O and LSE of the keys of a cache. Scratch memory is the call's own: what runs here may be
    captured, and its memory be taken from a pool that wants it back."""
    where = Where(cu_seqlens_q, seqused_q, seqused_k, page_table, cache_batch_idx, leftpad_k)
    options = (max_q, max_k, scale, mask, left, right, softcap, splits, split_keys)
    plan = _decode_plan(q, k_cache, v_cache, out, slopes, sinks, where, options)
    plan.run(q, k_cache, v_cache, out, lse, slopes, sinks, where, False)


@torch.library.custom_op("attile::append", mutates_args=("k_cache", "v_cache", "q", "dropped"))
def append_op(k_new: Tensor, v_new: Tensor, k_cache: Tensor, v_cache: Tensor, q: Optional[Tensor],
              rotary_cos: Optional[Tensor], rotary_sin: Optional[Tensor],
              rotary_seqlens: Optional[Tensor], dropped: Optional[Tensor],
              cu_seqlens_q: Optional[Tensor], seqused_q: Optional[Tensor], seqused_k: Tensor,
              page_table: Optional[Tensor], cache_batch_idx: Optional[Tensor],
              leftpad_k: Optional[Tensor], max_q: Optional[int], max_k: Optional[int],
              interleaved: bool) -> None:
    """Writes new keys and values into the cache, and rotates."""
    where = Where(cu_seqlens_q, seqused_q, seqused_k, page_table, cache_batch_idx, leftpad_k)
    tensors = (k_new, v_new, k_cache, v_cache, q, rotary_cos, rotary_sin, rotary_seqlens, dropped)
    _append_plan(tensors, where, (max_q, max_k, interleaved)).run(*tensors, where)


@decode_op.register_fake
def _(*arguments):
    return None


@append_op.register_fake
def _(*arguments):
    return None


# ---- plans --------------------------------------------------------------------------------------

_plans = {}
_MOST_PLANS = 1024  # lengths that differ at each call make a plan each


def _key_of(tensors):
    return tuple(x if x is None else (x.shape, x.stride(), x.dtype, x.device) for x in tensors)


def _keep(key, plan):
    if len(_plans) >= _MOST_PLANS:
        _plans.clear()
    _plans[key] = plan
    return plan


def _decode_plan(q, k, v, out, slopes, sinks, where, options):
    key = _key_of((q, k, v, out, slopes, sinks, *where)), options
    plan = _plans.get(key)
    if plan is None:
        _check_decode(q, k, v, out, slopes, sinks, where)
        plan = _keep(key, DecodePlan(q, k, v, out, slopes, sinks, where, DecodeOptions(*options)))
    return plan


def _append_plan(tensors, where, options):
    key = _key_of((*tensors, *where)), options
    plan = _plans.get(key)
    if plan is None:
        _check_append(*tensors, where)
        k_new, v_new, k, v, q, cos, sin, *_ = tensors
        plan = _keep(key, AppendPlan(k_new, v_new, k, v, q, cos, sin, where,
                                     AppendOptions(*options)))
    return plan


# ---- what the library cannot check ---------------------------------------------------------------


def _check_where(name, queries, k, v, where):
    """Checks queries, or new rows, of that name beside a cache. Returns the number of sequences."""
    _require(queries.dim() == (4 if where.cu_seqlens_q is None else 3),
             f"{name} must be (batch, rows, heads, dim), or with cu_seqlens_q (rows, heads, dim)")
    _require(k.dim() == v.dim() == 4,
             "k_cache and v_cache must have 4 axes: (pages or batch, rows, heads, dim)")
    _require(k.shape[:-1] == v.shape[:-1],
             "k_cache and v_cache must have the same shape but for head_dim")
    _require(queries.dtype in _call.DTYPES, f"{name} must be float32, float16 or bfloat16")
    _require(queries.dtype == k.dtype == v.dtype,
             f"{name}, k_cache and v_cache must have one dtype")
    device = queries.device
    _require(device == k.device == v.device, f"{name}, k_cache and v_cache must be on one device")
    _require(device.type in ("cuda", "cpu", "meta"), f"{name} must be on a GPU or the CPU")
    for of, x in (("k_cache", k), ("v_cache", v)):
        _require_last_contiguous(of, x)
    cu_seqlens, table = where.cu_seqlens_q, where.page_table
    if cu_seqlens is not None:
        _require(cu_seqlens.dim() == 1 and cu_seqlens.shape[0] > 0,
                 "cu_seqlens_q must be (batch + 1,)")
    batch = where.batch(queries)
    sizes = (batch + 1, batch, batch, None, batch, batch)
    for of, tensor, size in zip(Where._fields, where, sizes, strict=True):
        if size is not None:
            _check_lengths(of, tensor, size, device, name)
    if table is not None:
        _require(table.dim() == 2 and table.dtype == torch.int32 and table.device == device
                 and (table.stride(1) == 1 or table.shape[1] == 1),
                 f"page_table must be (batch, pages of a sequence), int32, with a contiguous last "
                 f"axis, and on the device of {name}")
        _require(where.seqused_k is not None, "a page_table needs seqused_k")
    return batch


def _require_last_contiguous(name, tensor):
    _require(tensor.stride(-1) == 1 or tensor.shape[-1] == 1,
             f"the last axis of {name} must be contiguous")


def _check_decode(q, k, v, out, slopes, sinks, where):
    batch = _check_where("q", q, k, v, where)
    heads = q.shape[-2]
    _require(q.shape[-1] == k.shape[-1], "q and k_cache must have the same head_dim")
    _check_heads(slopes, sinks, batch, heads, q.device)
    if out is not None:
        shape = (*q.shape[:-1], v.shape[-1])
        _require(out.shape == shape and out.dtype == q.dtype and out.device == q.device,
                 f"out must be {tuple(shape)}, with the dtype and on the device of q")
        _require_last_contiguous("out", out)


def _check_append(k_new, v_new, k, v, q, cos, sin, rotary_seqlens, dropped, where):
    batch = _check_where("k_new", k_new, k, v, where)
    device, dtype = k_new.device, k_new.dtype
    heads = k.shape[2]
    _require(k_new.shape[-2:] == (heads, k.shape[-1]),
             "k_new must have the heads and the head_dim of k_cache")
    _require(v_new.shape == (*k_new.shape[:-1], v.shape[-1]),
             "v_new must have the shape of k_new, with the head_dim of v_cache")
    _require(v_new.dtype == dtype and v_new.device == device,
             "k_new and v_new must have one dtype and be on one device")
    named = [("k_new", k_new), ("v_new", v_new)]
    if q is not None:
        _require(q.dim() == k_new.dim() and q.shape[:-2] == k_new.shape[:-2]
                 and q.shape[-1] == k_new.shape[-1] and q.dtype == dtype and q.device == device,
                 "q must have the rows, the head_dim, the dtype and the device of k_new")
        named.append(("q", q))
    _require((cos is None) == (sin is None), "rotary_cos and rotary_sin must both be given")
    if cos is not None:
        _require(cos.dim() == 2 and cos.shape == sin.shape and cos.stride() == sin.stride()
                 and cos.dtype == sin.dtype and cos.dtype in _call.DTYPES,
                 "rotary_cos and rotary_sin must be (positions, dims / 2), float32, float16 or "
                 "bfloat16, with the same shape, strides and dtype")
        _require(cos.device == sin.device == device,
                 "rotary_cos and rotary_sin must be on the device of k_new")
        named += [("rotary_cos", cos)]
    _require(rotary_seqlens is None or cos is not None, "rotary_seqlens needs rotary_cos")
    _check_lengths("rotary_seqlens", rotary_seqlens, batch, device, "k_new")
    _require(dropped is None or (dropped.dtype == torch.int32 and dropped.numel() == 1
                                 and dropped.device == device),
             "dropped must be one int32, on the device of k_new")
    for name, tensor in named:
        _require_last_contiguous(name, tensor)


def _refuse_gradients(name, *tensors):
    _require(not torch.is_grad_enabled()
             or not any(tensor is not None and tensor.requires_grad for tensor in tensors),
             f"{name} has no gradients: call it under torch.no_grad() or torch.inference_mode()")


def _refuse_forward_mode(*tensors):
    if not torch.compiler.is_compiling():
        _refuse_tangents(tensors)


# ---- the functions ------------------------------------------------------------------------------


def attention_decode(q: Tensor, k_cache: Tensor, v_cache: Tensor, *,
                     seqused_k: Optional[Tensor] = None, page_table: Optional[Tensor] = None,
                     seqused_q: Optional[Tensor] = None, cu_seqlens_q: Optional[Tensor] = None,
                     max_seqlen_q: Optional[int] = None, max_seqlen_k: Optional[int] = None,
                     cache_batch_idx: Optional[Tensor] = None, leftpad_k: Optional[Tensor] = None,
                     causal=False, window=None, scale: Optional[float] = None,
                     softcap: float = 0.0, alibi_slopes: Optional[Tensor] = None,
                     sinks: Optional[Tensor] = None, splits="fill", return_lse: bool = False,
                     out: Optional[Tensor] = None):
    """Exact attention of few rows of queries to the keys of a cache: a step of generation.

    q        (batch, rows, heads, dim), or with cu_seqlens_q (total rows, heads, dim); float32,
             float16 or bfloat16.
    k_cache, v_cache  with a page_table (pages, page size, kv heads, dim), else (batch, rows, kv
             heads, dim), with any strides but for the last axis: heads ahead of rows are a
             transposed view. The heads of q are a multiple of theirs; v_cache may have another dim.
    seqused_k  (batch), int32: the length of each sequence, whose last keys are those of its queries
             (`append` has written them); it may be None without a page_table: all rows.
    page_table  (batch, pages), int32: position i of a sequence is in page page_table[b, i // size].
    seqused_q  (batch), int32: each sequence has only its first rows; the others get 0.
    cu_seqlens_q  (batch + 1), int32: sequence b has the rows from cu_seqlens_q[b] on, up to
             cu_seqlens_q[b + 1]. Rows behind the last sequence are not written.
    max_seqlen_q, max_seqlen_k  bounds of the lengths: longer sequences are cut; None: as many as
             the tensors have.
    cache_batch_idx  (batch), int32: the piece of the cache, or the line of the page table, of each
             sequence; None: its own.
    leftpad_k  (batch), int32: the position of each sequence's first key; None: 0.
    causal, window, scale, softcap, alibi_slopes, sinks  see attention(); masks align bottom-right.
    splits   how the keys of a row are split over blocks of the GPU: "fill" as it fills the device;
             an int, a multiple of 128: into parts of so many keys, so that a row's bits depend on
             its own keys alone; "none": not at all. A CPU does not split.
    return_lse  returns (out, lse): lse is (batch, heads, rows), or (heads, total rows), float32.
    out      where the output goes, of the shape of q with the dim of v_cache. Rows of no sequence
             keep what they hold.

    All lengths, tables and indices are on the device, and no call waits for it: what is there when
    a captured graph is replayed counts. There are no gradients.
    """
    _refuse_gradients("attention_decode", q, k_cache, v_cache, alibi_slopes, sinks)
    kind = _cache.splits_of(splits)
    _require(kind is not None, 'splits must be "fill", "none", or a number of keys')
    if alibi_slopes is not None:
        alibi_slopes = alibi_slopes.to(torch.float32).contiguous()
    if sinks is not None:
        sinks = sinks.contiguous()
    where = Where(cu_seqlens_q, seqused_q, seqused_k, page_table, cache_batch_idx, leftpad_k)
    options = (max_seqlen_q, max_seqlen_k, scale, *_masks(causal, window), float(softcap), *kind)
    if _nobody_looks_on(q, k_cache, v_cache, (alibi_slopes, sinks, out, *where)):
        plan = _decode_plan(q, k_cache, v_cache, out, alibi_slopes, sinks, where, options)
        if out is None:
            out = plan.out(q)
        lse = plan.lse(q) if return_lse else None
        plan.run(q, k_cache, v_cache, out, lse, alibi_slopes, sinks, where, True)
    else:
        _refuse_forward_mode(q, k_cache, v_cache)
        _check_decode(q, k_cache, v_cache, out, alibi_slopes, sinks, where)
        layout = BSHD if cu_seqlens_q is None else PACKED
        has_gaps = seqused_q is not None
        if out is None:
            out = _call.out_like(q, v_cache, layout)
            out = out.zero_() if has_gaps else out
        lse = _call.lse_like(q, layout) if return_lse else None
        if return_lse and has_gaps:
            lse.fill_(float("-inf"))
        torch.ops.attile.decode(q, k_cache, v_cache, out, lse, alibi_slopes, sinks, *where,
                                *options)
    return (out, lse) if return_lse else out


def append(k_new: Tensor, v_new: Tensor, k_cache: Tensor, v_cache: Tensor, *, seqused_k: Tensor,
           page_table: Optional[Tensor] = None, seqused_q: Optional[Tensor] = None,
           cu_seqlens_q: Optional[Tensor] = None, max_seqlen_q: Optional[int] = None,
           max_seqlen_k: Optional[int] = None, cache_batch_idx: Optional[Tensor] = None,
           leftpad_k: Optional[Tensor] = None, q: Optional[Tensor] = None,
           rotary_cos: Optional[Tensor] = None, rotary_sin: Optional[Tensor] = None,
           rotary_interleaved: bool = False, rotary_seqlens: Optional[Tensor] = None,
           dropped: Optional[Tensor] = None) -> None:
    """Writes the keys and values of new rows into a cache, in place, and rotates (RoPE) these keys
    and the queries of the same rows. `attention_decode` with the same lengths and tables follows.

    k_new, v_new  (batch, rows, kv heads, dim), or with cu_seqlens_q (total rows, kv heads, dim).
    k_cache, v_cache, page_table, cache_batch_idx, leftpad_k  as of attention_decode.
    seqused_k  (batch), int32: the lengths with the new rows. Of n new rows of a sequence, row i
             becomes the key at position seqused_k - n + i.
    seqused_q, cu_seqlens_q, max_seqlen_q  how many new rows sequences have, as those of queries.
    max_seqlen_k  a bound of seqused_k; None: as many as a sequence of the cache can have. The
             tables of rotary have at least as many positions, but with rotary_seqlens.
    q        (batch, rows, heads, dim), or packed: the queries of the new rows, rotated in place.
    rotary_cos, rotary_sin  (positions, dims / 2): the first `dims` elements of each row are
             rotated, row i by its number among the sequence's keys, or by rotary_seqlens + i.
    rotary_interleaved  whether pairs are elements 2 p and 2 p + 1 (GPT-J); else p and p + dims / 2.
    rotary_seqlens  (batch), int32.
    dropped  one int32, to which each row adds 1 for which the cache has no row: such a row is
             written nowhere. `check_dropped` raises an error for it.

    All lengths, tables and indices are on the device, and no call waits for it.
    """
    _refuse_gradients("append", k_new, v_new, k_cache, v_cache, q)
    where = Where(cu_seqlens_q, seqused_q, seqused_k, page_table, cache_batch_idx, leftpad_k)
    _require(seqused_k is not None, "append needs seqused_k, the lengths with the new rows")
    tensors = (k_new, v_new, k_cache, v_cache, q, rotary_cos, rotary_sin, rotary_seqlens, dropped)
    options = (max_seqlen_q, max_seqlen_k, rotary_interleaved)
    if not _nobody_looks_on(k_new, k_cache, v_cache, (*tensors[1:], *where)):
        _refuse_forward_mode(k_new, v_new, k_cache, v_cache, q)
        _check_append(*tensors, where)
        torch.ops.attile.append(*tensors, *where, *options)
        return
    _append_plan(tensors, where, options).run(*tensors, where)
    for written in (k_cache, v_cache, q, dropped):
        if written is not None and not written.is_inference():
            torch.autograd.graph.increment_version(written)


def check_dropped(dropped: Tensor) -> None:
    """Raises DroppedRowsError where `append` has counted rows in `dropped`, and leaves the count as
    it is. It waits for the device."""
    count = int(dropped)
    if count != 0:
        raise DroppedRowsError(f"attile_torch: append dropped {count} new rows, for which the "
                               "cache has no row: its sequence's pages or rows have run out, or a "
                               "table names none")
