# SPDX-License-Identifier: MIT
"""attn_implementation="attile" for Hugging Face transformers 5.

A model calls two registered functions: one that makes the mask, once for a forward pass, and one
that computes attention in each layer. The mask is
  None            the module's own causal mask or window, or none;
  int32 (1, 1, 4, n+1)   sequences of their own lengths, with the same causal mask or window:
                  cu_seqlens_q, cu_seqlens_k, seqused_q and seqused_k for n sequences: padded
                  inputs, left or right, and packed ones; nothing is copied where the batches of a
                  tensor follow each other in memory, row by row. It has four axes because
                  transformers passes on a mask of four, and takes one of two for padding;
  bool or float (batch, heads or 1, rows, columns)   any other mask, which says everything.
"""
import torch

from ._operators import attention, attention_varlen

NAME = "attile"


def _captured(function, name):
    """The variable that an inner function has from the one around it."""
    names = function.__code__.co_freevars
    return function.__closure__[names.index(name)].cell_contents


def _leaves(function):
    """The mask functions that transformers has joined by `and`, with what it wraps them in."""
    kind = getattr(function, "__qualname__", "")
    if kind == "and_masks.<locals>.and_mask":
        return [x for part in _captured(function, "mask_functions") for x in _leaves(part)]
    if kind == "remap_positions_for_packed_sequence.<locals>.inner_mask":
        return _leaves(_captured(function, "mask_function"))
    return [function]


# What the attention function of a layer is told beside the mask: whether it is causal, its window.
_KNOWN = {"causal_mask_function", "bidirectional_mask_function",
          "sliding_window_overlay.<locals>.inner_mask",
          "sliding_window_bidirectional_overlay.<locals>.inner_mask"}
_PACKED = "packed_sequence_mask_function.<locals>.inner_mask"


def _read(mask_function):
    """(whether a layer knows the mask, the numbers of packed sequences or None)."""
    try:
        ids = None
        for leaf in _leaves(mask_function):
            kind = getattr(leaf, "__qualname__", "")
            if kind == _PACKED:
                ids = _captured(leaf, "packed_sequence_mask")
            elif kind not in _KNOWN:
                return False, None
        return True, ids
    except (AttributeError, ValueError):  # a later transformers may build its masks otherwise
        return False, None


def _table(*rows):
    return torch.stack(rows).to(torch.int32)[None, None]


def _packed(ids):
    """The table of sequences that are packed along each batch: `ids` (batch, rows) number them."""
    batch, rows = ids.shape
    begins = torch.ones_like(ids, dtype=torch.bool)
    begins[:, 1:] = ids[:, 1:] != ids[:, :-1]
    first = begins.flatten().nonzero().flatten()
    cu = torch.cat([first, first.new_tensor([batch * rows])])
    lengths = torch.nn.functional.pad(cu.diff(), (0, 1))
    table = _table(cu, cu, lengths, lengths)
    table.attile_longest = int(lengths.max())  # a hint: without it bounds are larger
    return table


def _padded(mask, q_length):
    """The table of padded sequences: of each, `mask` (batch, columns) shows one run of columns, and
    the rows are the last columns."""
    batch, columns = mask.shape
    used_k = mask.sum(-1)
    begin = mask.int().argmax(-1)
    end = begin + used_k
    rows_before = columns - q_length
    begin_q = (begin - rows_before).clamp(min=0)
    used_q = ((end - rows_before).clamp(min=0) - begin_q).clamp(min=0)
    number = torch.arange(batch, device=mask.device)
    pad = torch.nn.functional.pad
    cu_q = pad(number * q_length + begin_q, (0, 1), value=batch * q_length)
    cu_k = pad(number * columns + begin, (0, 1), value=batch * columns)
    return _table(cu_q, cu_k, pad(used_q, (0, 1)), pad(used_k, (0, 1)))


def _is_tracing(device):
    return torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0 \
        or torch.device(device).type == "meta"


