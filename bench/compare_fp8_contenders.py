# SPDX-License-Identifier: MIT
"""The contenders of compare.py where Q and K are in fp8, and the reference that they are held
against. Needs PyTorch with a CUDA GPU, imported where it is used.

The reference is of the numbers that fp8 holds. What quantising costs is measured besides:
`quantised_error`, of O against fp64 of the tensors before, in the Frobenius norm of the sample."""
import copy
import functools
import inspect
import math

import compare_build
import compare_contenders
from compare_contenders import Refused, Run, c_tensor, group_attention, sampled_heads

E4M3_LARGEST, E5M2_LARGEST = 448.0, 57344.0
# What docs/fp8.md allows besides: of the root of the sum of the squares of P V where P is in
# e4m3; of the sum of |P V| for sums of 14 bits, over at most 256 keys or over all; and of what a
# score's error of the sum of its |q k| makes of O and LSE.
PROBABILITIES, PROMOTED_KEYS, STEP_KEYS, STEP, SCORES = 2.0 ** -3, 256, 32, 2.0 ** -13, 2.0 ** -11


class Inputs(compare_contenders.Inputs):
    """Standard normal tensors, `before`; what fp8 makes of them, `stored`, with a scale for each
    tensor that is a power of two, so that q, k and v in 16 bits are the same numbers."""

    def __init__(self, cell, device="cuda"):
        import torch

        super().__init__(cell, device)
        kinds = {"e4m3": (torch.float8_e4m3fn, E4M3_LARGEST),
                 "e5m2": (torch.float8_e5m2, E5M2_LARGEST)}
        if cell.scale:
            self.scale = cell.scale
        if cell.is_all_fp8:
            self.plain = torch.float16
        self.before = (self.q, self.k, self.v)
        self.stored, scales = [], []
        for name, kind in zip("qkv", cell.inputs):
            tensor = getattr(self, name)
            scale = 1.0
            if kind in kinds:
                dtype, largest = kinds[kind]
                if cell.has_scales:
                    most = tensor.abs().max().item()
                    scale = 2.0 ** math.ceil(math.log2(most / largest))
                stored = (tensor.float() / scale).to(dtype)
                setattr(self, name, (stored.float() * scale).to(self.dtype))
                tensor = stored
            self.stored.append(tensor)
            scales.append(scale)
        self.scales = torch.tensor(scales, dtype=torch.float32, device=device)


class Reference(compare_contenders.Reference):
    """Also what products of fp8 may be off by."""

    def __init__(self, x, direction, dropout=True):
        super().__init__(x, direction, dropout)
        self._exact = self._of(x.before)
        allowed = {}
        for where in sampled_heads(x.cell):
            for name, error in self._product_errors(*where).items():
                allowed[name] = max(allowed.get(name, 0.0), error)
        keys = min(x.cell.length, PROMOTED_KEYS)
        self._sum_error = allowed.pop("sums") / self.largest["o"]
        for name, error in allowed.items():
            self.tolerance[name] += error / self.largest[name]
        self.tolerance["o"] += self._of_keys(keys)

    @functools.cached_property
    def unpromoted(self):
        """The reference of who adds P V of all keys in sums of 14 bits."""
        other = copy.copy(self)
        more = self._of_keys(self.cell.length) - self._of_keys(min(self.cell.length, PROMOTED_KEYS))
        other.tolerance = {**self.tolerance, "o": self.tolerance["o"] + more}
        return other

    @functools.cached_property
    def of_before(self):
        """The reference of who computes with the tensors before they were quantised."""
        x = copy.copy(self._made_of[0])
        x.q, x.k, x.v = x.before
        x.plain = x.dtype
        other = compare_contenders.Reference(x, "forward")
        other.details = self.details
        return other

    def details(self, outputs):
        squares = of_all = 0.0
        for (batch, kv_head), exact in self._exact.items():
            heads = exact.shape[0]
            got = outputs["o"][batch][kv_head * heads:(kv_head + 1) * heads].double()
            squares += (got - exact).square().sum().item()
            of_all += exact.square().sum().item()
        error = math.sqrt(squares / of_all)
        return {"quantised_error": error} if math.isfinite(error) else {}

    def _of_keys(self, keys):
        """What sums of 14 bits over so many keys are off by."""
        return self._sum_error * STEP * math.ceil(keys / STEP_KEYS)

    def _of(self, tensors):
        """{(batch, kv head): O in fp64} of a sample of heads of other tensors."""
        import torch

        x = copy.copy(self._made_of[0])
        x.q, x.k, x.v = tensors
        return {where: group_attention(x, "forward", *where, torch.float64, lambda t: t)["o"]
                for where in sampled_heads(x.cell)}

    def _product_errors(self, batch, kv_head, rows=1024):
        """What products of fp8 make of O and LSE, and "sums": the largest sum of |P V|."""
        import torch

        x = self._made_of[0]
        group = x.cell.q_heads // x.cell.kv_heads
        k, v = (t[batch][kv_head].double() for t in (x.k, x.v))
        columns = torch.arange(len(k), device=k.device)
        found = {"o": 0.0, "lse": 0.0, "sums": 0.0}
        for head in range(kv_head * group, (kv_head + 1) * group):
            q = x.q[batch][head].double()
            for first in range(0, len(q), rows):
                part = q[first:first + rows]
                scores = part @ k.T * x.scale
                if x.causal:
                    row = torch.arange(first, first + len(part), device=q.device)[:, None]
                    scores.masked_fill_(columns > row, -math.inf)
                p = torch.softmax(scores, 1)
                sums = p @ v.abs()
                weights = p * (part.abs() @ k.abs().T * x.scale)
                of_lse = weights.sum(1, keepdim=True)
                of_o = SCORES * (weights @ v.abs() + of_lse * (p @ v).abs()).max().item()
                if x.cell.is_all_fp8:
                    roots = (p.square() @ v.square()).sqrt()
                    of_o += PROBABILITIES * roots.max().item()
                    found["sums"] = max(found["sums"], sums.max().item())
                found["o"] = max(found["o"], of_o)
                found["lse"] = max(found["lse"], SCORES * of_lse.max().item())
        return found


