# SPDX-License-Identifier: MIT
"""The contenders of compare.py, and the reference that they are held against. Needs PyTorch with
a CUDA GPU, imported where it is used.

A contender is a function of (Inputs, direction) that returns a Run, or raises Refused with the
sentence of the one who refuses. All of them read the same tensors, write LSE forward, and scale
by 1 / sqrt(D)."""
import copy
import dataclasses
import functools
import importlib
import inspect
import itertools
import math
import re
import typing
import warnings

import compare_build
import compare_cells
import compare_policies

MANTISSA_BITS = {"bf16": 7, "fp16": 10, "fp32": 23}


class Refused(Exception):
    pass


@dataclasses.dataclass
class Run:
    """`call` enqueues all the work once and returns what `outputs` makes a {name: tensor} of.
    `undropped` is the same call without dropout, of a contender that draws decisions of its own:
    they cannot be foreseen, so it is judged by this call and timed by the other one."""

    call: typing.Callable
    outputs: typing.Callable
    undropped: typing.Callable | None = None
    judged_by: typing.Callable | None = None  # makes another reference of the cell's
    calls: int = 1  # of the work, by one `call`
    details: dict = dataclasses.field(default_factory=dict)  # of the result, in its JSON file


class Inputs:
    """Standard normal (batch, head, row, dim) views of dense (batch, row, head, dim) arrays, and
    the cell's policy. Packed sequences lie in one batch of all rows, `cu_seqlens` says where."""

    def __init__(self, cell, device="cuda"):
        import torch

        self.cell = cell
        self.dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[
            cell.dtype]
        self.plain = self.dtype  # what the plain computation stores matrices in
        self.scale = 1.0 / math.sqrt(cell.d)
        self.causal = cell.mask == "causal"
        generator = torch.Generator(device=device).manual_seed(1)

        def normal(*shape):
            values = torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
            return values.to(self.dtype)

        batch, rows = (1, cell.rows) if cell.lengths else (cell.batch, cell.length)
        self.offsets = [0, *itertools.accumulate(cell.lengths)]
        self.cu_seqlens = torch.tensor(self.offsets, dtype=torch.int32, device=device)

        def by_head(heads, dim):
            return normal(batch, rows, heads, dim).transpose(1, 2)

        self.q = by_head(cell.q_heads, cell.d)
        self.k = by_head(cell.kv_heads, cell.d)
        self.v = by_head(cell.kv_heads, cell.dv)
        self.dout = by_head(cell.q_heads, cell.dv)
        self.policy = compare_policies.Policy(cell, normal, device)

    def of_sequence(self, tensor, sequence):
        """The (head, row, ...) part of a sequence in a (batch, head, row, ...) tensor."""
        if not self.cell.lengths:
            return tensor[sequence]
        return tensor[0, :, self.offsets[sequence]:self.offsets[sequence + 1]]

    def as_beside(self, name):
        """The same memory as that cell which takes part in this one under this name."""
        beside = copy.copy(self)
        cell = beside.cell = self.cell.as_beside(name)
        if cell.policy != self.cell.policy:
            beside.policy = compare_policies.Policy(cell, None, self.q.device)
        if cell.lengths != self.cell.lengths:
            for tensor in ("q", "k", "v", "dout"):
                rows = getattr(self, tensor).transpose(1, 2)
                rows = rows.view(cell.batch, cell.length, *rows.shape[2:])
                setattr(beside, tensor, rows.transpose(1, 2))
        return beside

    def with_gradients(self):
        return [x.detach().requires_grad_() for x in (self.q, self.k, self.v)]


def gradients(results):
    named = zip(("dq", "dk", "dv", "dsinks"), results)
    return {name: gradient for name, gradient in named if gradient is not None}


# ---- attile --------------------------------------------------------------------------------------


def c_tensor(tensor):
    if tensor.stride(3) != 1:
        raise Refused("the last axis is not contiguous")
    return compare_build.Tensor(tensor.data_ptr(), *tensor.stride()[:3])


