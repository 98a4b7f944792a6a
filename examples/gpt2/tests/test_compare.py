# SPDX-License-Identifier: MIT
"""compare.py with runs that are made up, and once with real ones of a tiny model."""
import json
import pathlib
import sys
import xml.etree.ElementTree

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(FOLDER))
import compare  # noqa: E402
import curves  # noqa: E402


class MadeUp(compare.Runner):
    """Eager attention holds 2^23 scores of a head; the others hold 2^15 tokens; attile is twice as
    fast as eager, and sdpa 1.6 times."""

    def __init__(self, out):
        super().__init__(out, [])
        self.device, self.asked = "a device", []

    def run(self, name, arguments, warmup=0):
        self.asked.append(name)
        given = dict(zip(arguments[::2], arguments[1::2], strict=False))
        attention, length, batch = given["--attention"], given["--seq-len"], given["--batch"]
        if attention == "sdpa-cudnn":
            return compare.Run(why="failed: no kernel")
        if batch * length > 2**15 or (attention == "eager" and batch * length**2 > 2**23):
            return compare.NO_MEMORY
        speed = {"eager": 1, "sdpa": 1.6, "attile": 2}[attention]
        about = {"options": {"batch": batch, "seq_len": length}}
        return compare.Run([3.0], batch * length / 1e5 / speed * 1e3, 10.0, about)


def rows(text):
    lines = [line for line in text.splitlines() if line.startswith("| small")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_speed(tmp_path):
    options, _ = compare.parse_options(["speed", "--out", str(tmp_path)])
    runner = MadeUp(tmp_path)
    *_, (text, found) = compare.speed(runner, options)
    cells = rows(text)
    assert cells[:4] == [
        ["small", "1024", "8", "eager", "100.0", "81.9", "10.0", "1.00", "0.62"],
        ["small", "1024", "8", "sdpa", "160.0", "51.2", "10.0", "1.60", "1.00"],
        ["small", "1024", "8", "sdpa-cudnn", "failed: no kernel", "", "", "", ""],
        ["small", "1024", "8", "attile", "200.0", "41.0", "10.0", "2.00", "1.25"]]
    # Eager holds 2 sequences of 2048, none of 4096 and 8192; the others hold 4 of 8192.
    fitting = [tuple(cell[1:4]) for cell in cells if cell[4] != "out of memory"]
    assert ("2048", "8", "attile") in fitting and ("2048", "2", "attile") in fitting
    assert ("2048", "2", "eager") in fitting and ("2048", "8", "eager") not in fitting
    assert ["small", "4096", "8", "eager", "out of memory", "", "", "", ""] in cells
    assert ("8192", "4", "attile") in fitting and ("8192", "8", "attile") not in fitting
    # What cannot fit is not tried: no more sequences, or longer ones, than ran out of memory.
    assert [x for x in runner.asked if "eager" in x] == [
        "small-1024-8-eager", "small-2048-8-eager", "small-2048-4-eager", "small-2048-2-eager",
        "small-4096-1-eager"]
    assert len(runner.asked) == len(set(runner.asked))
    assert "arXiv 2205.14135" in text and {"why"} <= set(found[2])


def test_claim(tmp_path):
    options, _ = compare.parse_options(["claim", "--large-batch", "64", "--out", str(tmp_path)])
    *_, (text, found) = compare.claim(MadeUp(tmp_path), options)
    assert [record["batch"] for record in found] == [8, 8, 8, 8, 8, 32, 8, 32, 64]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()
             if line.startswith("| ")]
    assert lines[1][:2] == ["eager attention, plain AdamW", "8"]
    assert [line[4] for line in lines[1:8]] == ["", "2.00", "1.00", "1.00", "1.00", "1.00", ""]
    assert [line[5] for line in lines[1:9]] == ["1.00", *["2.00"] * 5, "1.00", "1.60"]
    assert lines[9][2] == "failed: no kernel"


def test_differences():
    assert compare.differences([1.0, 2.0, 3.0], [1.0, 2.5, 3.0]) \
        == (0.5, pytest.approx(0.5 / 3 ** 0.5), 2)


def test_picture():
    """Each run is a line of the upper panel, and each but one of the lower; points are in it."""
    runs = {"eager": [5.0, 4.0, 3.0], "<attile>": [5.0, 4.01, 2.98]}
    drawn = xml.etree.ElementTree.fromstring(curves.picture("a & b", runs, "eager"))
    lines = drawn.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 3
    for line in lines:
        points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        assert len(points) == 3 and points[0][0] < points[1][0] < points[2][0]
        assert all(0 < x < curves.WIDTH and 0 < y < float(drawn.get("height")) for x, y in points)
    first = [float(point.split(",")[1]) for point in lines[0].get("points").split()]
    assert first[0] < first[1] < first[2]  # y grows downwards


def test_real_runs(tmp_path, monkeypatch, capsys):
    """Two attentions of a tiny model: losses agree, files are there."""
    pytest.importorskip("transformers", minversion="5.0")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    compare.main(["loss", "--model", "tiny", "--seq-len", "32", "--batch", "2", "--steps", "6",
                  "--dropout", "0", "--attentions", "attile", "--out", str(tmp_path),
                  "--", "--precision", "fp32", "--vocab-size", "257"])
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| attile")]
    largest = float(table[0].split("|")[4].split()[0])
    assert largest < 1e-4
    found = json.loads((tmp_path / "loss.json").read_text(encoding="utf-8"))
    assert list(found) == ["eager", compare.OWN, "attile"] and len(found["attile"]) == 6
    xml.etree.ElementTree.parse(tmp_path / "loss.svg")
    assert (tmp_path / "loss.md").read_text(encoding="utf-8").count("| attile") == 1


def test_a_run_that_fails(tmp_path, monkeypatch):
    """Its last line is the reason, which a table has, and without which there are no curves."""
    script = tmp_path / "train.py"
    script.write_text("print('much'); raise SystemExit('train.py: the reason')", encoding="utf-8")
    monkeypatch.setattr(compare, "TRAIN", script)
    assert compare.Runner(tmp_path, []).run("x", []).why == "failed: train.py: the reason"
    with pytest.raises(SystemExit, match="compare.py: eager: failed: train.py: the reason"):
        compare.main(["loss", "--out", str(tmp_path)])
    script.write_text("raise SystemExit(3)", encoding="utf-8")
    assert compare.Runner(tmp_path, []).run("x", []) is compare.NO_MEMORY
