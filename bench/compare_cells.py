# SPDX-License-Identifier: MIT
"""What compare.py measures: cells, the kernels they need, and their FLOPs. Plain Python."""
import dataclasses
import fnmatch
import random

from compare_build import Kernel
from compare_cached import OURS, VARIANTS, CachedCell

DIRECTIONS = ("forward", "backward")
PEERS = {
    "cudnn": "cuDNN",
    "fa2": "FlashAttention-2",
    "fa3": "FlashAttention-3",
    "efficient": "memory-efficient",
    "flex": "FlexAttention",
    "flashinfer": "FlashInfer",
}
IN_ORDER = "in_order"  # its backward pass that gives the same bits always
# Each of them with the headers of another folder: an earlier state, say.
BEFORE = {OURS: "before", IN_ORDER: "before_in_order"}
LABELS = {IN_ORDER: "attile in order", "before": "attile before",
          "before_in_order": "attile before, in order", **VARIANTS, **PEERS}

DROPOUT, SOFTCAP, PREFIX = 0.1, 30, 1000
# 0: the whole sequence
DOCUMENT_ROWS = {"documents_one": 0, "documents_700": 700, "documents_700_packed": 700}
BLOCK = 128  # rows and columns of a block of block lists
BLOCK_PERCENT = {"blocks_50": 50, "blocks_10": 10}  # of the blocks that a row of blocks sees
# What a cell has beside its mask: compare_policies.py says what each one computes. "" is nothing.
POLICIES = {
    "": "",
    "dropout": f"dropout {DROPOUT}",
    "softcap": f"softcap {SOFTCAP}",
    "alibi": "ALiBi",
    "softcap_alibi_dropout": "softcap + ALiBi + dropout",
    "documents_one": "one document",
    "documents_700": f"documents of {DOCUMENT_ROWS['documents_700']}",
    "documents_700_packed": f"documents of {DOCUMENT_ROWS['documents_700']}, packed",
    "prefix": f"prefix {PREFIX}",
    "parity": "own mask: parity",
    "bias_hrc": "bias (head, row, col)",
    "bias_bc": "bias (batch, col)",
    "bias_hrc_dropout": f"bias (head, row, col) + dropout {DROPOUT}",
    "softcap_bias_hrc": f"softcap {SOFTCAP}, bias (head, row, col)",
    "dbias_hrc": "learned bias (head, row, col)",
    "dbias_hc": "learned bias (head, col)",
    "dbias_distance": "learned bias (head, col - row)",
    "key_padding": "key padding",
    "blocks_50": "block lists of 50 %",
    "blocks_10": "block lists of 10 %",
    "sink": "sinks",
    "earlier": "earlier keys",
}
# Those that differ only in what their memory holds, or in strides, have one kernel.
KERNEL_POLICIES = {"documents_one": "documents", "documents_700": "documents",
                   "documents_700_packed": "packed_documents",
                   "bias_hrc": "bias", "bias_bc": "bias", "softcap_bias_hrc": "softcap_bias",
                   "dbias_hrc": "learned_bias", "dbias_hc": "learned_bias",
                   "dbias_distance": "learned_bias",
                   "blocks_50": "blocks", "blocks_10": "blocks"}
OWN_CELLS = (*BLOCK_PERCENT, "sink", "earlier")  # that are measured in cells of their own
CAUSAL_POLICIES = ("prefix", "parity")  # that are measured under a causal mask alone


