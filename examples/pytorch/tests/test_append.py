# SPDX-License-Identifier: MIT
"""append(): what is written into caches, rotary embedding, rows that are dropped, and loops of
append and attention_decode against attention to all keys at once."""
import attile_torch
import pytest
import torch
from attile_torch import _cache
from caches import CACHES, Problem, int32
from reference import FULL, attention, clone, close
from torch.library import opcheck

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="it needs a GPU")
full = pytest.mark.skipif(not FULL, reason="it runs on a GPU, or by test.sh --all")

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def same(a, b):
    """The same bits, NaN included."""
    torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


class NewRows(Problem):
    """Of a problem the last keys, as many as queries, are new: the cache does not have them."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.full = self.k_cache.clone(), self.v_cache.clone()
        for b, n in enumerate(self.rows):
            for cache in (self.k_cache, self.v_cache):
                cache[self.new_places(b)] = torch.nan
        self.k_new, self.v_new = (
            self.lay_out([x[len(x) - n:] for x, n in zip(parts, self.rows, strict=True)])
            for parts in (self.keys, self.values))

    def new_places(self, b):
        end = self.leftpad[b] + self.columns[b]
        return self.places(b, range(end - self.rows[b], end))

    def append(self, **more):
        attile_torch.append(self.k_new, self.v_new, self.k_cache, self.v_cache,
                            **{**self.where, **more})


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("dtype", DTYPES if FULL else DTYPES[:1], ids=str)
def test_new_rows(device, dtype, cache):
    """The new rows, and no others, are written."""
    problem = NewRows(device, dtype, cache, [1, 5, 0, 20], [40, 5, 7, 33], dim=72, dim_v=40,
                      leftpad=[2, 0, 5, 1], shuffled=True)
    problem.append()
    same(problem.k_cache, problem.full[0])
    same(problem.v_cache, problem.full[1])


def rotated(x, positions, cos, sin, interleaved, dtype):
    """Rows (rows, heads, dim) at positions, by tables (positions, dims / 2)."""
    x, cos, sin = (y.to(dtype) for y in (x, cos, sin))
    cos, sin = (table[positions][:, None] for table in (cos, sin))
    dims = 2 * cos.shape[-1]
    turned = x.clone()
    first, second = (slice(0, dims, 2), slice(1, dims, 2)) if interleaved else \
        (slice(0, dims // 2), slice(dims // 2, dims))
    turned[..., first] = x[..., first] * cos - x[..., second] * sin
    turned[..., second] = x[..., second] * cos + x[..., first] * sin
    return turned


def angles(device, positions, dims, dtype=torch.float32):
    theta = 100.0 ** -(torch.arange(0, dims, 2, device=device) / dims)
    angle = torch.arange(positions, device=device)[:, None] * theta
    return angle.cos().to(dtype), angle.sin().to(dtype)


def compare_rotated(problem, got_q, first, tables, interleaved):
    """Compares the cache and the rotated queries: the rows of sequence b are at position first[b]
    and behind it."""
    dtype = problem.q.dtype
    for b, n in enumerate(problem.rows):
        at = torch.arange(first[b], first[b] + n, device=problem.device)
        new_key = problem.keys[b][problem.columns[b] - n:]
        in_cache = problem.k_cache[problem.new_places(b)]
        for name, got, x in (("k", in_cache, new_key),
                             ("q", problem.split(got_q)[b], problem.queries[b])):
            exact, plain = (rotated(x, at, *tables, interleaved, kind)
                            for kind in (torch.float64, dtype))
            if n > 0:
                close(name, got, exact, plain)
            dims = 2 * tables[0].shape[1]
            same(got[..., dims:], x[..., dims:])
    same(problem.v_cache, problem.full[1])


@pytest.mark.parametrize("dims", [64, 20])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("dtype", "tables"), [
    (torch.float32, torch.float32), (torch.bfloat16, torch.float32),
    *([(torch.float16, torch.float16)] if FULL else [])], ids=str)
def test_rotary(device, dtype, tables, interleaved, dims):
    """Keys and queries are rotated by their number among the sequence's keys."""
    problem = NewRows(device, dtype, "paged", [1, 5, 0, 20], [40, 5, 7, 33], leftpad=[2, 0, 5, 1])
    q = problem.q.clone()
    cos, sin = angles(device, 64, dims, tables)
    problem.append(q=q, rotary_cos=cos, rotary_sin=sin, rotary_interleaved=interleaved)
    first = [a - b for a, b in zip(problem.columns, problem.rows, strict=True)]
    compare_rotated(problem, q, first, (cos, sin), interleaved)
    for x, n in zip(q, problem.rows, strict=True):  # rows of no sequence stay as they are
        assert torch.isnan(x[n:]).all()