def attile(x, direction, libraries, name):
    """The contender of ours with that name (Fp8Cell.modes). Outputs hold NaN before the first
    call."""
    import torch

    cell = x.cell
    o = torch.full_like(x.dout, math.nan)
    lse = torch.full(x.q.shape[:3], math.nan, device=o.device)
    in_16_bits = name == "in_16_bits"
    q, k, v = x.before if in_16_bits else x.stored
    problem = compare_build.Problem(
        lse=lse.data_ptr(), batch=cell.batch, q_heads=cell.q_heads, kv_heads=cell.kv_heads,
        q_len=cell.length, kv_len=cell.length, scale=x.scale,
        stream=torch.cuda.current_stream().cuda_stream)
    for i, role in enumerate("qkv"):
        setattr(problem.cache, f"{role}_scale", x.scales[i:].data_ptr())
    for member, tensor in zip("qkvo", (q, k, v, o)):
        setattr(problem, member, c_tensor(tensor))
    library = libraries[cell.kernel_of(name)]
    if isinstance(library, Exception):
        raise library
    if why := library.check(problem):
        raise Refused(why)
    size = library.workspace_bytes(problem)
    workspace = torch.full((size,), 0xFF, dtype=torch.uint8, device=o.device)
    problem.workspace, problem.workspace_bytes = workspace.data_ptr() or None, size

    # `held` keeps them while the run lives.
    def outputs(_, held=(q, k, v, x.scales, workspace)):
        return {"o": o, "lse": lse}

    judged_by = {"unpromoted": lambda r: r.unpromoted,
                 "in_16_bits": lambda r: r.of_before}.get(name)
    return Run(library.runner(problem), outputs, judged_by=judged_by)


def fa3(x, direction):
    """FlashAttention-3, whose sums of P V are not promoted. It takes e4m3 alone, with a scale for
    each sequence and kv head."""
    import torch

    cell = x.cell
    if set(cell.inputs) != {"e4m3"}:
        raise Refused("FlashAttention-3 takes Q, K and V in e4m3")
    attention = compare_contenders.flash_attention_3(cell).flash_attn_func
    named = {"softmax_scale": x.scale, "causal": x.causal}
    for i, role in enumerate("qkv"):
        named[f"{role}_descale"] = torch.full((cell.batch, cell.kv_heads), x.scales[i].item(),
                                              device=x.scales.device)
    if "return_attn_probs" in inspect.signature(attention).parameters:
        named["return_attn_probs"] = True
    inputs = [t.transpose(1, 2) for t in x.stored]
    try:
        attention(*inputs, **named)
    except (RuntimeError, TypeError) as error:  # what this version, or this build, does not have
        raise Refused(str(error)) from error

    def outputs(result):
        return {"o": result[0].transpose(1, 2), "lse": result[1]}

    return Run(lambda: attention(*inputs, **named), outputs, judged_by=lambda r: r.unpromoted)


PEERS = {"fa3": fa3}
