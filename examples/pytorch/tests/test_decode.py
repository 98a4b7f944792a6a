# SPDX-License-Identifier: MIT
"""attention_decode() against the formula, sequence by sequence, and as PyTorch sees it."""
import struct
import threading

import attile_torch
import pytest
import torch
from attile_torch import _cache, _variants
from caches import CACHES, Problem, int32
from reference import FULL, run_without_waiting
from torch.autograd import forward_ad
from torch.library import opcheck

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="it needs a GPU")
full = pytest.mark.skipif(not FULL, reason="it runs on a GPU, or by test.sh --all")

LENGTHS = {  # of queries and of keys
    "step": ([1, 1, 1, 1], [77, 1, 16, 300]),
    "drafts": ([3, 3, 3], [200, 3, 64]),
    "mixed": ([1, 5, 0, 40], [9, 5, 3, 130]),
    "rows without keys": ([4, 2], [2, 0]),
}
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
MASKS = [{}, {"causal": True}, {"window": (20, 0)}]
KINDS = [(dtype, mask, cache) for dtype in DTYPES for mask in MASKS for cache in CACHES] if FULL \
    else [(torch.float32, MASKS[1], cache) for cache in CACHES] + \
    [(torch.float16, MASKS[2], "paged"), (torch.bfloat16, MASKS[0], "cached_packed")]


def decode(problem, options, **more):
    """(out, lse)."""
    return attile_torch.attention_decode(problem.q, problem.k_cache, problem.v_cache,
                                         **problem.where, **options, return_lse=True, **more)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(("dtype", "options", "cache"), KINDS, ids=str)
def test_lengths(device, dtype, options, cache, lengths):
    problem = Problem(device, dtype, cache, *LENGTHS[lengths])
    problem.compare(*decode(problem, options), options)


@pytest.mark.parametrize("cache", ["cached", "paged_packed"])
def test_other_lines_and_first_keys(device, cache):
    """cache_batch_idx and leftpad_k; masks align with the keys from leftpad_k on."""
    problem = Problem(device, torch.float32, cache, [1, 4, 2], [30, 70, 5], leftpad=[3, 0, 33],
                      shuffled=True)
    problem.compare(*decode(problem, {"causal": True}), {"causal": True})


@pytest.mark.parametrize("dims", [(8, 8), (40, 24), (59, 59), (96, 96), (128, 128), (192, 128),
                                  (256, 256)] if FULL else [(40, 24), (59, 59)], ids=str)
@pytest.mark.parametrize("heads", [(4, 4), (6, 1)], ids=str)
def test_dims_and_heads(device, heads, dims):
    problem = Problem(device, torch.bfloat16, "paged", [2, 2], [140, 33], heads, *dims)
    problem.compare(*decode(problem, {"causal": True}), {"causal": True})


@pytest.mark.parametrize("page_size", [1, 16, 24, 256] if FULL else [1, 24])
def test_pages(device, page_size):
    """Pages of any size, listed in a part of a wider table."""
    problem = Problem(device, torch.float32, "paged", [1, 1], [200, 47], page_size=page_size)
    table = problem.where["page_table"]
    problem.where["page_table"] = torch.cat([table, table + 10**6], 1)[:, :table.shape[1]]
    problem.compare(*decode(problem, {}), {})


@pytest.mark.parametrize("cache", ["cached", "paged"])
def test_modifiers(device, cache):
    problem = Problem(device, torch.float32, cache, [3, 3], [60, 90])
    options = {"softcap": 3.0, "alibi_slopes": torch.rand(2, 4, device=device), "scale": 0.3,
               "sinks": torch.randn(4, device=device), "causal": True}
    out, lse = decode(problem, options)
    for b in range(2):
        own = dict(options, alibi_slopes=options["alibi_slopes"][b])
        exact, exact_lse = problem.expected(torch.float64, own)[b]
        assert torch.allclose(out[b].double(), exact, atol=1e-5)
        assert torch.allclose(lse[b].double(), exact_lse, atol=1e-5)