def test_rotary_positions_that_are_given(device):
    """rotary_seqlens has the positions, which the tables' rows bound; both are halves of one
    table, and Q, K and V slices of one tensor."""
    problem = NewRows(device, torch.float32, "cached_packed", [1, 3], [40, 5])
    table = torch.cat(angles(device, 12, 64), -1)
    cos, sin = table[:, :32], table[:, 32:]
    qkv = torch.cat([problem.q, problem.k_new, problem.v_new], 1)
    before = qkv.clone()
    q, problem.k_new, problem.v_new = qkv.split([4, 2, 2], 1)
    problem.append(q=q, rotary_cos=cos, rotary_sin=sin, rotary_seqlens=int32([7, 2], device))
    compare_rotated(problem, q, [7, 2], (cos, sin), False)
    same(qkv[:, 4:], before[:, 4:])


# ---- rows that are dropped ----------------------------------------------------------------------


def test_dropped_rows(device):
    """A row without a row in the cache is written nowhere, is counted, and can be told."""
    problem = NewRows(device, torch.float32, "paged", [3, 3, 3, 3], [40, 33, 20, 64])
    dropped = torch.zeros(1, dtype=torch.int32, device=device)
    problem.append(dropped=dropped)
    attile_torch.check_dropped(dropped)
    same(problem.k_cache, problem.full[0])
    table, used = problem.where["page_table"], problem.where["seqused_k"]
    table[0, 2] = -1  # two of the rows at 37, 38, 39 would lie behind the last page, 32 to 47
    table[1, 2] = len(problem.k_cache)  # 32 of the rows at 30, 31, 32
    used[2], used[3] = 1, 66  # positions -2, -1, 0, and 63, 64, 65
    problem.append(dropped=dropped)
    assert dropped.item() == 3 + 1 + 2 + 2
    with pytest.raises(attile_torch.DroppedRowsError, match="dropped 8 new rows"):
        attile_torch.check_dropped(dropped)
    expected = [x.clone() for x in problem.full]
    for whole, new in zip(expected, (problem.k_new, problem.v_new), strict=True):
        for b, row, position in ((1, 0, 30), (1, 1, 31), (2, 2, 0), (3, 0, 63)):
            whole[problem.places(b, [position])] = new[b, row]
    same(problem.k_cache, expected[0])
    same(problem.v_cache, expected[1])


def test_bound_of_the_keys(device):
    """Positions from max_seqlen_k on are dropped."""
    problem = NewRows(device, torch.float32, "cached", [2], [40])
    dropped = torch.zeros((), dtype=torch.int32, device=device)
    problem.append(dropped=dropped, max_seqlen_k=39)
    assert dropped.item() == 1
    assert torch.isnan(problem.k_cache[0, 39]).all()
    same(problem.k_cache[0, :39], problem.full[0][0, :39])


# ---- errors -------------------------------------------------------------------------------------


def test_errors_are_the_librarys(device):
    problem = NewRows(device, torch.float32, "paged", [1, 1], [50, 21])
    cos, sin = angles(device, 64, 64)
    with pytest.raises(ValueError, match="^Rotary: rows is less than kv_len"):
        problem.append(q=problem.q, rotary_cos=cos[:40], rotary_sin=sin[:40])
    problem.append(q=problem.q, rotary_cos=cos[:50], rotary_sin=sin[:50], max_seqlen_k=50)
    with pytest.raises(ValueError, match="^q or q_out is given, and nothing rotates them"):
        problem.append(q=problem.q)
    with pytest.raises(ValueError, match="^Rotary: dims is larger than head_dim$"):
        problem.append(**dict(zip(("rotary_cos", "rotary_sin"), angles(device, 64, 66),
                                  strict=True)))
    with pytest.raises(ValueError, match="^k is the memory of v"):
        attile_torch.append(problem.k_new, problem.v_new, problem.k_cache, problem.k_cache,
                            **problem.where)
    with pytest.raises(ValueError, match="^PagedKeys: tables is less than batch"):
        problem.append(page_table=problem.where["page_table"][:1])


