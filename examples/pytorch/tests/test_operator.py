# SPDX-License-Identifier: MIT
"""The operator as PyTorch sees it: opcheck, torch.compile, autograd, errors, graphs, cache."""
import itertools
import os
import subprocess
import sys

import attile_torch
import pytest
import torch
from attile_torch import _call, _variants
from reference import FULL, run_without_waiting
from torch.autograd import forward_ad
from torch.library import opcheck

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="it needs a GPU")
full = pytest.mark.skipif(not FULL, reason="it runs on a GPU, or by test.sh --all")


def make(device, dtype=torch.float32, shape=(2, 40, 4, 64), kv_heads=2, grads=True):
    sizes = [shape, *[(*shape[:2], kv_heads, shape[3])] * 2]
    return [torch.randn(size, device=device).to(dtype).requires_grad_(grads) for size in sizes]


def extras(device, which):
    """(the operator's bias, slopes and sinks, its rng, dropout)."""
    bias = slopes = sinks = rng = None
    dropout = 0.0
    if which == "dropout":
        rng, dropout = torch.tensor([3, 4], device=device), 0.1
    if which == "bias and sinks":
        bias = torch.randn(4, 40, 40, device=device, requires_grad=True)
        sinks = torch.randn(4, device=device, requires_grad=True)
    return (bias, slopes, sinks), rng, dropout


@pytest.mark.parametrize("which", ["", "dropout", "bias and sinks"])
@pytest.mark.parametrize("layout", [_call.BSHD, _call.BHSD])
def test_opcheck(device, layout, which):
    q, k, v = make(device)
    if layout == _call.BHSD:
        q, k, v = (x.detach().transpose(1, 2).requires_grad_() for x in (q, k, v))
    tensors, rng, dropout = extras(device, which)
    arguments = (*tensors, None, None, None, None, rng, layout, 0, 0, None, 1, -1, -1, 0.0, dropout,
                 False)
    opcheck(torch.ops.attile.forward.default, (q, k, v, *arguments))
    with torch.no_grad():
        out, lse = torch.ops.attile.forward(q, k, v, *arguments)
    detached = [x.detach() if torch.is_tensor(x) else x for x in (q, k, v, out, lse, *arguments)]
    learned = which == "bias and sinks"
    opcheck(torch.ops.attile.backward.default,
            (torch.randn_like(out), torch.randn_like(lse), *detached, learned, learned))


def test_opcheck_packed(device):
    q, k, v = (x.detach()[0].requires_grad_() for x in make(device))
    cu = torch.tensor([0, 13, 40], dtype=torch.int32, device=device)
    used = torch.tensor([13, 20], dtype=torch.int32, device=device)
    for lengths in (None, used):
        opcheck(torch.ops.attile.forward.default,
                (q, k, v, None, None, None, cu, cu, lengths, lengths, None, _call.PACKED, 40, 40,
                 0.2, 1, -1, -1, 0.0, 0.0, False))


def test_both_ways_agree(device):
    """The operator, which torch.compile sees, and the direct way of an eager call."""
    q, k, v = make(device)
    bias = torch.randn(4, 40, 40, device=device, requires_grad=True)
    sinks = torch.randn(4, device=device, requires_grad=True)
    leaves = (q, k, v, bias, sinks)
    out, lse = attile_torch.attention(q, k, v, causal=True, bias=bias, sinks=sinks,
                                      return_lse=True)
    direct = torch.autograd.grad((out.square().sum() + lse.sum()), leaves)
    out, lse = torch.ops.attile.forward(q, k, v, bias, None, sinks, None, None, None, None, None,
                                        _call.BSHD, 0, 0, None, 1, -1, -1, 0.0, 0.0, False)
    through = torch.autograd.grad((out.square().sum() + lse.sum()), leaves)
    for a, b in zip(direct, through, strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_gradients_that_are_not_wanted(device):
    q, k, v = make(device)
    k.requires_grad_(False)
    sinks = torch.randn(4, device=device)
    attile_torch.attention(q, k, v, sinks=sinks, causal=True).sum().backward()
    assert k.grad is None and q.grad is not None and sinks.grad is None
    with torch.no_grad():
        assert not attile_torch.attention(q, k, v).requires_grad


def test_gradient_of_lse_alone(device):
    q, k, v = make(device)
    _, lse = attile_torch.attention(q, k, v, return_lse=True)
    lse.sum().backward()
    scores = torch.einsum("bihd,bjhd->bhij", q.detach(), k.detach().repeat_interleave(2, 2)) / 8
    expected = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1),
                            k.detach().repeat_interleave(2, 2)) / 8
    assert torch.allclose(q.grad, expected, atol=1e-5) and (v.grad == 0).all()


