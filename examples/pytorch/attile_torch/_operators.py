# SPDX-License-Identifier: MIT
"""attention and attention_varlen, and the operators behind them that torch.compile sees.

Eager calls go from the functions below straight to one autograd.Function. Where somebody looks on
(torch.compile, fake tensors, dispatch modes, functorch, tensor subclasses) they go through the
custom operators attile::forward and attile::backward, which compute the same by the same code.
"""
from typing import Optional

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

from . import _call
from ._call import BHSD, BSHD, NO_DRAW, NO_EXTRAS, PACKED, Extras, Options, Plan

_LAYOUTS = {"bshd": BSHD, "bhsd": BHSD}
_CAUSAL = {False: 0, True: 1, "top_left": 2}
_PLAIN = (Tensor, torch.nn.Parameter)


# ---- the operators ------------------------------------------------------------------------------


@torch.library.custom_op("attile::forward", mutates_args=())
def forward_op(q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], slopes: Optional[Tensor],
               sinks: Optional[Tensor], cu_seqlens_q: Optional[Tensor],
               cu_seqlens_k: Optional[Tensor], seqused_q: Optional[Tensor],
               seqused_k: Optional[Tensor], rng: Optional[Tensor], layout: int, max_q: int,
               max_k: int, scale: Optional[float], mask: int, left: int, right: int, softcap: float,
               dropout: float, in_order: bool) -> tuple[Tensor, Tensor]:
    """O and LSE."""
    extras = Extras(bias, slopes, sinks, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k)
    options = Options(layout, max_q, max_k, scale, mask, left, right, softcap, dropout, in_order)
    plan, extras = _plan(q, k, v, extras, options)
    return plan.forward(q, k, v, extras, _given_draw(rng, dropout))


@forward_op.register_fake
def _(q, k, v, bias, slopes, sinks, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, rng, layout,
      *rest):
    return _call.out_like(q, v, layout), _call.lse_like(q, layout)


@torch.library.custom_op("attile::backward", mutates_args=())
def backward_op(dout: Tensor, dlse: Optional[Tensor], q: Tensor, k: Tensor, v: Tensor, out: Tensor,
                lse: Tensor, bias: Optional[Tensor], slopes: Optional[Tensor],
                sinks: Optional[Tensor], cu_seqlens_q: Optional[Tensor],
                cu_seqlens_k: Optional[Tensor], seqused_q: Optional[Tensor],
                seqused_k: Optional[Tensor], rng: Optional[Tensor], layout: int, max_q: int,
                max_k: int, scale: Optional[float], mask: int, left: int, right: int,
                softcap: float, dropout: float, in_order: bool, bias_gradient: bool,
                sinks_gradient: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """dQ, dK, dV, and in fp32 those of the bias and the sinks, empty where they are not wanted."""
    extras = Extras(bias, slopes, sinks, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k)
    options = Options(layout, max_q, max_k, scale, mask, left, right, softcap, dropout, in_order)
    plan, extras = _plan(q, k, v, extras, options)
    *grads, dbias, dsinks = plan.backward(dout, dlse, q, k, v, out, lse, extras,
                                          _given_draw(rng, dropout), bias_gradient, sinks_gradient)
    return (*grads, _no_gradient(q) if dbias is None else dbias,
            _no_gradient(q) if dsinks is None else dsinks)


@backward_op.register_fake
def _(dout, dlse, q, k, v, out, lse, bias, slopes, sinks, *rest):
    bias_gradient, sinks_gradient = rest[-2:]
    fp32 = {"dtype": torch.float32, "device": q.device}
    return (*(_call.grad_like(x) for x in (q, k, v)),
            torch.empty(bias.shape, **fp32) if bias_gradient else _no_gradient(q),
            torch.empty(sinks.shape, **fp32) if sinks_gradient else _no_gradient(q))


def _no_gradient(q):
    return torch.empty(0, dtype=torch.float32, device=q.device)


def _given_draw(rng, dropout):
    _require((rng is None) == (dropout == 0), "dropout needs rng, a seed and an offset")
    return NO_DRAW if rng is None else (rng, 0, 0)


def _setup(ctx, inputs, output):
    q, k, v, *rest = inputs
    tensors, ctx.options = rest[:8], rest[8:]
    ctx.save_for_backward(q, k, v, *output, *tensors)
    ctx.set_materialize_grads(False)


def _backward(ctx, dout, dlse):
    q, k, v, out, lse, *tensors = ctx.saved_tensors
    needs_bias, needs_sinks = ctx.needs_input_grad[3], ctx.needs_input_grad[5]
    if dout is None:
        dout = torch.zeros_like(out)
    dq, dk, dv, dbias, dsinks = torch.ops.attile.backward(
        dout, dlse, q, k, v, out, lse, *tensors, *ctx.options, needs_bias, needs_sinks)
    return (dq, dk, dv, dbias.to(tensors[0].dtype) if needs_bias else None, None,
            dsinks.to(tensors[2].dtype) if needs_sinks else None, *(None,) * 15)


forward_op.register_autograd(_backward, setup_context=_setup)


# ---- the direct way -----------------------------------------------------------------------------


class _Attention(torch.autograd.Function):
    """The same without the dispatcher, whose way through Python takes longer than small
    problems."""

    @staticmethod
    def forward(ctx, q, k, v, bias, sinks, plan, extras, draw):
        plan.request_backward(q.dtype, ctx.needs_input_grad[3])
        out, lse = plan.forward(q, k, v, extras, draw)
        ctx.plan, ctx.draw = plan, draw
        if extras is NO_EXTRAS:
            ctx.save_for_backward(q, k, v, out, lse)
        else:
            ctx.save_for_backward(q, k, v, out, lse, *extras)
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx, dout, dlse):
        if torch.is_grad_enabled():  # by create_graph: what is returned must refuse a derivative
            return _gradients_once(ctx, dout, dlse)
        return _gradients(ctx, dout, dlse)