def test_errors_of_tensors(device):
    problem = NewRows(device, torch.float32, "paged", [1, 1], [50, 21])
    cos, sin = angles(device, 64, 64)
    k_new, v_new = problem.k_new, problem.v_new

    def add(k_new=k_new, v_new=v_new, **options):
        attile_torch.append(k_new, v_new, problem.k_cache, problem.v_cache,
                            **{**problem.where, **options})

    add()
    for options, why in [
            ({"k_new": k_new[:, :, :1]}, "heads and the head_dim"),
            ({"k_new": k_new.half()}, "one dtype"), ({"v_new": v_new.half()}, "one dtype"),
            ({"v_new": v_new[:1]}, "shape of k_new"), ({"k_new": k_new[0]}, "k_new must be"),
            ({"q": problem.q[:1], "rotary_cos": cos, "rotary_sin": sin}, "q must have"),
            ({"rotary_cos": cos}, "both be given"),
            ({"rotary_cos": cos, "rotary_sin": sin[:9]}, "the same shape"),
            ({"rotary_cos": cos.double(), "rotary_sin": sin.double()}, "float32, float16"),
            ({"rotary_seqlens": problem.where["seqused_k"]}, "rotary_seqlens needs"),
            ({"seqused_k": None}, "needs seqused_k"),
            ({"seqused_k": problem.where["seqused_k"].long()}, "seqused_k must be.*of k_new"),
            ({"dropped": torch.zeros(1, device=device)}, "dropped must be")]:
        with pytest.raises(ValueError, match=f"^attile_torch: .*{why}"):
            add(**options)
    k_new.requires_grad_()
    with pytest.raises(ValueError, match="append has no gradients"):
        add()


# ---- as PyTorch sees it --------------------------------------------------------------------------


@pytest.mark.parametrize("rotary", [False, True])
def test_opcheck(device, rotary):
    problem = NewRows(device, torch.float32, "paged_packed", [1, 2, 1], [50, 21, 9])
    q, tables, dropped = None, (None, None), None
    if rotary:
        q, tables = problem.q, angles(device, 64, 64)
        dropped = torch.zeros(1, dtype=torch.int32, device=device)
    for cache in (problem.k_cache, problem.v_cache):
        cache.nan_to_num_()  # what opcheck compares
    where = {**dict.fromkeys(_cache.Where._fields), **problem.where}
    del where["max_seqlen_q"]
    opcheck(torch.ops.attile.append.default,
            (problem.k_new, problem.v_new, problem.k_cache, problem.v_cache, q, *tables, None,
             dropped, *where.values(), None, None, False))


def test_versions(device):
    """Autograd is told of what is written, as of every operation in place."""
    problem = NewRows(device, torch.float32, "paged", [1, 1], [50, 21])
    cos, sin = angles(device, 64, 64)
    dropped = torch.zeros(1, dtype=torch.int32, device=device)
    written = problem.k_cache, problem.v_cache, problem.q, dropped
    before = [x._version for x in written]
    problem.append(q=problem.q, dropped=dropped, rotary_cos=cos, rotary_sin=sin)
    assert all(x._version > old for x, old in zip(written, before, strict=True))


# ---- generation ---------------------------------------------------------------------------------

PAGE, STEPS = 16, 24
PROMPTS = [5, 1, 30]


