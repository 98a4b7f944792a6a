# SPDX-License-Identifier: MIT
"""What the pictures of the documents (pictures.py) and the charts (bench/chart.py) have in common:
the colours of a light and of a dark page, and how their files are written and checked."""
import html
import sys

FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
LIGHT = dict(page="#ffffff", text="#1f2328", quiet="#59636e", line="#afb8c1", grid="#e1e5ea")
DARK = dict(page="#0d1117", text="#f0f6fc", quiet="#9aa4af", line="#4b5561", grid="#262c35")


def opening(width, height, title, rules, light, dark):
    """The first elements of an SVG: its rules, its title and its ground. `rules` gives the CSS of a
    page from its colours: those above with `light` or `dark`. The reader's preference chooses."""
    css = (f".page{{fill:{LIGHT['page']}}}{rules({**LIGHT, **light})}"
           f"@media (prefers-color-scheme:dark){{.page{{fill:{DARK['page']}}}"
           f"{rules({**DARK, **dark})}}}")
    return [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="{FONT}" font-size="11" role="img">',
            f"<title>{html.escape(title)}</title>", f"<style>{css}</style>",
            f'<rect class="page" width="{width}" height="{height}" rx="8"/>']


def fills(colours, names):
    return "".join(f".{name}{{fill:{colours[name]}}}" for name in names)


def write(drawn, program, arguments):
    """Writes the files of `drawn`, from paths to texts. With --check it writes nothing, and returns
    1 where a file is not what it would write."""
    stale = []
    for path, text in drawn.items():
        if arguments != ["--check"]:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
    if stale:
        print(f"run {program}: {', '.join(stale)}", file=sys.stderr)
    return 1 if stale else 0