def _gradients(ctx, dout, dlse):
    q, k, v, out, lse, *rest = ctx.saved_tensors
    if dout is None:
        dout = torch.zeros_like(out)
    if not rest:
        dq, dk, dv, _, _ = ctx.plan.backward(dout, dlse, q, k, v, out, lse, NO_EXTRAS, ctx.draw,
                                             False, False)
        return dq, dk, dv, None, None, None, None, None
    extras = Extras(*rest)
    needs_bias, needs_sinks = ctx.needs_input_grad[3:5]
    dq, dk, dv, dbias, dsinks = ctx.plan.backward(dout, dlse, q, k, v, out, lse, extras, ctx.draw,
                                                  needs_bias, needs_sinks)
    return (dq, dk, dv, dbias.to(extras.bias.dtype) if needs_bias else None,
            dsinks.to(extras.sinks.dtype) if needs_sinks else None, None, None, None)


_gradients_once = once_differentiable(_gradients)


def _nobody_looks_on(q, k, v, extras):
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0 \
            or torch._C._functorch.maybe_current_level() is not None \
            or forward_ad._current_level >= 0 \
            or type(q) not in _PLAIN or type(k) not in _PLAIN or type(v) not in _PLAIN \
            or q.is_meta:
        return False
    if extras is not NO_EXTRAS:
        for tensor in extras:
            if tensor is not None and type(tensor) not in _PLAIN:
                return False
    return True


def _refuse_tangents(tensors):
    """An operator would leave them out without a word."""
    if forward_ad._current_level >= 0 and any(
            tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None
            for tensor in tensors):
        raise NotImplementedError("attile_torch: there is no forward-mode derivative")


_plans = {}
_MOST_PLANS = 1024  # lengths that differ at each call make a plan each