def attile(x, direction, libraries, in_order=False, beside=None):
    """`libraries` maps a Kernel to its Library, or to the error that there is instead. Outputs and
    scratch memory are allocated once and hold NaN before the first call. A mask's table is prepared
    once, before what is timed. The backward pass starts from attile's own O and LSE. `beside` names
    the cell that takes part instead, with the same memory."""
    import torch

    if beside:
        x = x.as_beside(beside)
        run = attile(x, direction, libraries, in_order)
        run.judged_by = lambda _: Reference(x, direction)
        return run
    cell = x.cell
    lse = torch.full(x.q.shape[:3], math.nan, device="cuda")
    tensors = {"q": x.q, "k": x.k, "v": x.v, "o": torch.full_like(x.dout, math.nan)}
    problem = compare_build.Problem(
        lse=lse.data_ptr(), batch=cell.batch, q_heads=cell.q_heads, kv_heads=cell.kv_heads,
        q_len=cell.longest, kv_len=cell.longest, scale=x.scale, policies=x.policy.arguments(),
        cu_seqlens=x.cu_seqlens.data_ptr(), total=cell.rows,
        stream=torch.cuda.current_stream().cuda_stream)

    def prepare(way):
        for name, tensor in tensors.items():
            setattr(problem, name, c_tensor(tensor))
        library = libraries[cell.kernel(way, in_order)]
        if isinstance(library, Exception):
            raise library
        problem.policies.table = None
        table_bytes = library.table_bytes(problem)
        table = torch.empty(table_bytes, dtype=torch.uint8, device="cuda")
        if table_bytes > 0:
            problem.policies.table = table.data_ptr()
            library.prepare(problem, table_bytes)
        if why := library.check(problem):
            raise Refused(why)
        size = library.workspace_bytes(problem)
        workspace = torch.full((size,), 0xFF, dtype=torch.uint8, device="cuda")
        problem.workspace, problem.workspace_bytes = workspace.data_ptr() or None, size
        return library.runner(problem), (workspace, table)

    forward, held_forward = prepare("forward")
    if direction == "forward":
        return Run(forward, lambda _, held=held_forward: {"o": tensors["o"], "lse": lse})
    forward()
    names = ("dq", "dk", "dv")
    tensors.update(zip(names, (torch.full_like(t, math.nan) for t in (x.q, x.k, x.v))))
    results = {name: tensors[name] for name in names}
    if x.policy.sinks is not None:
        results["dsinks"] = torch.full_like(x.policy.sinks, math.nan)
        problem.policies.dsinks = results["dsinks"].data_ptr()
    tensors["dout"] = x.dout
    backward, held_backward = prepare("backward")

    def outputs(_, held=(tensors, lse, held_backward)):  # `held` keeps them while the run lives
        return results

    return Run(backward, outputs)


# ---- PyTorch's backends --------------------------------------------------------------------------
#
# The gate is PyTorch's own: scaled_dot_product_attention with the one backend allowed. What is
# timed are the operators that it and its autograd formula call (native_functions.yaml), directly:
# the same kernels, LSE written as in training, with the least work on the host.


def reason_in(messages, backend, fallback):
    """What PyTorch's warnings say of one backend: the sentences between its header and the next,
    without the place in PyTorch's source that they end with."""
    said, inside = [], False
    for message in messages:
        text = re.sub(r"\s*\(Triggered internally at .*\)\s*$", "", message, flags=re.S).strip()
        if text.endswith("not used because:"):
            inside = text.lower().startswith(backend.lower())
        elif inside:
            said.append(text)
    return " ".join(said) or fallback


def _offered(x, policies, why):
    """Raises Refused where a contender has only other policies than the cell's, or where sequences
    are packed."""
    if x.cell.lengths:
        raise Refused("compare.py measures it without packed sequences")
    if x.cell.policy not in ("", *policies):
        raise Refused(why)


def demand(x, direction, backend, header, bias=None, dropout=0.0):
    """Raises Refused where PyTorch would not run this backend for this problem."""
    import torch
    from torch.nn.attention import sdpa_kernel

    if x.cell.mask == "window":
        raise Refused("PyTorch's interface to it has no sliding window")
    q, k, v = x.with_gradients() if direction == "backward" else (x.q, x.k, x.v)
    with warnings.catch_warnings(record=True) as caught, sdpa_kernel(backend):
        warnings.simplefilter("always")
        torch.set_warn_always(True)
        try:
            torch.nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=bias, dropout_p=dropout, is_causal=x.causal, scale=x.scale,
                enable_gqa=x.cell.q_heads != x.cell.kv_heads)
        except RuntimeError as error:
            said = [str(w.message) for w in caught]
            raise Refused(reason_in(said, header, str(error))) from error


