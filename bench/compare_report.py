# SPDX-License-Identifier: MIT
"""Statistics, Markdown, SVG and JSON of compare.py's results. Plain Python."""
import html
import json
import os
import pathlib
import statistics

from compare_cells import BEFORE, DIRECTIONS, IN_ORDER, OURS, PEERS, VARIANTS, contender_label

NAMES = (OURS, IN_ORDER, *VARIANTS, *BEFORE.values(), *PEERS)
PLAIN_GROUPS = ("policies", "sink")  # whose cells are compared with the plain kernel

# Okabe and Ito's colours, which also the colour-blind tell apart, on white and on black.
COLOURS = {"attile": "#d55e00", "in_order": "#f0a060", "cudnn": "#4f9bd9", "fa2": "#009e73",
           "fa3": "#0072b2", "efficient": "#b08ad0", "flex": "#e6a700", "flashinfer": "#cc79a7",
           "before": "#9a9a9a", "before_in_order": "#c4c4c4",
           **dict(zip(VARIANTS, ("#e8862e", "#f2b27a", "#b34700", "#f7c99c", "#8c3800", "#d98c5f",
                                 "#a65a2a", "#ffb380", "#5c2600")))}


def summarise(milliseconds, flops, kv_bytes=None):
    """Median over the rounds with its spread, and the rates of the median: that of the bytes of K
    and V where they are given."""
    median = statistics.median(milliseconds)
    of_bytes = {"gbytes_s": kv_bytes / median * 1e-6} if kv_bytes else {}
    return {"status": "ok", "median_ms": median, "min_ms": min(milliseconds),
            "max_ms": max(milliseconds), "tflops": flops / median * 1e-9, **of_bytes,
            "rounds_ms": list(milliseconds)}


def unit(row):
    """What rates of a row are in."""
    return "GB/s of K and V" if row.get("kv_bytes") else "TFLOP/s"


def rate_of(row, name):
    result = row["contenders"].get(name, {})
    if result.get("status") != "ok":
        return None
    return result["gbytes_s"] if row.get("kv_bytes") else result["tflops"]


def rates(row):
    """{contender: its rate, or None}."""
    return {name: rate_of(row, name) for name in row["contenders"]}


def ratios(row):
    """Our rate over each peer's."""
    ours = rate_of(row, OURS)
    return {name: ours / rate for name in PEERS if ours and (rate := rate_of(row, name))}


def before_ratios(row):
    """{ours or in order: its rate over that of the other headers}."""
    pairs = {now: (rate_of(row, now), rate_of(row, then)) for now, then in BEFORE.items()}
    return {now: new / old for now, (new, old) in pairs.items() if new and old}


def best_peer(row):
    """The fastest peer's name; None where none counts."""
    found = {name: rate for name in PEERS if (rate := rate_of(row, name))}
    return max(found, key=found.get) if found else None


def of_plain(row):
    """attile's time over that of its plain kernel, which took turns with it; None without one."""
    if not rate_of(row, OURS) or not rate_of(row, "plain"):
        return None
    return row["contenders"][OURS]["median_ms"] / row["contenders"]["plain"]["median_ms"]


def spread_percent(row):
    """The widest (max - min) / median of a row's contenders. Units: percent."""
    return max((100 * (c["max_ms"] - c["min_ms"]) / c["median_ms"]
                for c in row["contenders"].values() if c["status"] == "ok"), default=None)


class Unusable(Exception):
    """What keeps compare.py from doing what it is asked for, in one sentence."""


def write_json(path, results):
    """In one step, so that a run that is cut leaves the last whole file."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(results, indent=1, allow_nan=False), encoding="utf-8")
    os.replace(partial, path)


def read_json(paths):
    """One result of several runs. Every row keeps the number of its run's conditions."""
    merged = {"runs": [], "compile": [], "cells": []}
    for path in paths:
        try:
            results = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
            _require_shown(results, tuple(merged))
            first = len(merged["runs"])
            merged["runs"] += results["runs"]
            merged["compile"] += results["compile"]
            merged["cells"] += [{**row, "run": first + row["run"]} for row in results["cells"]]
        except OSError as error:
            raise Unusable(f"{path}: {error.strerror.lower()}") from error
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise Unusable(f"{path} is no result of compare.py") from error
    return merged