# ---- splits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("splits", ["fill", "none", 128, 512])
@pytest.mark.parametrize("dtype", DTYPES if FULL else DTYPES[:1], ids=str)
def test_splits(device, dtype, splits):
    lengths = ([1, 1, 7], [5000 if FULL else 700, 300, 9])
    problem = Problem(device, dtype, "paged_packed", *lengths)
    problem.compare(*decode(problem, {"causal": True}, splits=splits), {"causal": True})


@gpu
def test_fixed_splits_do_not_depend_on_the_batch(device):
    problem = Problem(device, torch.bfloat16, "paged", [1] * 9, [3000, *range(100, 900, 100)])
    whole, _ = decode(problem, {}, splits=256)
    problem.where |= {key: problem.where[key][:1] for key in ("seqused_k", "page_table")}
    problem.q = problem.q[:1]
    assert torch.equal(decode(problem, {}, splits=256)[0], whole[:1])


@gpu
def test_scratch_memory_serves_all_calls(device):
    """One memory of a stream is left ready by every call for the next one, whatever its shape."""
    problems = [Problem(device, torch.bfloat16, "paged", [rows] * batch, [columns] * batch)
                for rows, batch, columns in ((1, 1, 4000), (5, 3, 700), (1, 40, 130), (64, 2, 900))]
    torch.cuda.synchronize()
    _cache._ready.clear()
    for _ in range(3):
        for problem in problems:
            for splits in ("fill", 128):
                problem.compare(*decode(problem, {"causal": True}, splits=splits),
                                {"causal": True})
    assert len(_cache._ready) == 1