def attile_mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=None,
                attention_mask=None, device="cpu", **kwargs):
    """What transformers calls for the mask of a model with attn_implementation="attile"."""
    from transformers.masking_utils import causal_mask_function, sdpa_mask

    mask_function = causal_mask_function if mask_function is None else mask_function
    known, ids = _read(mask_function)
    # Masks align bottom-right: the last row must be the last column. A static cache has more.
    known = known and not isinstance(q_offset, torch.Tensor) \
        and q_offset + q_length == kv_offset + kv_length
    padding = attention_mask
    if padding is not None:
        padding = padding[:, kv_offset:kv_offset + kv_length]
        known = known and padding.shape[1] == kv_length and kv_length >= q_length
    if known and ids is None and padding is None:
        return None
    if known and not _is_tracing(device):
        if padding is None:
            return _packed(ids.expand(batch_size, -1))
        if ids is None:
            runs = padding.int().diff(dim=-1).abs().sum(-1) \
                + padding[:, 0].int() + padding[:, -1].int()
            whole, one_run = torch.stack([padding.all(), (runs <= 2).all()]).tolist()
            if whole:
                return None
            if one_run:
                return _padded(padding, q_length)
    kwargs.pop("allow_is_causal_skip", None)
    kwargs.pop("allow_is_bidirectional_skip", None)
    return sdpa_mask(batch_size=batch_size, q_length=q_length, kv_length=kv_length,
                     q_offset=q_offset, kv_offset=kv_offset, mask_function=mask_function,
                     attention_mask=attention_mask, device=device, allow_is_causal_skip=False,
                     allow_is_bidirectional_skip=False, **kwargs)


def _rows(tensor):
    """(batch, heads, rows, dim) as the rows of one packed tensor: a view where that is possible."""
    return tensor.transpose(1, 2).flatten(0, 1)


def attile_attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None,
                     is_causal=None, sliding_window=None, softcap=None, s_aux=None,
                     position_bias=None, cu_seq_lens_q=None, cu_seq_lens_k=None,
                     max_length_q=None, max_length_k=None, **kwargs):
    """What transformers calls for attention: (batch, heads, rows, dim) to ((batch, rows, heads,
    dim), None)."""
    batch, _, rows, _ = query.shape
    columns = key.shape[2]
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = bool(causal) and rows > 1
    # The row's own column is one of the window's; models that look both ways count it too.
    window = None if sliding_window is None else (sliding_window - 1, sliding_window - 1)
    options = {"scale": scaling, "softcap": softcap or 0.0, "dropout_p": dropout, "sinks": s_aux}
    table = attention_mask
    is_table = table is not None and table.dtype == torch.int32
    lengths = (cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k)
    if (table is None or is_table) and all(x is not None for x in lengths):
        cu_q, cu_k = (x.to(torch.int32) for x in lengths[:2])
        longest, used = (int(max_length_q), int(max_length_k)), {}
    elif is_table:
        cu_q, cu_k, used_q, used_k = table[0, 0].unbind(0)
        used = {"seqused_q": used_q[:-1], "seqused_k": used_k[:-1]}
        longest = [getattr(table, "attile_longest", length) for length in (rows, columns)]
    else:
        cu_q = None
    if cu_q is not None:
        out = attention_varlen(_rows(query), _rows(key), _rows(value), cu_q, cu_k, *longest,
                               causal=causal, window=window, **used, **options)
        return out.unflatten(0, (batch, rows)), None
    bias = position_bias
    if table is not None:  # it says everything
        causal, window = False, None
        if bias is None:
            bias = table
        elif table.dtype == torch.bool:
            bias = torch.where(table, bias, float("-inf"))
        else:
            bias = bias + table
    out = attention(query, key, value, causal=causal, window=window, bias=bias, layout="bhsd",
                    **options)
    return out.transpose(1, 2), None


def register_transformers():
    """Makes attn_implementation="attile" known to transformers."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(NAME, attile_attention)
    AttentionMaskInterface.register(NAME, attile_mask)