# ---- torch.compile ------------------------------------------------------------------------------


class Layer(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.qkv = torch.nn.Linear(64, 3 * 64)
        self.options = options

    def forward(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 2, 32).unbind(2)
        return attile_torch.attention(q, k, v, **self.options).flatten(2).relu()


@pytest.mark.parametrize(("backend", "options"), [
    ("aot_eager", {"causal": True}), ("aot_eager", {"causal": True, "dropout_p": 0.2}),
    pytest.param("inductor", {"causal": True}, marks=full),
    pytest.param("inductor", {"causal": True, "dropout_p": 0.2}, marks=full)], ids=str)
def test_compile(device, backend, options):
    layer = Layer(**options).to(device)
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    x = torch.randn(2, 33, 64, device=device)
    plain = {key: value for key, value in options.items() if key != "dropout_p"}
    results = []
    for module in (layer, compiled):
        torch.manual_seed(3)
        layer.zero_grad()
        out = module(x)
        out.square().mean().backward()
        results.append((out.detach(), layer.qkv.weight.grad.clone()))
    if plain == options:
        assert torch.allclose(results[0][0], results[1][0], atol=1e-5)
        assert torch.allclose(results[0][1], results[1][1], atol=1e-5)
    else:  # a compiler may draw other numbers; each call draws its own
        assert torch.isfinite(results[1][1]).all() and results[1][1].abs().max() > 0
        assert not torch.equal(compiled(x), compiled(x))


@gpu
def test_compile_to_graphs(device):
    """What torch.compile captures in CUDA graphs draws anew at every replay."""
    layer = Layer(causal=True, dropout_p=0.2).to(device)
    compiled = torch.compile(layer, fullgraph=True, mode="reduce-overhead")
    x = torch.randn(2, 33, 64, device=device)
    outs = []
    for _ in range(5):
        torch.compiler.cudagraph_mark_step_begin()
        layer.zero_grad()  # gradients are memory of a graph, which its next replay overwrites
        out = compiled(x)
        out.square().mean().backward()
        outs.append(out.detach().clone())
    assert all(not torch.equal(a, b) for a, b in itertools.pairwise(outs))
    assert torch.isfinite(layer.qkv.weight.grad).all()


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=full)])
def test_compile_dynamic_shapes(device, backend):
    layer = Layer(causal=True).to(device)
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=backend)
    for rows in (9, 20, 33):
        x = torch.randn(2, rows, 64, device=device)
        assert torch.allclose(layer(x), compiled(x), atol=1e-5)


def test_compile_varlen(device):
    def step(q, k, v, cu):
        out = attile_torch.attention_varlen(q, k, v, cu, cu, 40, 40, causal=True)
        return out.square().sum()

    q, k, v = (x.detach()[0].requires_grad_() for x in make(device))
    cu = torch.tensor([0, 13, 40], dtype=torch.int32, device=device)
    grads = []
    for function in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        grads.append(torch.autograd.grad(function(q, k, v, cu), (q, k, v)))
    for a, b in zip(*grads, strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_shapes_alone():
    """On the device meta there are shapes and no numbers."""
    q, k, v = (torch.empty(2, 40, heads, 64, device="meta") for heads in (4, 2, 2))
    out, lse = attile_torch.attention(q, k, v[..., :32], causal=True, return_lse=True)
    assert out.is_meta and out.shape == (2, 40, 4, 32) and lse.shape == (2, 4, 40)


def test_forward_derivatives_are_refused(device):
    q, k, v = make(device, grads=False)
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="forward-mode"):
        attile_torch.attention(forward_ad.make_dual(q, q), k, v)


def test_checkpoint(device):
    """What is computed again has the same dropout."""
    layer = Layer(causal=True, dropout_p=0.3).to(device)
    x = torch.randn(2, 33, 64, device=device)
    grads = []
    for checkpointed in (False, True):
        torch.manual_seed(3)
        layer.zero_grad()
        out = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False) \
            if checkpointed else layer(x)
        out.square().mean().backward()
        grads.append(layer.qkv.weight.grad.clone())
    assert torch.allclose(*grads, atol=1e-6)