def _judged_without_dropout(run_with, dropout):
    """The Run that `run_with` makes of a probability. PyTorch's backends draw other decisions than
    attile, so their results with dropout are held against no reference: those of the same call with
    a probability of 0 are, and the call with dropout is timed."""
    run = run_with(dropout)
    if dropout:
        run.undropped = run_with(0.0).call
    return run


def cudnn(x, direction):
    import torch
    from torch.nn.attention import SDPBackend

    _offered(x, ("dropout", "bias_hrc", "bias_bc", "bias_hrc_dropout", "key_padding"),
             "PyTorch's interface to it changes scores by a bias and by dropout alone")
    bias, aten = x.policy.torch_bias(x.dtype), torch.ops.aten
    demand(x, direction, SDPBackend.CUDNN_ATTENTION, "cuDNN attention", bias, x.policy.dropout)

    def run_with(dropout):
        def forward():
            return aten._scaled_dot_product_cudnn_attention(
                x.q, x.k, x.v, bias, True, dropout, x.causal, False, scale=x.scale)

        if direction == "forward":
            return Run(forward, lambda r: {"o": r[0], "lse": r[1]})
        o, lse, cum_q, cum_k, max_q, max_k, seed, offset, _ = forward()
        return Run(
            lambda: aten._scaled_dot_product_cudnn_attention_backward(
                x.dout, x.q, x.k, x.v, o, lse, seed, offset, bias, cum_q, cum_k, max_q, max_k,
                dropout, x.causal, scale=x.scale),
            gradients)

    return _judged_without_dropout(run_with, x.policy.dropout)


def fa2(x, direction):
    import torch
    from torch.nn.attention import SDPBackend

    _offered(x, ("dropout",), "PyTorch's interface to it has a causal mask and dropout alone")
    if x.cell.mask == "window":
        return _fa2_window(x, direction)
    if x.cell.lengths:
        return _fa2_packed(x, direction)
    demand(x, direction, SDPBackend.FLASH_ATTENTION, "Flash attention", None, x.policy.dropout)
    aten = torch.ops.aten

    def run_with(dropout):
        def forward():
            return aten._scaled_dot_product_flash_attention(
                x.q, x.k, x.v, dropout, x.causal, False, scale=x.scale)

        if direction == "forward":
            return Run(forward, lambda r: {"o": r[0], "lse": r[1]})
        o, lse, cum_q, cum_k, max_q, max_k, state, unused, _ = forward()
        return Run(
            lambda: aten._scaled_dot_product_flash_attention_backward(
                x.dout, x.q, x.k, x.v, o, lse, cum_q, cum_k, max_q, max_k, dropout, x.causal,
                state, unused, scale=x.scale),
            gradients)

    return _judged_without_dropout(run_with, x.policy.dropout)


def _fa2_window(x, direction):
    """The operator below scaled_dot_product_attention, which has no window: (batch, row, head,
    dim) tensors; keys of row i are [i - left, i + right]."""
    import torch

    aten = torch.ops.aten
    q, k, v, dout = (t.transpose(1, 2) for t in (x.q, x.k, x.v, x.dout))
    length = x.cell.length
    window = {"window_size_left": x.cell.window - 1, "window_size_right": 0}

    def forward():
        return aten._flash_attention_forward(
            q, k, v, None, None, length, length, 0.0, False, False, scale=x.scale, **window)

    if direction == "forward":
        return Run(forward, lambda r: {"o": r[0].transpose(1, 2), "lse": r[1]})
    o, lse, state, unused, _ = forward()
    return Run(
        lambda: aten._flash_attention_backward(
            dout, q, k, v, o, lse, None, None, length, length, 0.0, False, state, unused,
            scale=x.scale, **window),
        lambda r: gradients(t.transpose(1, 2) for t in r))