def _require_shown(results, lists):
    """Raises what showing results of another shape raises."""
    for key in lists:
        if not isinstance(results[key], list):
            raise TypeError(f"{key} is no list")
    markdown(results)
    svg(results)


def sections(results):
    """(group, direction, rows) in the order of the run."""
    keys = dict.fromkeys((row["group"], row["direction"]) for row in results["cells"])
    for group, direction in keys:
        yield group, direction, [row for row in results["cells"]
                                 if (row["group"], row["direction"]) == (group, direction)]


# ---- Markdown ------------------------------------------------------------------------------------


def number(value):
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def short(milliseconds):
    """Three digits, and no more than three behind the point."""
    return number(milliseconds) if milliseconds >= 1 else f"{milliseconds:.3f}"


def conditions(run):
    """One sentence about a run's machine and software."""
    versions = ", ".join(f"{name} {text}" for name, text in run["versions"].items())
    return (f"{run['gpu']} (driver {run['driver']}), {versions}; {run['date']}; median of "
            f"{run['rounds']} interleaved rounds of {run['round_ms']} ms; `{run['command']}`")


def tables(results):
    """(group, directions, lines) of each table; a line is a {direction: row} of one cell. A table
    is of one direction, but those of PLAIN_GROUPS are of both."""
    of_both = {group: {} for group in PLAIN_GROUPS}
    for row in results["cells"]:
        if row["group"] in PLAIN_GROUPS:
            lines = of_both[row["group"]]
            lines.setdefault((row["run"], row["cell"]), {})[row["direction"]] = row
    for group, direction, rows in sections(results):
        if group not in PLAIN_GROUPS:
            yield group, (direction,), [{direction: row} for row in rows]
        elif of_both[group]:
            lines = list(of_both[group].values())
            of_both[group] = {}
            yield group, tuple(d for d in DIRECTIONS if any(d in line for line in lines)), lines


def markdown(results):
    """A table for every group and direction, then what was refused, then the compiler."""
    lines = [conditions(run) + "." for run in results["runs"]] + [""]
    notes = {}
    for group, directions, cells in tables(results):
        lines += _table(group, directions, cells, notes)
    lines += before_summary(results)
    if any(c.get("host_bound") for row in results["cells"] for c in row["contenders"].values()):
        lines += ["\\* enqueueing took the host as long as the work took the GPU.", ""]
    if notes:
        lines += ["Not counted:", ""]
        lines += [f"- {text} ({_shortened(where)})" for text, where in notes.items()] + [""]
    if results["compile"]:
        lines += compile_table(results["compile"])
    return "\n".join(lines).rstrip() + "\n"


def _table(group, directions, cells, notes):
    """Of rates, with microseconds beside those of bytes; that of PLAIN_GROUPS is of milliseconds,
    with a column that compares with the plain kernel. Where a table is of both directions its
    entries are, too."""
    rows = [row for line in cells for row in line.values()]
    names = [n for n in NAMES if any(n in row["contenders"] for row in rows)]
    policies = group in PLAIN_GROUPS
    columns = [(contender_label(n), lambda row, n=n: _entry(row, n, notes, policies))
               for n in names]
    columns.append(("attile / best peer", _best_ratio))
    if policies:
        columns.append(("of plain", lambda row: _two_digits(of_plain(row))))
    if BEFORE[OURS] in names:
        columns.append(("attile / before", lambda row: ", ".join(
            f"{r:.3f}" for r in before_ratios(row).values())))
    heading = "milliseconds" if policies else _heading(rows[0])
    lines = [f"**{group}, {' / '.join(directions)}** ({heading})", "",
             "| cell | " + " | ".join(name for name, _ in columns) + " | spread |",
             "|---" * (len(columns) + 2) + "|"]
    for line in cells:
        entries = [_joined([text(line[d]) if d in line else "" for d in directions])
                   for _, text in columns]
        spread = max((s for row in line.values() if (s := spread_percent(row)) is not None),
                     default=None)
        entries.append(f"{spread:.0f} %" if spread is not None else "")
        cell = next(iter(line.values()))["cell"]
        lines.append(f"| {cell} | " + " | ".join(entries) + " |")
    return lines + [""] + batch_steps(rows)