def _plan(q, k, v, extras, options, enable_gqa=True):
    """(the plan of these arguments, the extras as kernels take them)."""
    key = (q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride(), q.dtype, k.dtype, v.dtype,
           q.device, k.device, v.device, options, enable_gqa,
           None if extras is NO_EXTRAS else tuple(
               x if x is None else (x.shape, x.stride(), x.dtype, x.device) for x in extras))
    plan = _plans.get(key)
    if plan is None:
        _check(q, k, v, extras, options, enable_gqa)
    if extras is not NO_EXTRAS:
        extras = _prepare(q, extras)
    if plan is None:
        plan = Plan(q, k, v, extras, Options(*options))
        if len(_plans) >= _MOST_PLANS:
            _plans.clear()
        _plans[key] = plan
    return plan, extras


def _attend(q, k, v, extras, options, enable_gqa, return_lse):
    q, k, v = _autocast(q, k, v)
    dropout = options[8]
    if not _nobody_looks_on(q, k, v, extras):
        if not torch.compiler.is_compiling():
            _refuse_tangents((q, k, v, *extras))
        _check(q, k, v, extras, options, enable_gqa)
        rng = None if dropout == 0 else _call.draw_on_device(q.device)
        out, lse = torch.ops.attile.forward(q, k, v, *_prepare(q, extras), rng, *options)
        return (out, lse) if return_lse else out
    plan, extras = _plan(q, k, v, extras, options, enable_gqa)
    draw = NO_DRAW if dropout == 0 else _call.draw(q.device)
    bias, sinks = extras[0], extras[2]
    if torch.is_grad_enabled() and (
            q.requires_grad or k.requires_grad or v.requires_grad
            or (bias is not None and bias.requires_grad)
            or (sinks is not None and sinks.requires_grad)):
        out, lse = _Attention.apply(q, k, v, bias, sinks, plan, extras, draw)
    else:
        out, lse = plan.forward(q, k, v, extras, draw, return_lse)
    return (out, lse) if return_lse else out


# ---- what the library cannot check ---------------------------------------------------------------


def _require(condition, why):
    if not condition:
        raise ValueError(f"attile_torch: {why}")


def _masks(causal, window):
    """(number, left, right) of a mask."""
    number = _CAUSAL.get(causal)
    _require(number is not None, 'causal must be True, False or "top_left"')
    if window is None:
        return number, -1, -1
    left, right = window
    if number == 2:
        _require(left < 0 and right < 0, "windows align bottom-right: causal must not be top_left")
        return 2, -1, -1
    if number == 1:
        right = 0
    if left < 0 and right < 0:
        return 0, -1, -1
    if left < 0 and right == 0:
        return 1, -1, -1
    return 3, left, right


def _autocast(q, k, v):
    """Q, K and V as torch.autocast wants them, which no operator of its lists does here."""
    kind = "cuda" if q.is_cuda else "cpu"
    if torch.is_autocast_enabled(kind) and q.is_floating_point() and not q.is_meta:
        dtype = torch.get_autocast_dtype(kind)
        return q.to(dtype), k.to(dtype), v.to(dtype)
    return q, k, v


