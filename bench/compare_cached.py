# SPDX-License-Identifier: MIT
"""The cells of compare.py whose keys lie in a cache: a new row for each sequence, a few, or a chunk
of a prompt. Plain Python."""
import dataclasses
import itertools

from compare_build import Kernel

HEAD_DIM = 128
FILL = -1  # Splits::fill, as attile_c.cu counts splits; 0 is Splits::none
FIXED = 512  # keys of a part of Splits::fixed
ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "e4m3": 1, "e5m2": 1}
# Caches of fewer bytes are copied, and the calls of a graph take turns with the copies: each then
# reads what the level-2 cache of the device cannot have kept.
ROTATED_BYTES = 200_000_000
CALLS = 10  # of a graph, at least
CHAINED_CALLS = 200

OURS = "attile"
# What else of attile takes part in some cells. Of OURS each one differs in what its label says.
VARIANTS = {
    "unsplit": "attile, no splits",
    "fixed": f"attile, splits of {FIXED} keys",
    "dense": "attile, dense tensors",
    "plain": "attile, plain",
    "contiguous": "attile, contiguous cache",
    "by_decode": "attile by decode",
    "by_forward": "attile by forward",
    "apart": "attile, two calls",
    "wide": "attile, 16-bit cache",
    "unpromoted": "attile, not promoted",
    "in_16_bits": "attile in 16 bits",
}


@dataclasses.dataclass(frozen=True)
class Variant:
    """How attile computes a cell, or some sequences of it."""

    decode: bool  # by `decode`; else by `forward`
    keys: str  # paged, contiguous (a piece for each sequence) or dense (no lengths in memory)
    splits: int = 0
    kv_type: str = ""  # of the cache it reads, where that is in fp8


@dataclasses.dataclass(frozen=True)
class CachedCell:
    """One forward pass. Each of `batch` sequences has as many keys as `keys` says, in a cache with
    room for the longest, and its queries are its last positions: `rows` of each, in a dense tensor,
    or as many as `packed` says, one sequence behind another."""

    group: str
    batch: int
    q_heads: int
    kv_heads: int
    keys: tuple
    rows: int = 1
    packed: tuple = ()
    page: int = 0  # rows of a page; 0: the cache has a piece for each sequence
    dtype: str = "bf16"
    # The type of a cache in fp8, in one piece for each sequence. Its numbers are those of a cache
    # of 16 bits, too, which all other contenders read. Rates count the bytes of the one in fp8, so
    # that they compare rows per second.
    kv_type: str = ""
    tree: bool = False  # the last `rows` positions are the drafts of a tree
    chained: bool = False  # each call takes the O of the one before as its Q
    variants: tuple = ()  # of VARIANTS, beside OURS

    # What compare.py asks of every cell.
    flex = False
    policy = ""
    directions = ("forward",)

    @property
    def d(self):
        return HEAD_DIM

    @property
    def dv(self):
        return HEAD_DIM

    @property
    def mask(self):
        return "causal" if max(self.query_lengths) > 1 and not self.tree else "full"

    @property
    def longest(self):
        return max(self.keys)

    @property
    def query_lengths(self):
        return self.packed or (self.rows,) * self.batch

    @property
    def lengths(self):
        """The rows of packed queries, as Cell has them."""
        return self.packed

    @property
    def query_rows(self):
        return self.rows

    @property
    def is_equal(self):
        """Whether all sequences have as many keys."""
        return len(set(self.keys)) == 1

    @property
    def name(self):
        def length(keys):
            return f"{keys // 1024}k" if keys % 1024 == 0 else f"{keys}"

        def span(keys):
            least, most = min(keys), max(keys)
            return length(most) if least == most else f"{least} to {most}"

        if self.packed:
            lines = [f"{len(list(same))} x {rows}" for rows, same in itertools.groupby(self.packed)]
            first = self.packed.count(self.packed[0])
            what = (f"rows {' + '.join(lines)}, S {span(self.keys[:first])} and "
                    f"{span(self.keys[first:])}")
        else:
            rows = f", {self.rows} rows" if self.rows > 1 else ""
            what = f"B {self.batch}{rows}{' of a tree' if self.tree else ''}, S {span(self.keys)}"
        page = f", pages of {self.page}" if self.page else ""
        chained = ", one call after another, warm" if self.chained else ""
        keys = f" with keys in {self.kv_type}" if self.kv_type else ""
        heads = f"heads {self.q_heads}:{self.kv_heads}"
        return f"{self.dtype}{keys} D {HEAD_DIM}, {heads}, {what}{page}{chained}"

    @property
    def kv_bytes(self):
        """Of all keys that rows see, and their values."""
        return (2 * sum(self.keys) * self.kv_heads * HEAD_DIM
                * ELEMENT_BYTES[self.kv_type or self.dtype])

    @property
    def copies(self):
        """Of the cache: the calls of a graph take turns with them."""
        return 1 if self.chained else max(1, -(-ROTATED_BYTES // self.kv_bytes))

    @property
    def calls(self):
        """Of a graph: each copy has as many."""
        return CHAINED_CALLS if self.chained else self.copies * -(-CALLS // self.copies)

    def flops(self, _):
        """2 Hq Sq Skv (D + Dv) of the scores that are visible: under a causal mask, and among the
        drafts of a tree, half of those of a sequence's own rows are not."""
        scores = sum(rows * keys - rows * (rows - 1) // 2
                     for rows, keys in zip(self.query_lengths, self.keys))
        return 4 * self.q_heads * scores * HEAD_DIM

    # ---- attile ----------------------------------------------------------------------------------

    def modes(self, *_):
        """{contender of ours: what compare_cached_contenders.attile takes}."""
        return {name: {"name": name} for name in (OURS, *self.variants)}

    def parts(self, name):
        """[(Variant, first sequence, the one behind the last)] of a contender: one call for each.
        `apart` has a call for the sequences of one row, which come first, and one for the rest."""
        cache = "paged" if self.page else "contiguous"
        by_forward = Variant(False, cache)
        by_decode = Variant(True, cache, FILL, self.kv_type)
        ours = by_forward if self.group == "prefill" else by_decode
        if name == "apart":
            single = self.packed.count(1)
            return [(by_decode, 0, single), (by_forward, single, self.batch)]
        variant = {
            OURS: ours, "by_forward": by_forward, "by_decode": by_decode,
            "unsplit": dataclasses.replace(ours, splits=0),
            "fixed": dataclasses.replace(ours, splits=FIXED),
            "dense": dataclasses.replace(ours, keys="dense"),
            "contiguous": dataclasses.replace(ours, keys="contiguous"),
            "wide": dataclasses.replace(ours, kv_type=""),
        }[name]
        return [(variant, 0, self.batch)]

    def kernel(self, variant):
        policy = {"dense": "", "contiguous": "cached_tree" if self.tree else "cached",
                  "paged": "paged_packed" if self.packed else "paged"}[variant.keys]
        return Kernel(HEAD_DIM, HEAD_DIM, self.dtype, self.mask, "forward", policy=policy,
                      decode=variant.decode,
                      inputs=(self.dtype, *2 * (variant.kv_type,)) if variant.kv_type else ())

    def kernels(self, *_):
        return list(dict.fromkeys(self.kernel(variant) for name in self.modes()
                                  for variant, _, _ in self.parts(name)))