def _heading(row):
    if any("quantised_error" in result for result in row["contenders"].values()):
        return f"{unit(row)}, relative error against what was quantised"
    return unit(row) + (", microseconds" if row.get("kv_bytes") else "")


def batch_steps(rows):
    """Of cells that differ in the batch alone, four and more of them: the most that attile's time
    falls from one batch to a larger one. It rises where work fills the device evenly."""
    series = {}
    for row in rows:
        shape = row.get("shape", {})
        if not row.get("kv_bytes") or not rate_of(row, OURS) or len(set(shape["keys"])) > 1:
            continue
        alike = {**shape, "batch": 0, "keys": shape["keys"][0]}
        key = (row["run"], *((name, str(value)) for name, value in sorted(alike.items())))
        series.setdefault(key, []).append((shape["batch"], row))
    lines = []
    for found in series.values():
        found.sort(key=lambda pair: pair[0])
        if len(found) < 4:
            continue
        times = [(batch, row["contenders"][OURS]["median_ms"]) for batch, row in found]
        fall, before, behind = max((100 * (1 - later / time), batch, larger)
                                   for i, (batch, time) in enumerate(times)
                                   for larger, later in times[i + 1:])
        said = (f"falls by {fall:.1f} % from batch {before} to {behind}" if fall > 0
                else "never falls")
        lines.append(f"- attile, {found[0][1]['cell']} to batch {times[-1][0]}: its time {said}")
    return lines + [""] if lines else []


def _joined(texts):
    """The entries of the directions in one; once what they all say in words, as `refused`."""
    same = len(set(texts)) == 1 and not texts[0][:1].isdigit()
    return texts[0] if same else " / ".join(text or "-" for text in texts)


def _best_ratio(row):
    best = best_peer(row)
    ratio = ratios(row).get(best)
    return f"{ratio:.2f} ({contender_label(best)})" if ratio else ""


def _two_digits(ratio):
    return f"{ratio:.2f}" if ratio else ""


def before_summary(results):
    """Of each direction and mode, the least ratio to the other headers and the geometric mean."""
    found = {}
    for row in results["cells"]:
        for name, ratio in before_ratios(row).items():
            found.setdefault((row["direction"], name), []).append((ratio, row["cell"]))
    lines = [f"{contender_label(name)} / before, {direction}: {len(all_)} cells, least "
             f"{min(all_)[0]:.3f} ({min(all_)[1]}), geometric mean "
             f"{statistics.geometric_mean(ratio for ratio, _ in all_):.4f}"
             for (direction, name), all_ in found.items()]
    return ["- " + line for line in lines] + [""] if lines else []


def _entry(row, name, notes, milliseconds):
    result = row["contenders"].get(name)
    if result is None:
        return ""
    if result["status"] == "ok":
        text = short(result["median_ms"]) if milliseconds else number(rate_of(row, name))
        if row.get("kv_bytes"):
            text += f" ({number(1e3 * result['median_ms'])})"
        if "quantised_error" in result:
            text += f" ({result['quantised_error']:.2g})"
        return text + ("\\*" if result.get("host_bound") else "")
    text = f"{contender_label(name)} {result['status']}: {result['why']}"
    notes.setdefault(text, []).append(f"{row['cell']}, {row['direction']}")
    return "WRONG" if result["status"] == "wrong" else result["status"]


def _shortened(names, most=3):
    more = len(names) - most
    return "; ".join(names[:most]) + (f"; and {more} more" if more > 0 else "")


def compile_table(rows):
    lines = ["**compiler**", "", "| kernel | wall s | CPU s | peak MB | object KB | at once |",
             "|---|---|---|---|---|---|"]
    for row in rows:
        if "why" in row:
            lines.append(f"| {row['kernel']} | {row['why']} | | | | |")
            continue
        lines.append(f"| {row['kernel']} | {row['wall_s']:.1f} | {row['cpu_s']:.1f} "
                     f"| {row['peak_mb']:.0f} | {row['object_bytes'] / 1000:.0f} "
                     f"| {row['jobs']} |")
    return lines + [""]


# ---- SVG -----------------------------------------------------------------------------------------

BAR, GAP, HEIGHT, LEFT, TOP, FOOT, CELLS = 15, 32, 170, 52, 30, 66, 6