def _check(q, k, v, extras, options, enable_gqa):
    layout, max_q, max_k = options[:3]
    rank, row, head = {BSHD: (4, 1, 2), BHSD: (4, 2, 1), PACKED: (3, 0, 1)}[layout]
    shape, k_shape, v_shape = q.shape, k.shape, v.shape
    if not len(shape) == len(k_shape) == len(v_shape) == rank:
        _require(False, f"q, k and v must have {rank} axes")
    _require(q.dtype in _call.DTYPES, "q, k and v must be float32, float16 or bfloat16")
    _require(q.dtype == k.dtype == v.dtype, "q, k and v must have one dtype")
    _require(q.device == k.device == v.device, "q, k and v must be on one device")
    _require(q.device.type in ("cuda", "cpu", "meta"), "q, k and v must be on a GPU or the CPU")
    _require(shape[-1] == k_shape[-1], "q and k must have the same head_dim")
    _require(k_shape[:-1] == v_shape[:-1], "k and v must have the same shape but for head_dim")
    _require(rank == 3 or shape[0] == k_shape[0], "q and k must have the same batch")
    heads = shape[head]
    _require(enable_gqa or heads == k_shape[head],
             "q and k must have the same number of heads where enable_gqa is False")
    if layout == PACKED:
        cu_seqlens = extras.cu_seqlens_q
        _require(cu_seqlens is not None and extras.cu_seqlens_k is not None,
                 "cu_seqlens_q and cu_seqlens_k must be given")
        _require(cu_seqlens.dim() == 1 and cu_seqlens.shape[0] > 0,
                 "cu_seqlens_q must be (batch + 1,)")
        batch = cu_seqlens.shape[0] - 1
        _check_lengths("cu_seqlens_q", cu_seqlens, batch + 1, q.device)
        _check_lengths("cu_seqlens_k", extras.cu_seqlens_k, batch + 1, q.device)
    else:
        batch, max_q, max_k = shape[0], shape[row], k_shape[row]
    if extras is NO_EXTRAS:
        return
    _check_lengths("seqused_q", extras.seqused_q, batch, q.device)
    _check_lengths("seqused_k", extras.seqused_k, batch, q.device)
    _check_bias(extras.bias, q.device, (batch, heads, max_q, max_k))
    _check_heads(extras.slopes, extras.sinks, batch, heads, q.device)


def _check_heads(slopes, sinks, batch, heads, device):
    """What query heads have of their own."""
    _require(slopes is None or (slopes.device == device
                                and tuple(slopes.shape) in ((heads,), (batch, heads))),
             f"alibi_slopes must be ({heads},) or ({batch}, {heads}), on the device of q")
    _require(sinks is None or (sinks.device == device and tuple(sinks.shape) == (heads,)
                               and sinks.dtype in _call.DTYPES),
             f"sinks must be ({heads},), float32, float16 or bfloat16, on the device of q")


def _check_lengths(name, tensor, size, device, beside="q"):
    if tensor is not None:
        _require(tensor.dtype == torch.int32 and tensor.device == device
                 and tensor.shape == (size,) and tensor.is_contiguous(),
                 f"{name} must be ({size},), int32, contiguous, and on the device of {beside}")


def _check_bias(bias, device, shape):
    """The scores have that shape."""
    if bias is None:
        return
    _require(bias.device == device, "bias must be on the device of q")
    _require(bias.dtype == torch.bool or bias.dtype in _call.DTYPES,
             "bias must be bool, float32, float16 or bfloat16")
    sizes = tuple(bias.shape)
    _require(len(sizes) <= 4 and all(size in (1, most) for size, most in zip(
        reversed(sizes), reversed(shape), strict=False)),
        f"bias must be broadcastable to (batch, heads, rows, columns) = {tuple(shape)}")


def _prepare(q, extras):
    """The extras as kernels take them: a bool bias becomes 0 and -inf."""
    bias, slopes, sinks, *lengths = extras
    if bias is not None and bias.dtype == torch.bool:
        hidden = torch.zeros(bias.shape, dtype=q.dtype, device=q.device)
        bias = hidden.masked_fill_(bias.logical_not(), float("-inf"))
    if slopes is not None:
        slopes = slopes.detach().to(torch.float32).contiguous()
    if sinks is not None:
        sinks = sinks.contiguous()
    return Extras(bias, slopes, sinks, *lengths)


def _in_order(deterministic):
    return torch.are_deterministic_algorithms_enabled() if deterministic is None \
        else bool(deterministic)