@gpu
def test_two_streams(device):
    """Calls on two streams at once, from two threads, have scratch memory of their own."""
    problems = [Problem(device, torch.bfloat16, "paged", [1] * 4, [3000, 700, 2000, columns])
                for columns in (1500, 2500)]
    expected = [decode(problem, {})[0] for problem in problems]
    torch.cuda.synchronize()
    outs = [[], []]

    def attend(i):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(100):
                outs[i].append(decode(problems[i], {})[0])
            torch.cuda.current_stream().synchronize()

    threads = [threading.Thread(target=attend, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for truth, some in zip(expected, outs, strict=True):
        assert len(some) == 100 and all(torch.equal(out, truth) for out in some)


class Recorder:
    """In the place of a variant's library: what it is asked, and what it answers."""

    def __init__(self):
        self.calls, self.size, self.stream, self.error = [], 1000, 0, 0

    def workspace(self, call):
        return self.size

    def capture(self, stream):
        return self.stream

    def run(self, call, memory, size):
        reset, = struct.unpack("=q", call[-8:])
        self.calls.append((memory, reset))
        assert memory != 0 and size >= self.size
        return self.error

    def explain(self, call, error):
        raise RuntimeError(error)


def test_scratch_memory_is_ready(monkeypatch):
    """Which memory calls get, and which of them make it ready: the first one of each stream, of
    each captured graph, and behind a launch that failed."""
    monkeypatch.setattr(_cache, "_ready", {})
    problem = Problem(torch.device("cpu"), torch.float32, "paged", [1], [9])
    where = _cache.Where(**{**dict.fromkeys(_cache.Where._fields), **problem.where})
    tensors = problem.q, problem.k_cache, problem.v_cache
    options = _cache.DecodeOptions(None, None, None, 0, -1, -1, 0.0, *_cache.splits_of("fill"))
    library = Recorder()

    def call(capture=0, size=1000, keeps_scratch=True):
        library.stream, library.size = capture, size
        plan = _cache.DecodePlan(*tensors, None, None, None, where, options)
        plan._is_split, plan._library = True, library
        plan.run(*tensors, problem.q, None, None, None, where, keeps_scratch)
        return library.calls[-1]

    first, reset = call()
    assert reset == 1 and call() == (first, 0) and call(size=500) == (first, 0)
    captured, reset = call(capture=5)
    assert reset == 1 and captured != first and call(capture=5) == (captured, 0)
    assert set(_cache._ready) == {(None, 0, 0), (None, 0, 5)}
    _, reset = call(capture=6)
    assert reset == 1 and set(_cache._ready) == {(None, 0, 0), (None, 0, 6)}
    assert call() == (first, 0)
    other, reset = call(keeps_scratch=False)  # what a compiled model calls
    assert reset == 1 and other != first and call() == (first, 0)
    larger, reset = call(size=3000)
    assert reset == 1 and call() == (larger, 0)
    assert set(_cache._ready) == {(None, 0, 0)}  # a new memory: what ended captures had is freed
    library.error = 1
    with pytest.raises(RuntimeError):
        call()
    library.error = 0
    assert call()[1] == 1 and call()[1] == 0


# ---- tensors ------------------------------------------------------------------------------------


def test_strides(device):
    """K and V in one buffer, and heads ahead of rows, in the cache and in Q."""
    problem = Problem(device, torch.float32, "paged", [2, 2], [50, 21])
    expected, _ = decode(problem, {})
    k, v = problem.k_cache, problem.v_cache
    problem.k_cache, problem.v_cache = torch.stack([k, v], 1).unbind(1)
    assert torch.equal(decode(problem, {})[0], expected)
    heads_first = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (k, v)]
    problem.k_cache, problem.v_cache = heads_first
    assert torch.equal(decode(problem, {})[0], expected)
    q = problem.q
    for order in ((1, 2), (2, 3)):
        problem.q = q.transpose(*order).contiguous().transpose(*order)
        assert problem.q.stride() != q.stride()
        assert torch.equal(decode(problem, {})[0], expected)


@pytest.mark.parametrize("cache", ["cached", "cached_packed"])
def test_out(device, cache):
    """The output goes where it is told, and rows of no sequence keep what they hold."""
    problem = Problem(device, torch.float32, cache, [1, 5, 0], [30, 20, 10])
    expected, _ = decode(problem, {"causal": True})
    wide = torch.full((*expected.shape[:-1], 100), 7.0, device=device)
    out = wide[..., :64]
    given, lse = decode(problem, {"causal": True}, out=out)
    assert given is out and (wide[..., 64:] == 7).all()
    problem.compare(out, lse, {"causal": True})
    if cache == "cached":  # without `out` they get 0, and -inf in LSE
        outside = torch.arange(5, device=device) >= int32([[1], [5], [0]], device)
        assert (out[outside] == 7).all() and (expected[outside] == 0).all()
        assert torch.isneginf(lse.transpose(1, 2)[outside]).all()


def test_rows_behind_the_last_sequence(device):
    """Padding of a step of fixed size: rows behind cu_seqlens_q[-1] are not written."""
    problem = Problem(device, torch.float32, "paged_packed", [1, 2, 1], [30, 20, 10])
    expected, _ = decode(problem, {"causal": True}, splits="none")
    problem.q = torch.cat([problem.q, problem.q.new_full((3, 4, 64), torch.nan)])
    out = torch.full_like(problem.q, 7.0)
    decode(problem, {"causal": True}, splits="none", out=out)
    assert torch.equal(out[:4], expected) and (out[4:] == 7).all()


@pytest.mark.parametrize("cache", ["cached", "paged"])
def test_bounds(device, cache):
    """Longer sequences are cut to the bounds, and to what the cache has; larger bounds change no
    bit."""
    problem = Problem(device, torch.float32, cache, [1, 1], [48, 21])
    expected, _ = decode(problem, {}, splits="none")
    cut, _ = decode(problem, {}, splits="none", max_seqlen_k=30)
    for length, bound, result in ((48, 48, expected), (30, None, cut), (10**6, 10**6, expected)):
        problem.where["seqused_k"] = int32([length, 21], device)
        out, _ = decode(problem, {}, splits="none", max_seqlen_k=bound)
        assert torch.equal(out, result)
    assert not torch.equal(cut, expected)


def test_all_rows_of_a_cache(device):
    """Without seqused_k each sequence has all rows of its piece."""
    problem = Problem(device, torch.float32, "cached", [1, 1], [40, 40])
    expected, _ = decode(problem, {})
    del problem.where["seqused_k"]
    assert torch.equal(decode(problem, {})[0], expected)


@pytest.mark.parametrize("sizes", [(0, 1, 3, 4), (2, 0, 3, 4), (2, 1, 0, 4), (2, 1, 3, 0)], ids=str)
def test_empty(device, sizes):
    batch, rows, pages, entries = sizes
    q = torch.randn(batch, rows, 4, 64, device=device)
    k, v = torch.randn(2, pages, 16, 2, 64, device=device)
    table = torch.zeros(batch, entries, dtype=torch.int32, device=device)
    seqused_k = torch.full((batch,), 9 if pages and entries else 0, dtype=torch.int32,
                           device=device)
    out = attile_torch.attention_decode(q, k, v, seqused_k=seqused_k, page_table=table)
    assert out.shape == q.shape and (pages and entries or (out == 0).all())


# ---- errors -------------------------------------------------------------------------------------


def test_errors_are_the_librarys(device):
    problem = Problem(device, torch.float32, "paged", [1, 1], [50, 21])
    with pytest.raises(ValueError, match=r"^scale must be 2\^-100 to 2\^100$"):
        decode(problem, {"scale": 0.0})
    with pytest.raises(ValueError, match="^splits.keys must be at least 1$"):
        decode(problem, {}, splits=0)
    if device.type == "cuda":
        with pytest.raises(ValueError, match="^splits.keys must be a multiple of the kernel's Bc"):
            decode(problem, {}, splits=100)
    with pytest.raises(ValueError, match="^o is the memory of q"):
        decode(problem, {}, out=problem.q)
    problem.where["page_table"] = problem.where["page_table"][:1]
    with pytest.raises(ValueError, match="^PagedKeys: tables is less than batch"):
        decode(problem, {})
    problem.q = problem.q[:, :, :3]
    with pytest.raises(ValueError, match="^q_heads must be a multiple of kv_heads$"):
        decode(problem, {})


def test_errors_of_tensors(device):
    problem = Problem(device, torch.float32, "paged", [1, 1], [50, 21])
    q, k, v = problem.q, problem.k_cache, problem.v_cache
    table, used = problem.where["page_table"], problem.where["seqused_k"]

    def attend(q=q, k=k, v=v, seqused_k=used, page_table=table, **options):
        attile_torch.attention_decode(q, k, v, seqused_k=seqused_k, page_table=page_table,
                                      **options)

    attend()
    zeros = torch.zeros(3, device=device)
    for options, why in [
            ({"q": q[0]}, "q must be"), ({"k": k[0]}, "4 axes"),
            ({"k": k.half()}, "one dtype"), ({"k": k[..., :32]}, "the same head_dim"),
            ({"v": v[:, :3]}, "the same shape but"),
            ({"q": q.double(), "k": k.double(), "v": v.double()}, "float32, float16 or bfloat16"),
            ({"k": k.transpose(2, 3).contiguous().transpose(2, 3)}, "last axis of k_cache"),
            ({"seqused_k": used.long()}, "seqused_k must be.*int32"),
            ({"seqused_k": used[:1]}, "seqused_k must be"), ({"seqused_k": None}, "seqused_k"),
            ({"page_table": table.long()}, "page_table must be.*int32"),
            ({"page_table": table[0]}, "page_table must be"),
            ({"cu_seqlens_q": int32([0, 1, 2], device)}, "q must be"),
            ({"alibi_slopes": zeros}, "alibi_slopes"), ({"sinks": zeros}, "sinks"),
            ({"splits": "some"}, "splits"), ({"splits": True}, "splits"),
            ({"splits": 1.5}, "splits"),
            ({"out": q[..., :32]}, "out must be"), ({"out": q.half()}, "out must be")]:
        with pytest.raises(ValueError, match=f"^attile_torch: .*{why}"):
            attend(**options)


def test_gradients_are_refused(device):
    problem = Problem(device, torch.float32, "paged", [1, 1], [50, 21])
    problem.q.requires_grad_()
    with pytest.raises(ValueError, match="attention_decode has no gradients"):
        decode(problem, {})
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert not decode(problem, {})[0].requires_grad
    problem.q = problem.q.detach()
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="forward-mode"):
        problem.q = forward_ad.make_dual(problem.q, problem.q)
        decode(problem, {})