def _fa2_packed(x, direction):
    """The operators that torch.nn.attention.varlen.varlen_attn calls, where PyTorch has it, on
    (row, head, dim) tensors."""
    import torch

    aten = torch.ops.aten
    q, k, v, dout = (t[0].transpose(0, 1) for t in (x.q, x.k, x.v, x.dout))
    where = (x.cu_seqlens, x.cu_seqlens, x.cell.longest, x.cell.longest)

    def by_head(tensor):
        return tensor.transpose(0, 1)[None]

    def forward():
        return aten._flash_attention_forward(q, k, v, *where, 0.0, x.causal, False, scale=x.scale)

    def outputs(r):
        lse = {"lse": r[1][None]} if r[1].shape == x.q.shape[1:3] else {}  # some pad it
        return {"o": by_head(r[0]), **lse}

    if direction == "forward":
        return Run(forward, outputs)
    o, lse, state, unused, _ = forward()
    return Run(
        lambda: aten._flash_attention_backward(
            dout, q, k, v, o, lse, *where, 0.0, x.causal, state, unused, scale=x.scale),
        lambda r: gradients(by_head(t) for t in r))


def installed(name):
    """A package that need not be there."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise Refused(f"{name} cannot be imported: {error}") from error


def flash_attention_3(cell):
    """The package of FlashAttention-3, if it is installed and takes the cell's element type."""
    if cell.dtype == "fp32":
        raise Refused("FlashAttention-3 takes types of 16 bits")
    return installed("flash_attn_interface")


def fa3(x, direction):
    """FlashAttention-3 by the functions of its package, which PyTorch does not carry: where that is
    installed. Its tensors are (batch, row, head, dim), or (row, head, dim) of packed sequences. As
    the package has no function for the backward pass alone, that goes through autograd, with the
    graph kept. Versions differ in whether they return LSE unasked."""
    cell = x.cell
    if cell.policy not in ("", "softcap"):
        raise Refused("FlashAttention-3 changes scores by a softcap alone")
    package = flash_attention_3(cell)
    named = {"softmax_scale": x.scale, "causal": x.causal}
    if cell.mask == "window":
        named["window_size"] = (cell.window - 1, 0)
    if cell.policy == "softcap":
        named["softcap"] = float(compare_cells.SOFTCAP)
    if cell.lengths:
        attention = package.flash_attn_varlen_func
        named |= {"cu_seqlens_q": x.cu_seqlens, "cu_seqlens_k": x.cu_seqlens,
                  "max_seqlen_q": cell.longest, "max_seqlen_k": cell.longest}
    else:
        attention = package.flash_attn_func

    def by_row(tensor):
        return tensor[0].transpose(0, 1) if cell.lengths else tensor.transpose(1, 2)

    def by_head(tensor):
        return tensor.transpose(0, 1)[None] if cell.lengths else tensor.transpose(1, 2)

    inputs, dout = [by_row(t) for t in (x.q, x.k, x.v)], by_row(x.dout)
    if direction == "backward":
        inputs = [t.detach().requires_grad_() for t in inputs]
    elif "return_attn_probs" in inspect.signature(attention).parameters:
        named["return_attn_probs"] = True
    try:
        first = attention(*inputs, **named)
    except RuntimeError as error:  # what this version, or this build, does not have
        raise Refused(str(error)) from error
    if direction == "forward":
        return Run(lambda: attention(*inputs, **named),
                   lambda r: {"o": by_head(r[0]), "lse": r[1][None] if cell.lengths else r[1]})
    import torch

    o = first[0] if isinstance(first, tuple) else first
    return Run(lambda: torch.autograd.grad(o, inputs, dout, retain_graph=True),
               lambda r: gradients(by_head(t) for t in r))


def efficient(x, direction):
    import torch
    from torch.nn.attention import SDPBackend

    _offered(x, (), "compare.py measures it without policies")
    demand(x, direction, SDPBackend.EFFICIENT_ATTENTION, "Memory efficient")
    aten = torch.ops.aten

    def forward():
        return aten._scaled_dot_product_efficient_attention(
            x.q, x.k, x.v, None, True, 0.0, x.causal, scale=x.scale)

    if direction == "forward":
        return Run(forward, lambda r: {"o": r[0], "lse": r[1]})
    o, lse, seed, offset = forward()
    return Run(
        lambda: aten._scaled_dot_product_efficient_attention_backward(
            x.dout, x.q, x.k, x.v, None, o, lse, seed, offset, 0.0, [True, True, True, False],
            x.causal, scale=x.scale),
        gradients)