# ---- the functions ------------------------------------------------------------------------------


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal=False, window=None,
              scale: Optional[float] = None, softcap: float = 0.0,
              alibi_slopes: Optional[Tensor] = None, bias: Optional[Tensor] = None,
              dropout_p: float = 0.0, sinks: Optional[Tensor] = None,
              seqused_q: Optional[Tensor] = None, seqused_k: Optional[Tensor] = None,
              enable_gqa: bool = True, layout: str = "bshd", return_lse: bool = False,
              deterministic: Optional[bool] = None):
    """Exact attention: dropout(softmax(mask(scores + ...))) v.

    q        (batch, rows, heads, dim), or with layout="bhsd" (batch, heads, rows, dim); float32,
             float16 or bfloat16, any strides but for the last axis, on a GPU or on the CPU.
    k, v     the same with their own rows and heads; the heads of q are a multiple of theirs; v may
             have another dim.
    causal   row i sees column j iff j <= i + columns - rows (bottom-right); "top_left": j <= i.
    window   (left, right): row i sees columns i - left to i + right around that diagonal, both ends
             included; a negative size is unlimited.
    scale    of q k^T; None: 1 / sqrt(dim).
    softcap  scores become softcap * tanh(scores / softcap); 0: they do not. It comes first, then
             alibi_slopes, (heads) or (batch, heads), which has no gradient, then the bias.
    bias     what is added to scores: broadcastable to (batch, heads, rows, columns), of any of the
             three types, with a gradient if it requires one; a bool one hides where it is False.
    dropout_p  the probability that an element of the softmax is dropped; from PyTorch's generator.
    sinks    (heads): a logit for each head that is in the denominator alone; has a gradient.
    seqused_q, seqused_k  (batch), int32: each sequence has only so many rows, or columns, and masks
             align with these. Rows of no sequence get 0 in the output and in gradients.
    return_lse  returns (out, lse): lse is (batch, heads, rows), float32; it has a gradient.
    deterministic  the same bits of gradients at every run; None: as
             torch.use_deterministic_algorithms says.

    The output has the layout of q, and is (batch, rows, heads, dim) in memory whatever the layout.
    What the library refuses is a ValueError with its sentence.
    """
    number = _LAYOUTS.get(layout)
    _require(number is not None, 'layout must be "bshd" or "bhsd"')
    extras = NO_EXTRAS
    if bias is not None or alibi_slopes is not None or sinks is not None or seqused_q is not None \
            or seqused_k is not None:
        extras = Extras(bias, alibi_slopes, sinks, None, None, seqused_q, seqused_k)
    options = (number, 0, 0, scale, *_masks(causal, window), float(softcap), float(dropout_p),
               _in_order(deterministic))
    return _attend(q, k, v, extras, options, enable_gqa, return_lse)


def attention_varlen(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
                     max_seqlen_q: int, max_seqlen_k: int, *, causal=False, window=None,
                     scale: Optional[float] = None, softcap: float = 0.0,
                     alibi_slopes: Optional[Tensor] = None, bias: Optional[Tensor] = None,
                     dropout_p: float = 0.0, sinks: Optional[Tensor] = None,
                     seqused_q: Optional[Tensor] = None, seqused_k: Optional[Tensor] = None,
                     enable_gqa: bool = True, return_lse: bool = False,
                     deterministic: Optional[bool] = None):
    """The same of packed sequences, as torch.nn.attention.varlen.varlen_attn has them.

    q        (total rows, heads, dim); k, v (total columns, kv heads, dim).
    cu_seqlens_q, cu_seqlens_k  (batch + 1), int32, on the device: sequence b has the rows from
             cu_seqlens[b] on, up to cu_seqlens[b + 1], or seqused[b] of them where that is given.
    max_seqlen_q, max_seqlen_k  bounds of the lengths: a longer sequence is cut; a larger bound
             changes no bit.
    bias     broadcastable to (batch, heads, max_seqlen_q, max_seqlen_k): by position in a sequence.
    lse      (heads, total rows).

    Masks align bottom-right in each sequence. Nothing is read from the device: no call waits for
    it. Rows in gaps that seqused leaves get 0; rows behind the last sequence are not written if
    there is no seqused.
    """
    extras = Extras(bias, alibi_slopes, sinks, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k)
    options = (PACKED, max_seqlen_q, max_seqlen_k, scale, *_masks(causal, window), float(softcap),
               float(dropout_p), _in_order(deterministic))
    return _attend(q, k, v, extras, options, enable_gqa, return_lse)
