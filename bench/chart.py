#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Charts of the README and the documents, which follow the reader's preference for light or dark.
compare.py --charts draws those of its results; the README's, attile beside FlashAttention-3 and
cuDNN, is also drawn from log/peers-h200.json, which says how its figures were measured.

  chart.py            writes docs/peers-h200.svg
  chart.py --check    writes nothing; exit code 1 where that is not what it would write

Plain Python."""
import html
import json
import math
import pathlib
import re
import sys

sys.dont_write_bytecode = True  # no __pycache__ in the source tree
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "docs")]
import compare_report  # noqa: E402
import svg  # noqa: E402
from compare_cells import DIRECTIONS, OURS, contender_label  # noqa: E402

DATA = ROOT / "bench/log/peers-h200.json"

# The contenders' colours, which also the colour-blind tell apart; the others have those of reports.
LIGHT = {**compare_report.COLOURS, "attile": "#d55e00", "fa3": "#5b9bd5", "cudnn": "#b3bcc8"}
DARK = {**compare_report.COLOURS, "attile": "#f0802a", "fa3": "#4a8fd0", "cudnn": "#6b7684"}
LABELS = {"attile": "attile", "fa3": "FlashAttention-3", "cudnn": "cuDNN"}
MASKS = ("full", "causal")

# Units: pixels, where the chart is not scaled; CEILING and STEP of the axis: TFLOP/s.
WIDTH, MARGIN, LEFT, TOP, PANEL, GROUP, BAR = 860, 14, 44, 92, 266, 41, 11
TALL, ROW = 160, 250  # of a panel's bars; from a row of panels to the next
CEILING, STEP = 800, 200


def chart(data):
    """Forward above, backward below, a panel for each D; under each group of bars the ratio of
    attile to the faster of the other two."""
    dims = sorted({cell["D"] for cell in data["cells"]})
    height = TOP + len(DIRECTIONS) * ROW + 4
    commit = f", commit {data['commit']}" if data["commit"] else ""
    parts = opening(heading(data), height, LABELS)
    parts.append(text(MARGIN, 46, f"TFLOP/s, higher is better. {data['date']}{commit}; all three "
                      "in one process; batch × length 16384, heads × D 2048", size=12))
    x = MARGIN
    for name, label in LABELS.items():
        parts.append(f'<rect class="{name}" x="{x}" y="60" width="12" height="12" rx="2"/>')
        parts.append(text(x + 17, 70.5, label, "t", size=12.5))
        x += 36 + 7 * len(label)
    parts.append(text(WIDTH - MARGIN, 70.5, "ratio: attile / the faster of the other two; mean "
                      f"{mean(data, 'forward'):.3f} forward, {mean(data, 'backward'):.3f} backward",
                      anchor="end"))
    for row, direction in enumerate(DIRECTIONS):
        top = TOP + row * ROW
        parts += axis(top + 24)
        for column, dim in enumerate(dims):
            cells = [cell for cell in data["cells"]
                     if cell["direction"] == direction and cell["D"] == dim]
            parts += panel(LEFT + column * PANEL + 8, top, f"{direction}, D {dim}", cells)
    return "\n".join(parts + ["</svg>"]) + "\n"


def opening(title, height, names):
    """The beginning of a chart: its colours, its ground and its title."""
    def rules(colours):
        halo = f".h{{paint-order:stroke;stroke:{colours['page']};stroke-width:3px}}"  # over lines
        return (f".t{{fill:{colours['text']}}}.q{{fill:{colours['quiet']}}}.b{{font-weight:600}}"
                f".g{{stroke:{colours['grid']}}}{halo}{svg.fills(colours, names)}")

    return [*svg.opening(WIDTH, height, title, rules, LIGHT, DARK),
            text(MARGIN, 26, title, "t b", size=17)]


def heading(data):
    gpu = " ".join(data["gpu"].split()[:2])
    return f"Attention on one {gpu}, bf16, forward and backward"


def mean(data, direction):
    """The geometric mean of attile over the faster peer."""
    logs = [math.log(c["ratio"]) for c in data["cells"] if c["direction"] == direction]
    return math.exp(sum(logs) / len(logs))


def text(x, y, words, kind="q", anchor="start", size=None):
    style = f' font-size="{size}"' if size else ""
    return (f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}"{style}>'
            f"{html.escape(words)}</text>")


def axis(top):
    parts = []
    for rate in range(0, CEILING + STEP, STEP):
        y = top + TALL * (1 - rate / CEILING)
        parts.append(f'<line class="g" x1="{LEFT}" y1="{y:g}" x2="{WIDTH - MARGIN}" y2="{y:g}"/>')
        parts.append(text(LEFT - 6, y + 4, f"{rate}", anchor="end"))
    return parts + [text(LEFT - 6, top + TALL + 17, "length", anchor="end"),
                    text(LEFT - 6, top + TALL + 32, "ratio", anchor="end")]


def panel(left, top, title, cells):
    """Six groups of bars: without a mask, then causal."""
    base = top + 24 + TALL
    parts = [text(left + 3 * GROUP, top + 12, title, "t b", "middle", 13)]
    for place, mask in enumerate(MASKS):
        start = left + place * (3 * GROUP + 6)
        group = [cell for cell in cells if cell["mask"] == mask]
        for i, cell in enumerate(group):
            x = start + i * GROUP
            middle = x + 1.5 * BAR
            for j, name in enumerate(LABELS):
                tall = TALL * cell[name] / CEILING
                parts.append(f'<rect class="{name}" x="{x + j * BAR:g}" y="{base - tall:.1f}" '
                             f'width="{BAR - 1}" height="{tall:.1f}"><title>{LABELS[name]}: '
                             f"{cell[name]}</title></rect>")
            parts.append(text(x + BAR / 2 + 2, base - TALL * cell["attile"] / CEILING - 4,
                              f"{cell['attile']}", "t h", "middle", 10.5))
            parts.append(text(middle, base + 17, cell["S"], anchor="middle"))
            parts.append(text(middle, base + 32, f"{cell['ratio']:.3f}", "t b", "middle"))
        parts.append(text(start + GROUP + 1.5 * BAR, base + 48, mask, "t", "middle", 12))
    return parts


# ---- what compare.py has measured ------------------------------------------------------------


def figures(results):
    """The figures of the README's chart from the group `peers`: the cells that all three have run;
    None where there are none."""
    cells = []
    for row in results["cells"]:
        name = re.fullmatch(r"bf16 D (\d+) (full|causal), S (\d+k)", row["cell"])
        found = {label: compare_report.rate_of(row, label) for label in LABELS}
        if row["group"] != "peers" or not name or not all(found.values()):
            continue
        cells.append({"direction": row["direction"], "D": int(name[1]), "mask": name[2],
                      "S": name[3], **{label: round(rate) for label, rate in found.items()},
                      "ratio": found[OURS] / max(found["fa3"], found["cudnn"])})
    run = results["runs"][0]
    return cells and {"gpu": run["gpu"], "date": run["date"][:10],
                      "commit": run.get("commit", ""), "cells": cells}


LABELS_WIDE, THICK, BETWEEN = 250, 9, 9  # of the names of cells; a bar; rows of bars


def bars(results, group):
    """A row for each cell, a bar for each contender, forward beside backward; behind the bars
    attile over the fastest peer."""
    rows = [row for row in results["cells"] if row["group"] == group]
    directions = [d for d in DIRECTIONS if any(row["direction"] == d for row in rows)]
    cells = {}
    for row in rows:
        cells.setdefault((row["run"], row["cell"]), {})[row["direction"]] = row
    names = [name for name in compare_report.NAMES
             if any(compare_report.rate_of(row, name) for row in rows)]
    largest = max((compare_report.rate_of(row, n) or 0 for row in rows for n in names), default=1)
    tall = len(names) * THICK + BETWEEN
    run = results["runs"][rows[0]["run"]]
    parts = opening(f"{group}, {run['gpu']}", 100 + len(cells) * tall, names)
    parts.append(text(MARGIN, 46, f"{compare_report.unit(rows[0])}, higher is better; bold: attile "
                      f"over the fastest peer. {run['date'][:10]}, {run['command']}"[:150]))
    x = MARGIN
    for name in names:
        parts.append(f'<rect class="{name}" x="{x}" y="56" width="12" height="12" rx="2"/>')
        parts.append(text(x + 17, 66.5, contender_label(name), "t", size=12))
        x += 36 + 7 * len(contender_label(name))
    wide = (WIDTH - MARGIN - LABELS_WIDE) / len(directions)
    for column, direction in enumerate(directions):
        left = LABELS_WIDE + column * wide
        parts.append(text(left, 88, direction, "t b", size=13))
        for i, ((_, cell), line) in enumerate(cells.items()):
            top = 96 + i * tall
            if column == 0:
                parts.append(text(LABELS_WIDE - 10, top + tall / 2, cell, "t", "end",
                                  min(12, 1.65 * LABELS_WIDE / len(cell))))
            if direction in line:
                parts += row_of_bars(line[direction], names, left, top, (wide - 90) / largest)
    return "\n".join(parts + ["</svg>"]) + "\n"


def row_of_bars(row, names, left, top, scale):
    parts, end = [], 0
    for i, name in enumerate(names):
        rate = compare_report.rate_of(row, name)
        if rate is None:
            continue
        y, end = top + i * THICK, max(end, rate * scale)
        parts.append(f'<rect class="{name}" x="{left:g}" y="{y:g}" width="{rate * scale:.1f}" '
                     f'height="{THICK - 1}"><title>{html.escape(contender_label(name))}: '
                     f"{compare_report.number(rate)}</title></rect>")
        parts.append(text(left + rate * scale + 4, y + THICK - 1, compare_report.number(rate),
                          size=8.5))
    ratio = compare_report.ratios(row).get(compare_report.best_peer(row))
    if ratio:
        parts.append(text(left + end + 34, top + len(names) * THICK / 2 + 4, f"{ratio:.2f}", "t b",
                          size=12))
    return parts


def write(results, folder):
    """The charts of all groups that were measured, in a folder: GROUP.svg. That of `peers` is the
    README's where FlashAttention-3 and cuDNN have run."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for group in dict.fromkeys(row["group"] for row in results["cells"]):
        data = figures(results) if group == "peers" else None
        drawn = chart(data) if data else bars(results, group)
        (folder / f"{group}.svg").write_text(drawn, encoding="utf-8")


def main(arguments):
    data = json.loads(DATA.read_text(encoding="utf-8"))
    return svg.write({ROOT / "docs/peers-h200.svg": chart(data)}, "bench/chart.py", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