def flex(x, direction):
    """Compiled for this shape alone. Backward goes through autograd, with the graph kept: the
    operator below it takes the compiled subgraphs. Outside no_grad the kernel writes LSE."""
    import torch
    import torch._functorch.config
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    cell, policy = x.cell, x.policy
    _offered(x, compare_cells.POLICIES, "FlexAttention has this policy")
    if policy.dropout:
        raise Refused("FlexAttention has no dropout")
    if policy.earlier is not None:
        raise Refused("FlexAttention does not go on from earlier keys")
    torch._functorch.config.donated_buffer = False  # else retain_graph is refused
    torch._dynamo.reset()  # every shape is a new compilation, and their number is limited

    def attention(q, k, v, *sinks, **options):
        """With sinks O is that of the keys times their part of the denominator, as models do it."""
        if not sinks:
            return flex_attention(q, k, v, **options)
        o, lse = flex_attention(q, k, v, return_lse=True, **options)
        return (o * torch.sigmoid(lse - sinks[0][:, None])[..., None]).to(o.dtype)

    compiled = torch.compile(attention, dynamic=False, fullgraph=True)

    options = {"scale": x.scale, "enable_gqa": cell.q_heads != cell.kv_heads}
    if visible := policy.visible():
        options["block_mask"] = create_block_mask(
            visible, cell.batch if policy.by_batch else None, None, cell.length, cell.length,
            device=x.q.device)
    learned = []
    if direction == "backward" and policy.learned is not None:
        learned = [policy.learned.detach().requires_grad_()]
    if modify := policy.modify(torch.float32, *learned):
        options["score_mod"] = modify
    sinks = [] if policy.sinks is None else [policy.sinks]
    if direction == "forward":
        return Run(lambda: compiled(x.q, x.k, x.v, *sinks, **options), lambda o: {"o": o})
    leaves = x.with_gradients() + [s.detach().requires_grad_() for s in sinks]
    o = compiled(*leaves, **options)
    return Run(lambda: torch.autograd.grad(o, leaves + learned, x.dout, retain_graph=True),
               lambda r: gradients(r[:len(leaves)]))  # the learned bias's is not judged


PEERS = {"cudnn": cudnn, "fa2": fa2, "fa3": fa3, "efficient": efficient, "flex": flex}
assert PEERS.keys() <= compare_cells.PEERS.keys()


# ---- the reference -------------------------------------------------------------------------------


def rounding(largest, dtype):
    """One rounding of a tensor whose largest magnitude is `largest`: half the spacing of a 16-bit
    type there, the spacing of fp32 (docs/numerics.md)."""
    spacing = math.ldexp(1.0, math.frexp(largest)[1] - 1 - MANTISSA_BITS[dtype])
    return spacing if dtype == "fp32" else spacing / 2


def one_by_one(sums, a, b):
    """sums + a @ b, the terms of each sum added in their order: the plain sums of docs/numerics.md.
    A library's product of matrices has partial sums, whose error in fp32 is smaller."""
    for column, row in zip(a.T[:, :, None], b):
        sums = sums.addcmul(column, row)
    return sums


def backwards(sums, a, b):
    """The same from the last term to the first: the error of one order is luck."""
    return one_by_one(sums, a.flip(1), b.flip(0))


def at_once(sums, a, b):
    """sums + a @ b."""
    return sums + a @ b


def magnitudes(sums, a, b):
    """The same of the terms' absolute values."""
    return sums + a.abs() @ b.abs()


