# SPDX-License-Identifier: MIT
"""Draws curves of training losses, and how they differ from one of them, as an SVG."""
import html
import math

FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
COLOURS = ("#1f2328", "#9aa4af", "#5b9bd5", "#009e73", "#d55e00", "#cc79a7", "#8250df", "#a08000")
WIDTH, LEFT, RIGHT, TOP = 860, 64, 14, 76
HIGH, LOW, GAP = 260, 170, 58  # of the upper and the lower panel, and from one to the other


def picture(title, runs, base):
    """`runs`: from names to lists of losses, one a step; `base`: the name whose differences to the
    others the lower panel shows. The last runs lie above the first."""
    height = TOP + HIGH + GAP + LOW + 40
    gaps = {name: [x - y for x, y in zip(losses, runs[base], strict=True)]
            for name, losses in runs.items() if name != base}
    colours = dict(zip(runs, COLOURS, strict=False))
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
             f'viewBox="0 0 {WIDTH} {height}" font-family="{FONT}" font-size="11" role="img">',
             f"<title>{html.escape(title)}</title>",
             f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
             text(LEFT, 20, title, "#1f2328", size=12.5)]
    x = LEFT
    for name, colour in colours.items():
        parts.append(f'<line x1="{x}" y1="38" x2="{x + 18}" y2="38" stroke="{colour}" '
                     'stroke-width="3"/>')
        parts.append(text(x + 23, 42, name, "#1f2328"))
        x += 42 + 6.2 * len(name)
    parts += panel(TOP, HIGH, "loss", runs, colours)
    parts += panel(TOP + HIGH + GAP, LOW, f"loss less that of {base}", gaps, colours)
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, height - 8, "step", anchor="middle"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def text(x, y, words, colour="#59636e", anchor="start", size=11):
    return (f'<text x="{x:g}" y="{y:g}" fill="{colour}" text-anchor="{anchor}" '
            f'font-size="{size}">{html.escape(words)}</text>')


def round_step(span):
    """The distance of grid lines, of which about five cross a span: 1, 2 or 5 times a power."""
    rough = span / 5
    power = 10.0 ** math.floor(math.log10(rough))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= rough)


def panel(top, height, title, runs, colours):
    """One panel: a grid, and a line for each run."""
    values = [x for losses in runs.values() for x in losses]
    if not values:
        return []
    low, high = min(values), max(values)
    if high - low < 1e-9:
        low, high = low - 1e-9, high + 1e-9
    count = max(len(losses) for losses in runs.values())
    across = (WIDTH - LEFT - RIGHT) / max(1, count - 1)
    up = height / (high - low)
    parts = [text(LEFT, top - 8, title, "#1f2328", size=12)]
    step = round_step(high - low)
    mark = math.ceil(low / step) * step
    while mark <= high + step * 1e-6:
        y = top + (high - mark) * up
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" '
                     'stroke="#e1e5ea"/>')
        parts.append(text(LEFT - 6, y + 4, f"{mark + 0.0:.4g}", anchor="end"))
        mark += step
    step = max(1, round(round_step(count)))
    for number in range(0, count + 1, step):
        if number:
            parts.append(text(LEFT + (number - 1) * across, top + height + 16, str(number),
                              anchor="middle"))
    for name, losses in runs.items():
        points = " ".join(f"{LEFT + i * across:.1f},{top + (high - x) * up:.1f}"
                          for i, x in enumerate(losses))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colours[name]}" '
                     'stroke-width="1.3" stroke-opacity="0.85"/>')
    return parts
