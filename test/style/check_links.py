#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Whether the links of the documents lead somewhere.

  check_links.py ROOT          reports `file:line: text`; exit code 1 if there is any
  check_links.py --self-test   tries it on what is right and wrong

Checks every relative link and picture of the Markdown files, with its heading; the paths that
documents name in `code`; and the documents that sources name in comments. Plain Python."""
import pathlib
import re
import sys
import tempfile

LINK = re.compile(r"\]\(([^()\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")
# What documents name in code font: a path under one of these folders, or of a header.
CODE = re.compile(r"`((?:examples|bench|test|docs|cmake|include/attile)/[\w./-]+|"
                  r"attile/[\w/]+\.c?u?h)`")
NAMED = re.compile(r"\b((?:docs|bench/log|test)/(?:[\w-]+/)*[\w-]+\.(?:md|svg|json))\b")
SOURCES = {".h", ".cuh", ".cu", ".cpp", ".py", ".txt", ".cmake", ".sh"}


def slug(heading):
    """The anchor of a heading, as GitHub and Doxygen make it."""
    words = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading.strip()).lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def anchors(text):
    return {slug(line.lstrip("#")) for line in without_blocks(text) if re.match(r"#+ ", line)}


def without_blocks(text):
    """The lines of a document, those of code blocks empty."""
    lines, inside = [], False
    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        inside ^= fence
        lines.append("" if inside or fence else line)
    return lines


def faults_of_document(root, path):
    text = path.read_text(encoding="utf-8")
    for number, line in enumerate(without_blocks(text), 1):
        for match in LINK.finditer(re.sub(r"`[^`]*`", "", line)):
            target = match.group(1) or match.group(2)
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            file = path.parent / name if name else path
            if not file.exists():
                yield number, f"there is no {target}"
            elif anchor and anchor not in anchors(file.read_text(encoding="utf-8")):
                yield number, f"there is no heading for {target}"
        for match in CODE.finditer(line):
            name = match.group(1)
            places = [root / name, root / "include" / name]
            if not any(place.exists() for place in places) and not list(root.glob(name + ".*")):
                yield number, f"there is no {name}"


def faults_of_source(root, path):
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        for match in NAMED.finditer(line):
            if not (root / match.group(1)).exists():
                yield number, f"there is no {match.group(1)}"


def faults(root):
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if not path.is_file() or parts[0] in ("build", ".git") or "style" in parts:
            continue
        found = ()
        if path.suffix == ".md":
            found = faults_of_document(root, path)
        elif path.suffix in SOURCES:
            found = faults_of_source(root, path)
        for number, text in found:
            yield f"{path.relative_to(root)}:{number}: {text}"


def self_test():
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        (root / "docs").mkdir()
        (root / "docs/a.md").write_text(
            "# One `Two`: three\n"
            "[right](a.md#one-two-three) [right](../b.md) [out](https://x.y/z)\n"
            "```cpp\n[](int x) { }(wrong.md)\n```\n`include/attile/none.h`\n[wrong](c.md)\n"
            "[wrong](a.md#four) ![wrong](d.svg)\n", encoding="utf-8")
        (root / "b.md").write_text("", encoding="utf-8")
        (root / "a.cu").write_text("// docs/a.md\n// docs/none.md\n", encoding="utf-8")
        expected = ["a.cu:2: there is no docs/none.md",
                    "docs/a.md:6: there is no include/attile/none.h",
                    "docs/a.md:7: there is no c.md",
                    "docs/a.md:8: there is no heading for a.md#four",
                    "docs/a.md:8: there is no d.svg"]
        found = list(faults(root))
        if found != expected:
            print("expected", *expected, "found", *found, sep="\n")
        return found == expected


def main(arguments):
    if arguments == ["--self-test"]:
        return 0 if self_test() else 1
    found = list(faults(pathlib.Path(arguments[0]).resolve()))
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