def standard_attention(q, k, v, dout, policy, scale, store, add_product=at_once, add_result=None,
                       rows=2048):
    """Standard attention of one head by (row, dim) matrices and its HeadPolicy, `rows` query rows
    at a time, in the type that they have. `store` is what writing a matrix to memory does to it,
    `add_product` makes the sums over rows and columns, `add_result`, if given, those that are
    results. Gradients unless `dout` is None."""
    import torch

    add_result = add_result or add_product
    columns = torch.arange(len(k), device=q.device)
    every_row = torch.arange(len(q), device=q.device)[:, None]
    results = {"o": [], "lse": [], "dq": []}
    dsink = sink_squares = 0.0
    dk, dv = torch.zeros_like(k), torch.zeros_like(v)
    for first in range(0, len(q), rows):
        row = every_row[first:first + rows]
        scores = unmodified = store(q[first:first + rows] @ k.T * scale)
        if policy.modified:
            scores = store(policy.modified(unmodified, row, columns))
        if policy.visible:
            scores.masked_fill_(~policy.visible(row, columns), -math.inf)
        lse = torch.logsumexp(scores, 1, keepdim=True)
        if policy.sink is not None:
            lse = torch.logaddexp(lse, policy.sink)
        before = torch.zeros_like(v[:len(scores)])
        if policy.earlier is not None:
            earlier_o, earlier_lse = (t[first:first + rows] for t in policy.earlier)
            lse = torch.logaddexp(lse, earlier_lse[:, None])
            before = torch.exp(earlier_lse[:, None] - lse) * earlier_o
        p = store(torch.exp(scores - lse))
        factors = policy.factors(row, columns) if policy.factors else None
        dropped = p if factors is None else store(p * factors)
        if dout is None:
            results["o"].append(store(add_result(before, dropped, v)))
            results["lse"].append(lse[:, 0])
            continue
        o = store(add_product(torch.zeros_like(v[:len(p)]), dropped, v))
        d = dout[first:first + rows]
        if policy.sink is not None:
            terms = torch.exp(policy.sink - lse) * d * o
            dsink, sink_squares = dsink - terms.sum(), sink_squares + terms.square().sum()
        dp = store(d @ v.T)
        if factors is not None:
            dp = dp * factors
        ds = p * (dp - (d * o).sum(1, keepdim=True))
        if policy.derivative:
            ds = ds * policy.derivative(unmodified)
        ds = store(ds)
        results["dq"].append(add_result(torch.zeros_like(k[:len(ds)]), ds, k) * scale)
        dk = add_result(dk, ds.T, q[first:first + rows])
        dv = add_result(dv, dropped.T, d)
    if dout is None:
        return {"o": torch.cat(results["o"]), "lse": torch.cat(results["lse"])}
    sink = {} if policy.sink is None else {"dsink": dsink, "sink_squares": sink_squares}
    return {"dq": torch.cat(results["dq"]), "dk": dk * scale, "dv": dv, **sink}