def test_state_of_the_generator(device):
    """The generator's state decides what is dropped, and each call advances it."""
    own = torch.cuda if device.type == "cuda" else torch
    q, k, v = make(device, grads=False)

    def attend():
        return attile_torch.attention(q, k, v, causal=True, dropout_p=0.3)

    state = own.get_rng_state()
    first, second = attend(), attend()
    own.set_rng_state(state)
    assert torch.equal(attend(), first) and torch.equal(attend(), second)
    assert not torch.equal(first, second)


def test_second_derivative_is_refused(device):
    q, k, v = make(device)
    out = attile_torch.attention(q, k, v, causal=True)
    grad, = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


def test_autocast(device):
    q, k, v = make(device)
    with torch.autocast(device.type, torch.bfloat16):
        out = attile_torch.attention(q, k, v, causal=True)
    assert out.dtype == torch.bfloat16
    out.sum().backward()
    assert q.grad.dtype == torch.float32


# ---- determinism --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["argument", "global"])
def test_deterministic(device, kind):
    rows = 700 if device.type == "cuda" else 60
    q, k, v = make(device, torch.bfloat16, (2, rows, 4, 64))
    options = {"deterministic": True} if kind == "argument" else {}
    torch.use_deterministic_algorithms(kind == "global")
    try:
        runs = []
        for _ in range(5):
            out = attile_torch.attention(q, k, v, causal=True, **options)
            runs.append(torch.autograd.grad(out.float().square().sum(), (q, k, v)))
    finally:
        torch.use_deterministic_algorithms(False)
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(run, runs[0], strict=True))


# ---- errors -------------------------------------------------------------------------------------


def test_errors_are_the_librarys(device):
    q, k, v = make(device, grads=False)
    with pytest.raises(ValueError, match=r"^scale must be 2\^-100 to 2\^100$"):
        attile_torch.attention(q, k, v, scale=0.0)
    with pytest.raises(ValueError, match="^q_heads must be a multiple of kv_heads$"):
        attile_torch.attention(q[:, :, :3], k, v)
    with pytest.raises(ValueError, match=r"^PhiloxDropout: probability must be >= 0 and < 1"):
        attile_torch.attention(q, k, v, dropout_p=1.0, causal=True)
    with pytest.raises(ValueError, match="^Softcap: cap must be finite and > 0$"):
        attile_torch.attention(q, k, v, softcap=-1.0, causal=True)
    if device.type == "cuda":
        with pytest.raises(ValueError, match="^head_dim is larger than the D of the kernel$"):
            attile_torch.attention(*make(device, shape=(1, 8, 2, 264)))
    with pytest.raises(ValueError, match="^scale must be"):
        torch.compile(attile_torch.attention, backend="aot_eager")(q, k, v, scale=0.0)


@gpu
def test_errors_of_the_backward_pass(device):
    q, k, v = make(device)
    bias = torch.randn(4, 1, 40, device=device, requires_grad=True)
    out = attile_torch.attention(q, k, v, bias=bias, deterministic=True)
    with pytest.raises(ValueError, match="^kTwoPass and kInOrder: scores add to an element"):
        out.sum().backward()


def test_errors_of_tensors(device):
    q, k, v = make(device, grads=False)
    attend, int32 = attile_torch.attention, torch.int32
    for call, why in [
            (lambda: attend(q[0], k, v), "4 axes"),
            (lambda: attend(q, k.half(), v), "one dtype"),
            (lambda: attend(q.double(), k.double(), v.double()), "float32, float16 or bfloat16"),
            (lambda: attend(q, k[..., :32], v), "the same head_dim"),
            (lambda: attend(q, k[:, :9], v), "the same shape but"),
            (lambda: attend(q[:1], k, v), "the same batch"),
            (lambda: attend(q, k, v, enable_gqa=False), "enable_gqa"),
            (lambda: attend(q, k, v, layout="sbhd"), "layout"),
            (lambda: attend(q, k, v, bias=torch.zeros(3, 40, 40, device=device)), "bias"),
            (lambda: attend(q, k, v, alibi_slopes=torch.zeros(3, device=device)), "alibi_slopes"),
            (lambda: attend(q, k, v, sinks=torch.zeros(3, device=device)), "sinks"),
            (lambda: attend(q, k, v, causal="top_left", window=(3, 3)), "bottom-right"),
            (lambda: attend(q, k, v, seqused_k=torch.zeros(3, dtype=int32, device=device)),
             "seqused_k"),
            (lambda: attend(q, k, v, seqused_k=torch.zeros(2, device=device)), "seqused_k")]:
        with pytest.raises(ValueError, match=why):
            call()