class Layer(torch.nn.Module):
    """A layer of attention with a cache in pages, K and V in one buffer. A step appends its rows,
    and attends."""

    def __init__(self, device, dtype, splits="fill"):
        super().__init__()
        self.splits = splits
        batch, entries = len(PROMPTS), -(-(max(PROMPTS) + STEPS) // PAGE)
        pages = torch.randperm(batch * entries).view(batch, entries)
        self.register_buffer("page_table", pages.to(torch.int32))
        self.register_buffer(
            "cache", torch.full((batch * entries, 2, PAGE, 2, 64), torch.nan, dtype=dtype))
        cos, sin = angles("cpu", entries * PAGE, 64)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)
        self.register_buffer("dropped", torch.zeros(1, dtype=torch.int32))
        self.to(device)

    def forward(self, x, where):
        """x: (..., 8, 64), half of Q, K and V of some rows."""
        q, k, v = (2 * x).split([4, 2, 2], -2)
        k_cache, v_cache = self.cache.unbind(1)
        where = {**where, "page_table": self.page_table}
        attile_torch.append(k, v, k_cache, v_cache, q=q, rotary_cos=self.cos, rotary_sin=self.sin,
                            dropped=self.dropped, **where)
        return attile_torch.attention_decode(q, k_cache, v_cache, causal=True, splits=self.splits,
                                             **where)

    def expected(self, x, dtype):
        """All rows of a sequence at once, by the formula."""
        q, k, v = (2 * x).split([4, 2, 2], -2)
        at = torch.arange(len(x), device=x.device)
        # As the cache has them, rounded.
        q, k = (rotated(y, at, self.cos, self.sin, False, torch.float64).to(x.dtype)
                for y in (q, k))
        out, _ = attention(*(clone(y, dtype)[None] for y in (q, k, v)), causal=True)
        return out[0]

    def compare(self, inputs, outs):
        """`outs` has the rows of each sequence."""
        attile_torch.check_dropped(self.dropped)
        for x, out in zip(inputs, outs, strict=True):
            close("out", out, self.expected(x, torch.float64), self.expected(x, x.dtype))


def inputs_of(device, dtype):
    return [torch.randn(n + STEPS, 8, 64, device=device).to(dtype) for n in PROMPTS]


def prompts(layer, inputs):
    """The prompts in one packed call. Returns the output's rows of each sequence."""
    device = inputs[0].device
    cu = int32([0, *torch.tensor(PROMPTS).cumsum(0)], device)
    x = torch.cat([x[:n] for x, n in zip(inputs, PROMPTS, strict=True)])
    out = layer(x, {"seqused_k": int32(PROMPTS, device), "cu_seqlens_q": cu,
                    "max_seqlen_q": max(PROMPTS)})
    return [[part] for part in out.split(PROMPTS)]


def rows_of_step(inputs, i):
    return torch.stack([x[n + i] for x, n in zip(inputs, PROMPTS, strict=True)])[:, None]


@pytest.mark.parametrize("backend", [None, "aot_eager", pytest.param("inductor", marks=full)])
@pytest.mark.parametrize("dtype", DTYPES if FULL else DTYPES[::2], ids=str)
@torch.no_grad()
def test_loop(device, dtype, backend):
    """Prompts, then steps of one row, against all rows at once; also compiled, where the cache is
    written in place."""
    layer = Layer(device, dtype)
    inputs = inputs_of(device, dtype)
    outs = prompts(layer, inputs)
    seqused_k = int32(PROMPTS, device)
    step = layer if backend is None else torch.compile(layer, fullgraph=True, backend=backend)
    address = layer.cache.data_ptr()
    for i in range(STEPS):
        seqused_k.add_(1)
        out = step(rows_of_step(inputs, i), {"seqused_k": seqused_k})
        for rows, own in zip(outs, out, strict=True):
            rows.append(own.clone())
    assert layer.cache.data_ptr() == address
    layer.compare(inputs, [torch.cat(rows) for rows in outs])


@gpu
@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize("splits", ["fill", "none", 128])
@torch.no_grad()
def test_loop_under_one_graph(device, splits, mode):
    """All steps are replays of one captured graph, in which the lengths grow."""
    dtype = torch.bfloat16
    layer = Layer(device, dtype, splits)
    inputs = inputs_of(device, dtype)
    step = layer if mode == "eager" else torch.compile(layer, fullgraph=True)
    seqused_k = int32(PROMPTS, device)
    x = rows_of_step(inputs, 0).clone()

    def whole_step():
        seqused_k.add_(1)
        return step(x, {"seqused_k": seqused_k})

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        whole_step()  # compiles, and writes a row that the first replay writes again
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = whole_step()
    outs = prompts(layer, inputs)
    seqused_k.copy_(int32(PROMPTS, device))
    for i in range(STEPS):
        x.copy_(rows_of_step(inputs, i))
        graph.replay()
        for rows, own in zip(outs, out, strict=True):
            rows.append(own.clone())
    layer.compare(inputs, [torch.cat(rows) for rows in outs])