# ---- as PyTorch sees it --------------------------------------------------------------------------


def operator_arguments(problem, lse=True, **more):
    where = {**dict.fromkeys(_cache.Where._fields), **problem.where}
    bounds = where.pop("max_seqlen_q", None), None
    out = torch.full_like(problem.q, 7.0)
    lse = torch.full(out.shape[:-1], 7.0, device=out.device).transpose(-1, -2).contiguous() \
        if lse else None
    return (problem.q, problem.k_cache, problem.v_cache, out, lse, more.get("slopes"),
            more.get("sinks"), *where.values(), *bounds, None, 1, -1, -1, 0.0, *_cache.splits_of(
                more.get("splits", "fill")))


@pytest.mark.parametrize("cache", ["cached", "paged_packed"])
def test_opcheck(device, cache):
    problem = Problem(device, torch.float32, cache, [1, 2, 1], [50, 21, 9])
    for x in (problem.q, problem.k_cache, problem.v_cache):
        x.nan_to_num_()  # what opcheck compares
    sinks = torch.randn(4, device=device)
    for more in ({}, {"lse": False, "splits": 128}, {"sinks": sinks, "slopes": sinks.abs()}):
        opcheck(torch.ops.attile.decode.default, operator_arguments(problem, **more))


def test_both_ways_agree(device):
    """The operator, which torch.compile sees, and the direct way of an eager call."""
    problem = Problem(device, torch.float32, "paged_packed", [1, 2, 1], [500, 21, 9])
    arguments = operator_arguments(problem)
    torch.ops.attile.decode(*arguments)
    for direct, through in zip(decode(problem, {"causal": True}), arguments[3:5], strict=True):
        assert torch.equal(direct, through)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=full)])
