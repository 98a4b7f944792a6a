#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The README's chart, for a light and a dark page: attile beside FlashAttention-3 and cuDNN, from
log/peers-h200.json, which says how its figures were measured. compare.py draws its own results.

  chart.py            writes docs/peers-h200-light.svg and docs/peers-h200-dark.svg
  chart.py --check    writes nothing; exit code 1 where they are not what it would write

Plain Python."""
import html
import json
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "bench/log/peers-h200.json"

# The contenders' colours, which also the colour-blind tell apart, then those of the page.
THEMES = {
    "light": {"attile": "#d55e00", "fa3": "#5b9bd5", "cudnn": "#b3bcc8",
              "page": "#ffffff", "text": "#1f2328", "quiet": "#59636e", "grid": "#e1e5ea"},
    "dark": {"attile": "#f0802a", "fa3": "#4a8fd0", "cudnn": "#6b7684",
             "page": "#0d1117", "text": "#f0f6fc", "quiet": "#9aa4af", "grid": "#262c35"}}
LABELS = {"attile": "attile", "fa3": "FlashAttention-3", "cudnn": "cuDNN"}
DIRECTIONS, MASKS = ("forward", "backward"), ("full", "causal")
FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"

# Units: pixels, where the chart is not scaled; CEILING and STEP of the axis: TFLOP/s.
WIDTH, MARGIN, LEFT, TOP, PANEL, GROUP, BAR = 860, 14, 44, 92, 266, 41, 11
TALL, ROW = 160, 250  # of a panel's bars; from a row of panels to the next
CEILING, STEP = 800, 200


def chart(data, theme):
    """Forward above, backward below, a panel for each D; under each group of bars the ratio of
    attile to the faster of the other two."""
    colours = THEMES[theme]
    dims = sorted({cell["D"] for cell in data["cells"]})
    height = TOP + len(DIRECTIONS) * ROW + 4
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="{FONT}" font-size="11" role="img">',
        f"<title>{html.escape(heading(data))}</title>",
        f"<style>.t{{fill:{colours['text']}}}.q{{fill:{colours['quiet']}}}"
        f".g{{stroke:{colours['grid']}}}.b{{font-weight:600}}"
        f".h{{paint-order:stroke;stroke:{colours['page']};stroke-width:3px}}"  # over grid lines
        + "".join(f".{name}{{fill:{colours[name]}}}" for name in LABELS) + "</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="{colours["page"]}"/>',
        text(MARGIN, 26, heading(data), "t b", size=17),
        text(MARGIN, 46, f"TFLOP/s, higher is better. {data['date']}, commit {data['commit']}; "
             "all three in one process; batch × length 16384, heads × D 2048", size=12)]
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


def main(arguments):
    data = json.loads(DATA.read_text(encoding="utf-8"))
    stale = []
    for theme in THEMES:
        path = ROOT / f"docs/peers-h200-{theme}.svg"
        drawn = chart(data, theme)
        if arguments != ["--check"]:
            path.write_text(drawn, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != drawn:
            stale.append(path.name)
    if stale:
        print(f"run bench/chart.py: {', '.join(stale)}", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
