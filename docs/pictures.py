#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The pictures of the documents: tiling, causal ranges, pipeline, schedule, layouts of sequences.

  pictures.py            writes an SVG beside it for each
  pictures.py --check    writes nothing; exit code 1 where they are not what it would write

A picture has a background of its own, and follows the reader's preference for light or dark. What
can be computed is computed as the library does it: tile ranges by visibility, the schedule by
GrowingItems (core/schedule.h). Plain Python."""
import html
import pathlib
import sys

sys.dont_write_bytecode = True  # no __pycache__ in the source tree
FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))
import svg  # noqa: E402

# Colours that the colour-blind tell apart: Q and O, K, V, S and P, edge, and what is not there.
LIGHT = dict(q="#f2b38a", k="#9cc4ea", v="#a8d8b9", s="#d9c2ec", edge="#f6d875", none="#eef1f4")
DARK = dict(q="#a8572a", k="#2f68a0", v="#2f7a4f", s="#6f4d96", edge="#8f7415", none="#1b2129")


def rules(colours):
    return (f"{svg.fills(colours, LIGHT)}.t{{fill:{colours['text']}}}"
            f".n{{fill:{colours['quiet']}}}.l{{stroke:{colours['line']}}}"
            f".a{{stroke:{colours['text']}}}.h{{fill:{colours['text']}}}")


class Picture:
    """Collects the elements of one picture. Units: pixels, where it is not scaled."""

    def __init__(self, width, height, title):
        self.width, self.height, self.title, self.parts = width, height, title, []

    def box(self, x, y, width, height, kind, label=None, size=12, border=True):
        stroke = ' stroke-width="1"' if border else ' stroke="none"'
        name = f"{kind} l" if border else kind
        self.parts.append(f'<rect class="{name}" x="{x:g}" y="{y:g}" width="{width:g}" '
                          f'height="{height:g}"{stroke}/>')
        if label is not None:
            self.text(x + width / 2, y + height / 2 + size * 0.36, label, "middle", size=size)

    def text(self, x, y, words, anchor="start", kind="t", size=12, bold=False):
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}" '
                          f'font-size="{size:g}"{weight}>{html.escape(words)}</text>')

    def line(self, x1, y1, x2, y2, arrow=False, dashed=False, kind="a"):
        end = ' marker-end="url(#head)"' if arrow else ""
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" '
                          f'stroke-width="1.3"{dash}{end}/>')

    def svg(self):
        arrow = ('<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
                 'markerHeight="7" orient="auto"><path class="h" d="M0 0L8 4L0 8z"/></marker>'
                 '</defs>')
        opening = svg.opening(self.width, self.height, self.title, rules, LIGHT, DARK)
        return "\n".join([*opening, arrow, *self.parts, "</svg>"]) + "\n"


def tiling():
    """One block: Br rows of Q, tiles of Bc keys, S in registers."""
    p = Picture(760, 408, "A block holds a tile of rows of Q and goes over tiles of K and V")
    br, bc, tiles, rows = 56, 62, 6, 4
    left, top, dim = 60, 128, 66
    # Q on the left, K^T above, S between, V below K's columns turned to rows, O on the right.
    for i in range(rows):
        p.box(left, top + i * br, dim, br, "q" if i == 1 else "none")
    p.text(left + dim / 2, top - 10, "Q", "middle", bold=True, size=14)
    x0 = left + dim + 24
    for j in range(tiles):
        p.box(x0 + j * bc, 40, bc, 56, "k" if j == 2 else "none")
    p.text(x0 - 10, 74, "Kᵀ", "end", bold=True, size=14)
    for i in range(rows):
        for j in range(tiles):
            p.box(x0 + j * bc, top + i * br, bc, br, "s" if (i, j) == (1, 2) else "none")
    p.text(x0 + 2.5 * bc, top + 1.5 * br - 4, "S, then P", "middle", size=11, bold=True)
    p.text(x0 + 2.5 * bc, top + 1.5 * br + 12, "registers", "middle", "n", 11)
    p.line(x0 + 3 * bc + 6, top + 1.5 * br, x0 + tiles * bc - 8, top + 1.5 * br, arrow=True)
    p.text(x0 + 4.6 * bc, top + 1.5 * br - 8, "tile after tile", "middle", "n", 11)
    x1 = x0 + tiles * bc + 28
    for j in range(tiles):
        p.box(x1, 40 + j * 29, dim, 29, "v" if j == 2 else "none")
    p.text(x1 + dim / 2, 30, "V", "middle", bold=True, size=14)
    x2 = x1 + dim + 34
    for i in range(rows):
        p.box(x2, top + i * br, dim, br, "q" if i == 1 else "none")
    p.text(x2 + dim / 2, top - 10, "O", "middle", bold=True, size=14)
    p.line(x1 + dim + 4, 40 + 2.5 * 29, x2 - 5, top + 1.4 * br, arrow=True)
    # Sizes.
    p.text(left - 8, top + 1.5 * br + 4, "Br", "end", size=13)
    p.text(x0 + 2.5 * bc, 30, "Bc", "middle", size=13)
    p.text(left + dim / 2, top + rows * br + 18, "D", "middle", size=13)
    p.text(x2 + dim / 2, top + rows * br + 18, "Dv", "middle", size=13)
    p.text(x1 + dim + 8, 40 + 2.5 * 29 - 6, "Bc", size=13)
    p.text(x2 + dim / 2, top + 1.5 * br + 4, "m, l", "middle", size=11)
    p.text(p.width / 2, p.height - 12, "A block has Br rows of Q and O. Each tile of S is "
           "computed, used and discarded: only m, l and O of a row are kept.", "middle", "n", 12)
    return p


def tile_kind(visible, rows, columns):
    seen = [visible(i, j) for i in rows for j in columns]
    return "v" if all(seen) else "edge" if any(seen) else "none"


def causal():
    """Full, cut and skipped tiles of masks, by asking about every score."""
    p = Picture(760, 330, "Tiles that masks leave: full, cut by the edge, and skipped")
    tile, cell = 16, 22
    masks = [("Causal", 96, 96, lambda i, j: j <= i),
             ("Causal, more keys than rows", 96, 160, lambda i, j: j <= i + 64),
             ("SlidingWindow{39, 0}", 96, 160,
              lambda i, j: i + 64 - 39 <= j <= i + 64)]
    x = 24
    for name, q_len, kv_len, visible in masks:
        rows, columns = q_len // tile, kv_len // tile
        width = columns * cell
        p.text(x, 40, name, size=12.5, bold=True)
        p.text(x + width / 2, 60, "keys", "middle", "n", 11)
        for r in range(rows):
            for c in range(columns):
                kind = tile_kind(visible, range(r * tile, (r + 1) * tile),
                                 range(c * tile, (c + 1) * tile))
                p.box(x + c * cell, 68 + r * cell, cell, cell, kind)
        x += width + 40
    p.text(14, 68 + 3 * cell + 4, "rows", "middle", "n", 11)
    turned = f'<text transform="rotate(-90 14 {68 + 3 * cell})" '
    p.parts[-1] = p.parts[-1].replace("<text ", turned)
    y = 232
    for place, (kind, words) in enumerate([
            ("v", "full: every score is visible; the mask is not evaluated"),
            ("edge", "edge: the mask is evaluated for each score"),
            ("none", "skipped: neither loaded nor computed")]):
        p.box(24, y + 24 * place, 16, 16, kind)
        p.text(48, y + 24 * place + 12.5, words, size=12)
    p.text(456, y + 12.5, "The tiles of a row are a TileRange:", size=12)
    p.text(456, y + 36.5, "first … full_first: edge", size=12)
    p.text(456, y + 56.5, "full_first … full_last: full", size=12)
    p.text(456, y + 76.5, "full_last … last: edge", size=12)
    return p


def pipeline():
    """The Hopper forward kernel: what a producer and two consumers do beside each other."""
    p = Picture(760, 416, "The Hopper forward kernel: loads, products, softmax beside each other")
    left, tall, right = 132, 26, 746
    load, product, add, most, exponentials = 40, 36, 40, 38, 38  # how long each is
    shifts, period = (58, 100), product + add + exponentials + 2

    def lane(y, name, quiet):
        p.text(left - 12, y + 11, name, "end", size=12, bold=True)
        p.text(left - 12, y + (26 if name else 18), quiet, "end", "n", 10.5)
        p.line(left - 4, y + tall + 5, right, y + tall + 5, kind="l")

    def box(x, y, wide, kind, words, size=11):
        if x + wide <= right - left:
            p.box(left + x, y, wide, tall, kind, words, size)

    def begins(shift, i):  # S of tile i of the consumer that begins at `shift`
        return shift if i == 0 else shift + product + most + exponentials + (i - 1) * period + 10

    p.text(left, 26, "time", kind="n", size=11)
    p.line(left + 30, 22, right, 22, arrow=True)
    lane(38, "producer", "K, by TMA")
    lane(78, "", "V, by TMA")
    for i in range(5):
        # Two stages: one is free when the later consumer has made S, or P V, two tiles before.
        k = i * load if i < 2 else begins(shifts[1], i - 2) + product
        v = i * load if i < 2 else begins(shifts[1], i - 1) + product + add
        box(k, 38, load - 2, "k", f"K{i}", 12)
        box(v, 78, load - 2, "v", f"V{i}", 12)
    for number, top in enumerate((134, 232)):
        lane(top, f"consumer {number}", "wgmma")
        lane(top + 40, "", "softmax")
        for i in range(6):
            at = begins(shifts[number], i)
            box(at, top, product, "s", f"S{i}", 12)
            if i > 0:
                box(at + product, top, add, "v", f"P{i - 1} V{i - 1}", 10.5)
            box(at + product, top + 40, most, "q", f"m{i}")
            box(at + product + (add if i > 0 else most), top + 40, exponentials, "q", f"P{i}")
    for i, words in enumerate((
            "S of the next tile and P V of this one are computed at the same time, and so is the "
            "maximum m.",
            "While one consumer computes P, the tensor cores compute the products of the other.",
            "A stage of K or V (here two of each) is loaded again when all consumers have released "
            "it.",
            "The lengths are a sketch, not a measurement.")):
        p.text(left - 112, 338 + 20 * i, words, size=12, kind="t" if i < 3 else "n")
    return p


def growing_items(blocks, q_tiles, heads, turns):
    """The work tiles of each block, as GrowingItems gives them: with `turns` every second wave goes
    backwards."""
    items = [[] for _ in range(blocks)]
    for number in range(q_tiles * heads):
        wave, place = divmod(number, blocks)
        block = blocks - 1 - place if turns and wave % 2 == 1 else place
        items[block].append((number % heads, q_tiles - 1 - number // heads))
    return items


def schedule():
    """Which work tiles the blocks of a persistent causal kernel get, and how long they take."""
    p = Picture(760, 346, "Work tiles of a causal mask, distributed to persistent blocks")
    blocks, q_tiles, heads, unit = 4, 8, 3, 10.5
    p.text(20, 30, "Causal rows see more the later they are: tile 7 of a head takes eight times as "
           "long as tile 0.", size=12.5)
    for turns, top in ((False, 58), (True, 188)):
        name = ("every second wave backwards, as StaticSchedule does" if turns
                else "every wave in the same direction")
        p.text(20, top, name, size=12.5, bold=True)
        totals = []
        for block, items in enumerate(growing_items(blocks, q_tiles, heads, turns)):
            x, y = 84, top + 10 + block * 23
            p.text(76, y + 14, f"block {block}", "end", size=11.5)
            for head, tile in items:
                wide = (tile + 1) * unit
                p.box(x, y, wide, 19, ("q", "k", "v")[head], str(tile), 10.5)
                x += wide
            totals.append(sum(tile + 1 for _, tile in items))
            p.text(x + 8, y + 14, f"{totals[-1]} tiles of keys", kind="n", size=11)
    for y, words in ((314, "Three heads, a colour each, have eight tiles of rows each; a box has "
                      "the number of its tile of rows."),
                     (332, "Each of the four blocks computes its boxes from left to right.")):
        p.text(20, y, words, kind="n", size=11.5)
    return p


def layouts():
    """Where the rows of three sequences lie."""
    p = Picture(760, 330, "Where rows of sequences lie")
    kinds, lengths, most = ("q", "k", "v"), (5, 8, 3), 8
    cell, top = 19, 52

    def name(x, y, words, quiet):
        p.text(x, y, words, size=12.5, bold=True)
        p.text(x, y + 16, quiet, kind="n", size=11)

    name(20, 28, "Padded", "seqused = 5, 8, 3")
    for b, length in enumerate(lengths):
        for i in range(most):
            p.box(20 + i * cell, top + b * 26, cell, 20, kinds[b] if i < length else "none")
    name(230, 28, "Packed", "cu_seqlens = 0, 5, 13, 16; total = 16")
    at = 0
    for b, length in enumerate(lengths):
        for i in range(length):
            p.box(230 + at * cell, top, cell, 20, kinds[b])
            at += 1
    name(230, 106, "Packed, with gaps", "cu_seqlens = 0, 7, 16, 20; seqused = 5, 8, 3")
    at = 0
    for b, (length, room) in enumerate(zip(lengths, (7, 9, 4))):
        for i in range(room):
            p.box(230 + at * cell, 130, cell, 20, kinds[b] if i < length else "none")
            at += 1
    name(20, 184, "Paged", "pages of 4 rows in any order; seqused_k = 5, 8, 3")
    pages = {0: (1, range(4)), 1: None, 2: (0, range(4)), 3: (2, range(3)), 4: (1, range(4, 8)),
             5: (0, range(4, 5))}
    for page, content in pages.items():
        x = 20 + page * (4 * cell + 14)
        p.text(x + 2 * cell, 222, f"page {page}", "middle", "n", 10.5)
        for i in range(4):
            used = content is not None and i < len(content[1])
            p.box(x + i * cell, 228, cell, 20, kinds[content[0]] if used else "none")
    p.text(20, 274, "page_table", size=12, bold=True)
    for b, line in enumerate(((2, 5), (0, 4), (3, None))):
        x = 110 + b * 190
        p.text(x, 274, f"sequence {b}:", size=12)
        for i, page in enumerate(line):
            p.box(x + 84 + i * 28, 259, 26, 22, kinds[b] if page is not None else "none",
                  "" if page is None else str(page), 12)
    p.text(20, 312, "Grey rows belong to no sequence: they are never written, and change no "
           "result, whatever they hold.", kind="n", size=12)
    return p


PICTURES = {"tiling": tiling, "causal": causal, "pipeline": pipeline, "schedule": schedule,
            "layouts": layouts}


if __name__ == "__main__":
    sys.exit(svg.write({FOLDER / f"{name}.svg": draw().svg() for name, draw in PICTURES.items()},
                       "docs/pictures.py", sys.argv[1:]))