def test_compile(device, backend, dynamic):
    def step(q, k_cache, v_cache, where):
        out, lse = attile_torch.attention_decode(q * 2, k_cache, v_cache, causal=True,
                                                 return_lse=True, **where)
        return out.relu(), lse + 1

    compiled = torch.compile(step, fullgraph=True, backend=backend, dynamic=dynamic)
    for rows in ([1, 2, 1], [3, 2, 2]):
        problem = Problem(device, torch.float32, "paged", rows, [50, 21, 9])
        arguments = problem.q, problem.k_cache, problem.v_cache, problem.where
        for a, b in zip(step(*arguments), compiled(*arguments), strict=True):
            assert torch.allclose(a, b, atol=1e-5)


@gpu
def test_compile_to_graphs(device):
    """What torch.compile captures in CUDA graphs."""
    problem = Problem(device, torch.bfloat16, "paged", [1, 1, 1], [900, 21, 90])

    def step(q):
        return attile_torch.attention_decode(q * 2, problem.k_cache, problem.v_cache,
                                             **problem.where)

    compiled = torch.compile(step, fullgraph=True, mode="reduce-overhead")
    for _ in range(5):
        q = torch.randn_like(problem.q)
        torch.compiler.cudagraph_mark_step_begin()
        assert torch.equal(compiled(q), step(q))


def test_shapes_alone():
    """On the device meta there are shapes and no numbers."""
    q = torch.empty(3, 2, 4, 64, device="meta")
    k, v = (torch.empty(9, 16, 2, dim, device="meta") for dim in (64, 32))
    table = torch.empty(3, 5, dtype=torch.int32, device="meta")
    out, lse = attile_torch.attention_decode(q, k, v, seqused_k=table[:, 0].contiguous(),
                                             page_table=table, return_lse=True)
    assert out.is_meta and out.shape == (3, 2, 4, 32) and lse.shape == (3, 4, 2)