def contender_label(name):
    return LABELS.get(name, name)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One problem: queries and keys have one length, tensors are dense (batch, row, head, dim).
    With `lengths` they are packed sequences, (row, head, dim), of which `length` is the longest."""

    group: str
    batch: int
    q_heads: int
    kv_heads: int
    length: int
    d: int
    dv: int
    dtype: str  # bf16, fp16, fp32
    mask: str  # full, causal, window
    window: int = 0  # keys that a row of a window sees: itself and those before it
    flex: bool = True  # whether FlexAttention, which compiles for every shape, takes part
    policy: str = ""  # of POLICIES
    lengths: tuple = ()  # the rows of packed sequences, as many as `batch`
    bound: int = 1  # callers name the longest sequence so many times too long

    # Of cells whose rates are those of FLOPs.
    kv_bytes = None

    @property
    def directions(self):
        return ("forward",) if self.policy == "earlier" else DIRECTIONS

    @property
    def query_rows(self):
        return self.length

    @property
    def rows(self):
        """The rows of all packed sequences."""
        return sum(self.lengths)

    @property
    def longest(self):
        """The length that no sequence exceeds, as callers name it."""
        return self.length * self.bound

    @property
    def length_text(self):
        if self.lengths:
            shortest = min(self.lengths)
            span = f"{shortest}" if shortest == self.length else f"{shortest} to {self.length}"
            bound = f", bound {self.longest}" if self.bound > 1 else ""
            return f"{self.batch} x {span}, packed{bound}"
        return f"{self.length // 1024}k" if self.length % 1024 == 0 else f"{self.length}"

    @property
    def name(self):
        dims = f"{self.d}" if self.d == self.dv else f"{self.d}/{self.dv}"
        heads = "" if self.q_heads == self.kv_heads else f", heads {self.q_heads}:{self.kv_heads}"
        window = f" {self.window}" if self.mask == "window" else ""
        policy = f", {POLICIES[self.policy]}" if self.policy else ""
        return f"{self.dtype} D {dims} {self.mask}{window}{policy}{heads}, S {self.length_text}"

    def modes(self, direction, in_order):
        """{contender of ours: what compare_contenders.attile takes}."""
        ordered = {IN_ORDER: {"in_order": True}} if in_order and direction == "backward" else {}
        beside = {name: {"beside": name} for name in self.beside}
        return {OURS: {}, **beside, **ordered}

    @property
    def beside(self):
        """Which cells take part in this one, of the same memory, as contenders: what a policy or
        packing costs is a ratio of times that are taken in turns."""
        names = {"dense": set(self.lengths) == {self.length},  # sequences that fill a dense tensor
                 "plain": self.policy not in ("", *BLOCK_PERCENT)}
        return tuple(name for name, is_so in names.items() if is_so)

    def as_beside(self, name):
        changes = {"dense": {"lengths": (), "bound": 1}, "plain": {"policy": ""}}
        return dataclasses.replace(self, **changes[name])

    def kernel(self, direction, in_order=False):
        """`in_order` means backward alone."""
        in_order = in_order and direction == "backward"
        policy = KERNEL_POLICIES.get(self.policy, self.policy)
        if self.lengths:
            policy = f"packed_{policy}" if policy else "packed"
        return Kernel(self.d, self.dv, self.dtype, self.mask, direction, in_order, policy)

    def kernels(self, direction, in_order=False):
        """Backward needs the forward kernel too, whose O and LSE it starts from."""
        ways = DIRECTIONS[: DIRECTIONS.index(direction) + 1]
        cells = (self, *map(self.as_beside, self.beside))
        kernels = [cell.kernel(way) for cell in cells for way in ways]
        return list(dict.fromkeys(kernels + [self.kernel(direction, in_order)]))

    def visible_scores(self):
        """Scores of one head that count: all of them, half of them under a causal mask (the
        convention of the FlashAttention papers), those inside a window or a document exactly. Of
        the other policies those of the mask, so that rates compare as times do."""
        if self.policy in DOCUMENT_ROWS:
            return sum(rows * (rows + 1) // 2 if self.mask == "causal" else rows * rows
                       for rows in self.document_lengths())
        if self.policy in BLOCK_PERCENT:
            return BLOCK * BLOCK * sum(len(columns) for columns in self.listed_blocks())
        if self.mask == "window":
            edge = min(self.window, self.length)
            return edge * (edge + 1) // 2 + (self.length - edge) * self.window
        return self.length * self.length // (2 if self.mask == "causal" else 1)

    def document_lengths(self):
        """Rows of the documents that follow each other in every sequence; the last one ends with
        it."""
        rows = DOCUMENT_ROWS[self.policy] or self.length
        return [min(rows, self.length - first) for first in range(0, self.length, rows)]

    def listed_blocks(self):
        """For each row of blocks the columns of blocks that it sees, all scores of them: the same
        number in every row, its own column and random ones."""
        assert self.length % BLOCK == 0 and self.mask == "full"
        blocks = self.length // BLOCK
        others = max(1, round(blocks * BLOCK_PERCENT[self.policy] / 100)) - 1
        choose = random.Random(f"{self.policy} {self.length}")
        return [sorted([row] + choose.sample([i for i in range(blocks) if i != row], others))
                for row in range(blocks)]

    def key_lengths(self):
        """Columns that the rows of each batch see under `key_padding`: half of them to all."""
        return [self.length - (self.length // 2) * (self.batch - 1 - i) // max(1, self.batch - 1)
                for i in range(self.batch)]

    def flops(self, direction):
        """2 B Hq Sq Skv (D + Dv) of the scores that count, those of each packed sequence; 2.5 times
        that backward."""
        scores = self.batch * self.visible_scores()
        if self.lengths:
            scores = sum(dataclasses.replace(self, length=length, lengths=()).visible_scores()
                         for length in self.lengths)
        forward = 2 * self.q_heads * scores * (self.d + self.dv)
        return forward if direction == "forward" else 2.5 * forward


@dataclasses.dataclass(frozen=True)
class Fp8Cell(Cell):
    """A forward pass with Q and K in fp8, and V there or in 16 bits. `dtype` is the type of O, and
    of the tensors before they were quantised."""

    inputs: tuple = ("e4m3", "e4m3", "e4m3")  # the types of Q, K and V
    scale: float = 0.0  # of the scores; 0: 1 / sqrt(d)
    has_scales: bool = True  # of the tensors; else they are rounded as they are

    @property
    def directions(self):
        return ("forward",)

    @property
    def is_all_fp8(self):
        return self.inputs[2] in ("e4m3", "e5m2")

    @property
    def name(self):
        kinds = self.inputs[0] if len(set(self.inputs)) == 1 else "/".join(self.inputs)
        scale = f", scale {self.scale}" if self.scale else ""
        return f"{kinds} to {super().name}{scale}"

    def modes(self, *_):
        """{contender of ours: what compare_fp8_contenders.attile takes}."""
        names = (OURS, *(("unpromoted",) if self.is_all_fp8 else ()), "in_16_bits")
        return {name: {"name": name} for name in names}

    def kernel_of(self, name):
        kernel = super().kernel("forward")
        if name == "in_16_bits":
            return kernel
        return dataclasses.replace(kernel, inputs=self.inputs, promoted=name != "unpromoted")

    def kernels(self, *_):
        return [self.kernel_of(name) for name in self.modes()]


def _fp8():
    """The shapes of `peers`, and the mix of a well-known benchmark: Q and K cast to e5m2, V in
    fp16."""
    cells = [Fp8Cell(**dataclasses.asdict(_dense("fp8", d, mask, length, flex=False)))
             for d in (64, 128, 256) for mask in ("full", "causal") for length in (4096, 16384)]
    return cells + [Fp8Cell("fp8", 4, 48, 48, length, 64, 64, "fp16", "causal", flex=False,
                            inputs=("e5m2", "e5m2", "fp16"), scale=1.3, has_scales=False)
                    for length in (1024, 2048, 4096, 8192, 16384)]


def _dense(group, d, mask, length, dtype="bf16", heads=None, dv=None, kv_heads=None, **more):
    """A cell with batch * length = 16384, and heads * d = 2048 unless told otherwise."""
    heads = heads or 2048 // d
    return Cell(group, 16384 // length, heads, kv_heads or heads, length, d, dv or d, dtype, mask,
                **more)


def _policies(batch, heads, length, d, flex):
    """Every policy of one shape with both masks, the plain cells first."""
    return [Cell("policies", batch, heads, heads, length, d, d, "fp16", mask, flex=flex,
                 policy=policy)
            for policy in POLICIES for mask in ("full", "causal")
            if policy not in OWN_CELLS
            and (mask == "causal" or policy not in CAUSAL_POLICIES)]


def log_uniform_lengths(count, shortest, longest):
    """Lengths in an order that means nothing, whose logarithms are spread evenly."""
    lengths = [round(shortest * (longest / shortest) ** ((i + 0.5) / count)) for i in range(count)]
    random.Random(1).shuffle(lengths)
    return tuple(lengths)


def _varlen():
    """Packed sequences: of equal lengths, which dense tensors hold as well, and of others; a dense
    cell of 64 rows for the many short ones. And the same packed sequences with bounds four times
    too large, also of query heads that share keys, and some with a bias."""
    def cell(batch, length, lengths=(), q_heads=16, kv_heads=16, bound=1):
        return Cell("varlen", batch, q_heads, kv_heads, length, 128, 128, "bf16", "causal",
                    flex=False, lengths=lengths, bound=bound)

    cells = []
    for batch, length in ((16, 1024), (4, 4096), (1, 16384), (512, 128)):
        cells.append(cell(batch, length, (length,) * batch))
    mixed = log_uniform_lengths(34, 128, 8192)
    cells += [cell(len(mixed), max(mixed), mixed), cell(8192, 64), cell(8192, 34, (34,) * 8192)]
    cells += [cell(len(mixed), max(mixed), mixed, bound=4), cell(4, 4096, (4096,) * 4, bound=4)]
    cells += [dataclasses.replace(packed, policy="bias_hrc") for packed in
              (cell(16, 1024, (1024,) * 16), cell(4, 4096, (4096,) * 4),
               cell(len(mixed), max(mixed), mixed))]
    short = log_uniform_lengths(34, 64, 8192)
    return cells + [cell(len(short), max(short), short, q_heads, 2, bound)
                    for q_heads in (14, 16) for bound in (1, 4)]


def _decode():
    """One new row of each sequence, and some; keys in a contiguous cache."""
    def cell(batch, q_heads, kv_heads, keys, *variants, **more):
        return CachedCell("decode", batch, q_heads, kv_heads, (keys,) * batch, variants=variants,
                          **more)

    cells = [cell(1, 32, 8, 65536, "dense", "unsplit", "fixed"),
             cell(16, 32, 8, 8192, "dense", "unsplit", "fixed"),
             cell(64, 64, 8, 8192, "dense"), cell(128, 32, 32, 2048, "dense"),
             cell(1, 32, 4, 1024, "unsplit", chained=True), cell(8, 32, 8, 1024, "unsplit"),
             cell(16, 32, 8, 8192, dtype="fp32")]
    cells += [cell(*shape, "wide", kv_type="e4m3") for shape in ((1, 32, 8, 65536),
                                                                 (16, 32, 8, 8192))]
    cells += [cell(batch, 40, 8, 4096) for batch in range(10, 51, 5)]
    for q_heads in (32, 64):
        cells += [cell(16, q_heads, 8, 8192, rows=rows) for rows in (1, 2, 4, 8)
                  if (q_heads, rows) != (32, 1)]
        cells += [cell(16, q_heads, 8, 8192, rows=8, tree=True)]
    return cells


def _paged():
    """One new row of each sequence, whose keys lie in pages in any order."""
    cells = [CachedCell("paged", batch, q_heads, 8, (8192,) * batch, page=page,
                        variants=("contiguous",))
             for batch, q_heads in ((16, 32), (64, 64)) for page in (1, 16, 64, 256)]
    mixed = log_uniform_lengths(32, 100, 32768)
    return cells + [CachedCell("paged", 32, 32, 8, mixed),
                    CachedCell("paged", 32, 32, 8, mixed, page=64, variants=("contiguous",))]


def _prefill():
    """A chunk of a prompt, whose other keys are in the cache."""
    cells = []
    for batch in (1, 4):
        keys = (32768,) * batch
        cells += [CachedCell("prefill", batch, 32, 8, keys, rows=512,
                             variants=("dense", "by_decode"))]
        cells += [CachedCell("prefill", batch, 32, 8, keys, rows=512, page=page,
                             variants=("contiguous",)) for page in (16, 64, 256)]
    return cells


def _mixed():
    """Rows that decode and chunks of prompts in one call."""
    keys = log_uniform_lengths(32, 100, 32768) + (8192, 8192)
    return [CachedCell("mixed", len(keys), 32, 8, keys, packed=(1,) * 32 + (512, 512), page=64,
                       variants=("by_forward", "apart"))]


def all_cells():
    both = ("full", "causal")
    lengths = (1024, 4096, 16384)
    cells = [_dense("peers", d, mask, length, flex=length > 1024)
             for d in (64, 128, 256) for mask in both for length in lengths]
    cells += [Cell("grid", 4, 48, 48, length, 64, 64, "fp16", "causal", flex=length >= 4096)
              for length in (1024, 2048, 4096, 8192, 16384)]
    cells += [_dense("shapes", d, mask, 4096, heads=heads, dv=dv, flex=mask == "causal")
              for d, dv, heads in ((96, 96, 16), (192, 192, 8), (192, 128, 16)) for mask in both]
    cells += [_dense("shapes", d, mask, 512, flex=False) for d in (64, 128) for mask in both]
    cells += [_dense("gqa", 128, "causal", length, kv_heads=2) for length in (4096, 16384)]
    cells += [_dense("window", 128, "window", 16384, window=1024)]
    cells += [_dense("fp32", d, "full", length, dtype="fp32", flex=False)
              for d in (64, 128) for length in (1024, 4096)]
    cells += _varlen()
    for batch, heads, length, d, flex in ((64, 12, 1024, 64, True), (4, 16, 4096, 128, True),
                                          (4, 32, 4096, 64, False), (16, 16, 1024, 128, False)):
        cells += _policies(batch, heads, length, d, flex)
    for batch, length, policy in ((2, 8192, "blocks_50"), (1, 32768, "blocks_10")):
        cells += [Cell("policies", batch, 2048 // d, 2048 // d, length, d, d, "fp16", "full",
                       policy=either) for d in (64, 128) for either in ("", policy)]
    for batch, heads, kv_heads, length, d, mask, window in (
            (4, 16, 16, 4096, 128, "causal", 0), (4, 16, 16, 4096, 128, "full", 0),
            (64, 12, 12, 1024, 64, "causal", 0),
            (2, 64, 8, 8192, 64, "causal", 0), (2, 64, 8, 8192, 64, "window", 128)):  # gpt-oss
        cells += [Cell("sink", batch, heads, kv_heads, length, d, d, "bf16", mask, window,
                       policy=policy) for policy in ("", "sink")]
    cells += [dataclasses.replace(cell, policy="earlier") for cell in cells
              if cell.group == "sink" and cell.mask == "full" and not cell.policy]
    return cells + _fp8() + _decode() + _paged() + _prefill() + _mixed()


GROUPS = tuple(dict.fromkeys(cell.group for cell in all_cells())) + ("compile",)


def select(groups, quick=False, pattern="*"):
    """The cells of the named groups whose names match; quick: one of each group, where possible
    one that FlexAttention takes part in, and one with a policy or with packed sequences."""
    cells = [c for c in all_cells() if c.group in groups and fnmatch.fnmatch(c.name, pattern)]
    if not quick:
        return cells
    of_group = [[c for c in cells if c.group == group] for group in groups]
    return [max(some, key=lambda c: (c.flex, c.policy != "", bool(c.lengths)))
            for some in of_group if some]


def compile_kernels():
    """The kernels whose compilation is measured one at a time."""
    return [Kernel(d, d, "bf16", "causal", way) for way in DIRECTIONS for d in (64, 128, 256)]