def sampled_heads(cell):
    """(batch, kv head) pairs: the first, the middle and the last."""
    count = cell.batch * cell.kv_heads
    return [divmod(i, cell.kv_heads) for i in sorted({0, count // 2, count - 1})]


def group_attention(x, direction, batch, kv_head, dtype, store, dropout=True, **sums):
    """All query heads of one kv head: {name: (heads, row, dim)}; dK and dV are summed, and what is
    of sinks is (heads). Where the policy has dropout it is attile's, or left out."""
    import torch

    group = x.cell.q_heads // x.cell.kv_heads
    q, k, v, dout = (x.of_sequence(t, batch) for t in (x.q, x.k, x.v, x.dout))
    k, v = k[kv_head].to(dtype), v[kv_head].to(dtype)
    heads = [
        standard_attention(q[h].to(dtype), k, v,
                           dout[h].to(dtype) if direction == "backward" else None,
                           x.policy.of_head(batch, h, dtype, dropout), x.scale, store, **sums)
        for h in range(kv_head * group, (kv_head + 1) * group)]
    results = {}
    for name in heads[0]:
        stacked = torch.stack([head[name] for head in heads])
        stacked = stacked.sum(0, keepdim=True) if name in ("dk", "dv") else stacked
        results[name] = stacked if name == "lse" or name in OF_SINKS else store(stacked)
    return results


OF_SINKS = ("dsink", "sink_squares")


def sink_gradients(x, kv_head, dtype, store):
    """(dsinks, the root of the sum of the terms' squares) of the query heads of one kv head, which
    are sums over all batches."""
    found = [group_attention(x, "backward", batch, kv_head, dtype, store)
             for batch in range(x.cell.batch)]
    return (sum(f["dsink"] for f in found), sum(f["sink_squares"] for f in found).sqrt())


def without_sinks(results):
    return {name: t for name, t in results.items() if name not in OF_SINKS}


class Reference:
    """fp64 results of a sample of heads, and how far from them a contender may be: twice the error
    of standard attention in the problem's type (fp32 sums, every stored matrix rounded), plus one
    rounding; for fp32 what three products of TF32 for each one may be off by besides; LSE, which is
    fp32 everywhere, within 1e-4. All relative to the largest magnitude. Dropout is attile's;
    `undropped` is the reference without it."""

    LSE_TOLERANCE = 1e-4
    # Of the sum of a result's terms' absolute values: docs/numerics.md.
    THREE_PRODUCTS_ERROR = 2.0 ** -21

    def __init__(self, x, direction, dropout=True):
        import torch

        torch.set_float32_matmul_precision("highest")
        self._made_of = x, direction
        self.cell = x.cell
        self.wanted = {}
        fp32 = x.cell.dtype == "fp32"
        plain_error, products_error, self.largest = {}, {}, {}
        for where in sampled_heads(x.cell):
            in_fp64 = (x, direction, *where, torch.float64, lambda t: t, dropout)
            exact = without_sinks(group_attention(*in_fp64))
            for name, t in exact.items():
                self.largest[name] = max(self.largest.get(name, 0.0), t.abs().max().item())
            for order in (one_by_one, backwards) if fp32 else (at_once,):
                plain = group_attention(x, direction, *where, torch.float32,
                                        lambda t: t.to(x.plain).to(torch.float32), dropout,
                                        add_product=order)
                for name, t in exact.items():
                    error = (plain[name].double() - t).abs().max().item()
                    plain_error[name] = max(plain_error.get(name, 0.0), error)
            in_magnitudes = group_attention(*in_fp64, add_result=magnitudes) if fp32 else {}
            for name, t in without_sinks(in_magnitudes).items():
                error = self.THREE_PRODUCTS_ERROR * t.max().item()
                products_error[name] = max(products_error.get(name, 0.0), error)
            self.wanted[where] = exact
        self.tolerance = {
            name: self.LSE_TOLERANCE if name == "lse" else
            (2 * plain_error[name] + rounding(self.largest[name], x.cell.dtype)
             + products_error.get(name, 0.0)) / self.largest[name]
            for name in self.largest}

        if x.policy.sinks is not None and direction == "backward":
            self._add_sinks(x)

    def _add_sinks(self, x):
        """The sinks' gradient is few numbers, in which the error of the plain computation is luck:
        what rounding O adds is as docs/numerics.md has it."""
        import torch

        self.dsinks, allowed = {}, 0.0
        for kv_head in {kv_head for _, kv_head in self.wanted}:
            exact, root = sink_gradients(x, kv_head, torch.float64, lambda t: t)
            plain, _ = sink_gradients(x, kv_head, torch.float32,
                                      lambda t: t.to(x.dtype).to(torch.float32))
            unit = 2.0 ** -(MANTISSA_BITS[self.cell.dtype] + 1)
            error = 2 * (plain.double() - exact).abs() + (2 * unit + 2.0 ** -20) * root
            allowed = max(allowed, error.max().item())
            self.dsinks[kv_head] = exact
        largest = max(t.abs().max().item() for t in self.dsinks.values())
        self.largest["dsinks"] = largest
        self.tolerance["dsinks"] = (allowed + rounding(largest, "fp32")) / largest

    @functools.cached_property
    def undropped(self):
        return Reference(*self._made_of, dropout=False)

    def errors(self, outputs):
        """{name: largest error over the sample, relative to the largest magnitude}; NaN where the
        whole tensor is not finite."""
        import torch

        found = {}
        for name, tensor in outputs.items():
            if name == "lse" and not self.cell.lengths:  # some pad the rows
                tensor = tensor.flatten(2)[..., :self.cell.query_rows]
            if not torch.isfinite(tensor).all():
                found[name] = math.nan
                continue
            worst = 0.0
            if name == "dsinks":
                for kv_head, wanted in self.dsinks.items():
                    got = tensor.double()[kv_head * len(wanted):(kv_head + 1) * len(wanted)]
                    worst = max(worst, (got - wanted).abs().max().item())
                found[name] = worst / self.largest[name]
                continue
            for (batch, kv_head), wanted in self.wanted.items():
                heads = wanted[name].shape[0]
                group = 1 if name in ("dk", "dv") else heads
                got = self._made_of[0].of_sequence(tensor, batch)
                got = got[kv_head * group:kv_head * group + heads].double()
                worst = max(worst, (got - wanted[name]).abs().max().item())
            found[name] = worst / self.largest[name]
        return found

    def details(self, outputs):
        """What else of outputs goes into a result."""
        return {}

    def wrong(self, errors):
        """The names whose error is above the tolerance."""
        return [name for name, error in errors.items() if not error <= self.tolerance[name]]