def test_prebuild(device):
    attile_torch.prebuild(
        {"dtype": torch.float32, "head_dim": 64, "sequences": "paged", "device": device},
        {"append": True, "dtype": torch.float32, "sequences": "paged", "device": device})
    before = len(_variants._pending)
    problem = Problem(device, torch.float32, "paged", [1, 1], [50, 21])
    decode(problem, {})
    attile_torch.append(problem.keys[0][None, :1], problem.values[0][None, :1], problem.k_cache,
                        problem.v_cache, seqused_k=problem.where["seqused_k"][:1],
                        page_table=problem.where["page_table"])
    assert len(_variants._pending) == before


# ---- CUDA graphs --------------------------------------------------------------------------------


def captured(step):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    return graph, result


@gpu
@pytest.mark.parametrize("splits", ["fill", "none", 128])
def test_graph(device, splits):
    """Calls of a captured graph, replayed with other lengths, among eager calls of other shapes."""
    problem = Problem(device, torch.bfloat16, "paged", [1] * 3, [2000, 700, 90])
    other = Problem(device, torch.bfloat16, "cached", [5] * 3, [1000, 700, 90])

    def step():
        return [decode(problem, {"softcap": 5.0 * cap}, splits=splits)[0] for cap in (1, 2, 3)]

    step()
    expected_other = decode(other, {})[0]
    graph, outs = captured(step)
    for lengths in ([2000, 700, 90], [1, 650, 0], [1234, 5, 89]):
        problem.where["seqused_k"].copy_(int32(lengths, device))
        graph.replay()
        assert torch.equal(decode(other, {})[0], expected_other)
        assert all(torch.equal(a, b) for a, b in zip(outs, step(), strict=True))


@gpu
def test_two_graphs_at_once(device):
    """Graphs that are captured on one stream may be replayed on two: each has its own memory."""
    problems = [Problem(device, torch.bfloat16, "paged", [1] * 4, [3000, 700, 2000, columns])
                for columns in (1500, 2500)]
    expected = [decode(problem, {})[0] for problem in problems]
    graphs = [captured(lambda problem=problem: [decode(problem, {})[0] for _ in range(50)])
              for problem in problems]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in graphs]
    for _ in range(20):
        for stream, (graph, _) in zip(streams, graphs, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
    torch.cuda.synchronize()
    for truth, (_, outs) in zip(expected, graphs, strict=True):
        assert all(torch.equal(out, truth) for out in outs)


@gpu
def test_graph_keeps_its_memory(device):
    """What is allocated after a capture does not take the graph's scratch memory, and the package
    does not hold on to it."""
    problem = Problem(device, torch.bfloat16, "paged", [1] * 3, [2000, 700, 90])
    expected, _ = decode(problem, {})
    graph, (out, _) = captured(lambda: decode(problem, {}))
    captures = [key for key in _cache._ready if key[2] != 0]
    assert len(captures) == 1
    _, _ = captured(lambda: decode(problem, {}))
    assert captures[0] not in _cache._ready
    blocks = [torch.full((1 << 20,), 255, dtype=torch.uint8, device=device) for _ in range(64)]
    for _ in range(3):
        graph.replay()
        assert torch.equal(out, expected)
    assert all((block == 255).all() for block in blocks)


@gpu
def test_no_synchronisation(device):
    problem = Problem(device, torch.bfloat16, "paged", [1] * 3, [2000, 700, 90])
    where = {key: problem.where[key] for key in ("seqused_k", "page_table")}
    new = [torch.randn(3, 1, 2, 64, device=device, dtype=torch.bfloat16) for _ in range(2)]
    dropped = torch.zeros(1, dtype=torch.int32, device=device)

    def step():
        attile_torch.append(*new, problem.k_cache, problem.v_cache, dropped=dropped, **where)
        decode(problem, {})

    run_without_waiting(step)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="it needs two GPUs")
def test_another_device():
    problem = Problem(torch.device("cuda", 1), torch.bfloat16, "paged", [1] * 3, [2000, 700, 90])
    problem.compare(*decode(problem, {}), {})
    assert torch.cuda.current_device() == 0