# ---- the cache of variants ----------------------------------------------------------------------

FIRST_CALL = """
import torch, attile_torch
x = torch.randn(1, 5, 1, 8, device="{device}")
attile_torch.attention(x, x, x, causal="top_left")
"""


def test_cache(device, tmp_path):
    """A variant is compiled once, says so, and another process finds it."""
    folder = os.path.dirname(os.path.dirname(attile_torch.__file__))
    path = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
    environment = dict(os.environ, ATTILE_TORCH_CACHE=str(tmp_path), PYTHONPATH=path)
    said = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", FIRST_CALL.format(device=device)], check=True,
                              env=environment, capture_output=True, text=True)
        said.append(done.stderr)
    assert said[0].count("attile_torch: compiling") == 1 and "top_left" in said[0]
    assert "attile_torch" not in said[1]
    assert len(list(tmp_path.glob("*.so"))) == 1


def test_prebuild(device):
    """Several variants at once, of which a call then needs none."""
    attile_torch.prebuild(
        {"dtype": torch.float32, "head_dim": 64, "causal": True, "device": device},
        {"dtype": torch.float32, "head_dim": 64, "causal": True, "dropout": True,
         "backward": False, "device": device})
    before = len(_variants._pending)
    q, k, v = make(device)
    attile_torch.attention(q, k, v, causal=True).sum().backward()
    assert len(_variants._pending) == before


def test_compiler_that_fails(device, tmp_path, monkeypatch):
    monkeypatch.setattr(_variants, "cache_folder", lambda: tmp_path)
    options = _call.Options(0, 0, 0, None, 0, -1, -1, 0.0, 0.0, False)
    variant = _call.variant_of(device, torch.float32, 64, 64, options)
    monkeypatch.setitem(_variants.TYPES, "fp8", "NoSuchType")
    with pytest.raises(_variants.BuildError, match="could not compile forward fp8.*NoSuchType"):
        _call.request(variant._replace(dtype="fp8")).result()


# ---- CUDA graphs --------------------------------------------------------------------------------


@gpu
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("p", [0.0, 0.2])
def test_graph(device, p, packed):
    """A step is captured, and replayed with other contents; dropout draws anew."""
    q, k, v = make(device, torch.bfloat16, (2, 300, 4, 64))
    cu = torch.tensor([0, 130, 300, 600], dtype=torch.int32, device=device)

    def step():
        options = {"causal": True, "dropout_p": p, "deterministic": True}
        if packed:
            flat = [x.flatten(0, 1) for x in (q, k, v)]
            out = attile_torch.attention_varlen(*flat, cu, cu, 300, 300, **options)
        else:
            out = attile_torch.attention(q, k, v, **options)
        return out, *torch.autograd.grad(out.float().square().sum(), (q, k, v))

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        q.normal_()
    graph.replay()
    first = [x.clone() for x in captured]
    if p == 0:
        assert all(torch.equal(a, b) for a, b in zip(first, step(), strict=True))
    graph.replay()
    assert torch.equal(captured[0], first[0]) == (p == 0)


@gpu
def test_no_synchronisation(device):
    q, k, v = make(device, torch.bfloat16)
    cu = torch.tensor([0, 13, 40], dtype=torch.int32, device=device)

    def step():
        out = attile_torch.attention(q, k, v, causal=True, dropout_p=0.1)
        packed = attile_torch.attention_varlen(q[0], k[0], v[0], cu, cu, 40, 40)
        (out.sum() + packed.sum()).backward()

    run_without_waiting(step)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="it needs two GPUs")
def test_another_device():
    q, k, v = make(torch.device("cuda", 1), torch.bfloat16)
    attile_torch.attention(q, k, v, causal=True).sum().backward()
    assert torch.isfinite(q.grad).all() and torch.cuda.current_device() == 0