def svg(results):
    """Grouped bars of rates: panels of up to CELLS cells, forward left and backward right; under
    each cell our ratio to the best peer."""
    panels = {}
    for group, direction, rows in sections(results):
        for first in range(0, len(rows), CELLS):
            column = DIRECTIONS.index(direction)
            panels.setdefault((group, first), {})[column] = rows[first:first + CELLS]
    names = [n for n in NAMES if any(n in row["contenders"] for row in results["cells"])]
    panel_width = LEFT + CELLS * (len(names) * BAR + GAP) + 20
    panel_height = TOP + HEIGHT + FOOT
    width, height = 2 * panel_width, 64 + panel_height * len(panels)
    title = "Attention (higher is better); last line of a cell: attile / best peer"
    gpus = ", ".join(dict.fromkeys(run["gpu"] for run in results["runs"]))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        "<style>.t{fill:#767676}.g{stroke:#8886}"  # grey that both grounds carry, where unknown
        "@media (prefers-color-scheme:light){.t{fill:#222}}"
        "@media (prefers-color-scheme:dark){.t{fill:#ddd}}</style>",
        _text(LEFT, 20, f"{title}. {gpus}", size=14)]
    for i, name in enumerate(names):
        x = LEFT + 150 * i
        parts.append(f'<rect x="{x}" y="32" width="12" height="12" fill="{COLOURS[name]}"/>')
        parts.append(_text(x + 17, 42, contender_label(name)))
    for line, ((group, _), columns) in enumerate(panels.items()):
        for column, rows in columns.items():
            heading = f"{group}, {DIRECTIONS[column]} ({unit(rows[0])})"
            parts += _panel(column * panel_width, 56 + line * panel_height, heading, rows, names)
    return "\n".join(parts + ["</svg>"]) + "\n"


def _text(x, y, text, anchor="start", size=None):
    style = f' font-size="{size}"' if size else ""
    return (f'<text class="t" x="{x:g}" y="{y:g}" text-anchor="{anchor}"{style}>'
            f"{html.escape(text)}</text>")


def _fitting(text, names):
    """The font size at which a text is no wider than a cell's bars; None where the usual one is."""
    size = (len(names) * BAR + GAP) / (0.55 * max(1, len(text)))
    return None if size >= 11 else round(size, 1)


def axis_step(largest, steps=5):
    """1, 2 or 5 times a power of ten, at most `steps` of which reach `largest`."""
    step = 1.0
    while largest / step > steps:
        step *= 2.5 if f"{step:e}".startswith("2") else 2
    return step


def _panel(left, top, heading, rows, names):
    largest = max((rate for row in rows for n in names if (rate := rate_of(row, n))), default=1.0)
    step = axis_step(largest)
    ceiling = step * max(1, -(-largest // step))
    base = top + TOP + HEIGHT
    x_end = left + LEFT + len(rows) * (len(names) * BAR + GAP)
    parts = [_text(left + LEFT, top + 14, heading, size=13)]
    for i in range(int(round(ceiling / step)) + 1):
        y = base - HEIGHT * i * step / ceiling
        parts.append(f'<line class="g" x1="{left + LEFT}" y1="{y:g}" x2="{x_end}" y2="{y:g}"/>')
        parts.append(_text(left + LEFT - 5, y + 4, f"{i * step:g}", "end"))
    for i, row in enumerate(rows):
        x = left + LEFT + GAP / 2 + i * (len(names) * BAR + GAP)
        best = ratios(row).get(best_peer(row))
        for j, name in enumerate(names):
            rate = rate_of(row, name)
            if rate is None:
                continue
            tall = HEIGHT * rate / ceiling
            parts.append(
                f'<rect x="{x + j * BAR:g}" y="{base - tall:.1f}" width="{BAR - 2}" '
                f'height="{tall:.1f}" fill="{COLOURS[name]}"><title>'
                f"{html.escape(contender_label(name))}: {number(rate)}</title></rect>")
        kernel, _, shape = row["cell"].partition(", ")
        middle = x + len(names) * BAR / 2
        parts.append(_text(middle, base + 15, kernel, "middle", size=9))
        parts.append(_text(middle, base + 28, shape, "middle", size=_fitting(shape, names)))
        if best:
            parts.append(_text(middle, base + 42, f"{best:.2f}×", "middle", size=12))
    return parts
