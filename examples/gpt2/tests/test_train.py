# SPDX-License-Identifier: MIT
"""train.py on a tiny model: on the GPU where there is one, else on the CPU."""
import json
import os
import pathlib
import random
import signal
import subprocess
import sys

import pytest
import torch

pytest.importorskip("transformers", minversion="5.0")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before cuBLAS is first called
FOLDER = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(FOLDER))
import train  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def text(tmp_path):
    """A text whose second half of each line repeats the first: what a model without attention
    cannot learn."""
    letters = random.Random(3)
    lines = []
    for _ in range(4000):
        word = "".join(letters.choice("abcdefgh") for _ in range(7))
        lines.append(f"{word} {word}\n")
    path = tmp_path / "text.txt"
    path.write_text("".join(lines), encoding="ascii")
    return path


def command(text, *more):
    return ["--model", "tiny", "--seq-len", "48", "--batch", "4", "--vocab-size", "257",
            "--precision", "fp32", "--text", str(text), "--warmup", "5", "--lr", "1e-3",
            "--report-every", "4", *map(str, more)]


def read(path):
    """(what the run is, losses, numbers of the steps of the reports) of a results file."""
    first, *reports = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return (first["run"], [x for report in reports for x in report["losses"]],
            [report["step"] for report in reports])


def losses(text, tmp_path, *more):
    path = tmp_path / "results.jsonl"
    assert train.main(command(text, "--results", path, *more)) == 0
    return read(path)[1]


def test_the_command(text, tmp_path):
    """As a process of its own, with what it prints and writes."""
    path = tmp_path / "new" / "results.jsonl"
    done = subprocess.run(
        [sys.executable, FOLDER / "train.py",
         *command(text, "--attention", "eager", "--steps", 10, "--results", path)],
        capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    lines = done.stdout.splitlines()
    assert "eager attention, fp32" in lines[0]
    assert [line.split()[1] for line in lines[1:]] == ["1/10", "4/10", "8/10", "10/10"]
    assert all("tokens/s" in line and "ms/step" in line for line in lines[1:])
    run, curve, steps = read(path)
    assert (len(curve), steps) == (10, [1, 4, 8, 10])
    assert run["options"]["attention"] == "eager" and run["text_tokens"] == 64001


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_learns(text, tmp_path, precision):
    curve = losses(text, tmp_path, "--steps", 60, "--precision", precision)
    assert curve[0] > 5 and sum(curve[-5:]) / 5 < 2.6  # log(257) is 5.5


def test_attentions_agree(text, tmp_path):
    """Without dropout all compute the same function, and differ by what rounding makes of it."""
    more = ("--steps", 25, "--dropout", 0)
    base = losses(text, tmp_path, "--attention", "eager", *more)
    for name in ("sdpa", "sdpa-math", "attile"):
        other = losses(text, tmp_path, "--attention", name, *more)
        gaps = [abs(x - y) for x, y in zip(base, other, strict=True)]
        assert max(gaps) < 1e-5, (name, max(gaps))
    turned = losses(text, tmp_path, "--attention", "eager", "--reverse-batches", *more)
    assert 0 < max(abs(x - y) for x, y in zip(base, turned, strict=True)) < 1e-5


def test_compiled_model_has_no_mask(text, monkeypatch):
    """Its attention is causal by itself: a tensor of the mask would cost the time of one."""
    seen = []
    torch._dynamo.reset()

    def backend(graph, _):
        seen.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    monkeypatch.setattr(train.torch, "compile", lambda model, real=torch.compile: real(
        model, backend=backend, fullgraph=True))
    assert train.main(command(text, "--attention", "sdpa", "--steps", 1, "--compile")) == 0
    assert any("scaled_dot_product_attention" in name for name in seen)
    assert not any("cumsum" in name or "le" == name for name in seen)


def break_off(monkeypatch, step, how):
    """Lets the run end at the beginning of a step."""
    whole = train.Text.batch

    def batch(self, number):
        if number == step:
            how()
        return whole(self, number)

    monkeypatch.setattr(train.Text, "batch", batch)


def crash():
    raise KeyError("crash")


@pytest.mark.parametrize("attention", ["eager", "attile"])
def test_resumes_to_the_same_bits(text, tmp_path, monkeypatch, attention):
    """A crash loses what came after the checkpoint; the same command computes it again."""
    more = ("--attention", attention, "--steps", 14, "--deterministic")
    whole = losses(text, tmp_path, *more)
    path = tmp_path / "resumed.jsonl"
    resumable = command(text, *more, "--results", path, "--checkpoint", tmp_path / "kept",
                        "--checkpoint-every", 5)
    with monkeypatch.context() as patch:
        break_off(patch, 9, crash)
        with pytest.raises(KeyError):
            train.main(resumable)
    assert read(path)[2] == [1, 4, 5, 8]
    assert train.main(resumable) == 0
    run, curve, steps = read(path)
    assert (curve, steps) == (whole, [1, 4, 5, 6, 8, 10, 12, 14])
    assert os.listdir(tmp_path / "kept") == ["checkpoint.pt"]
    before = path.read_bytes()
    assert train.main(resumable) == 0  # there is nothing left to do
    assert path.read_bytes() == before


def test_a_signal_keeps_the_run(text, tmp_path, monkeypatch, capsys):
    more = ("--attention", "eager", "--steps", 9, "--deterministic")
    whole = losses(text, tmp_path, *more)
    path = tmp_path / "resumed.jsonl"
    resumable = command(text, *more, "--results", path, "--checkpoint", tmp_path / "kept")
    with monkeypatch.context() as patch:
        break_off(patch, 6, lambda: os.kill(os.getpid(), signal.SIGTERM))
        assert train.main(resumable) == train.STOPPED
    assert "stopped after step 7: the same command goes on" in capsys.readouterr().err
    assert train.main(resumable) == 0
    assert read(path)[1] == whole


def test_out_of_memory_is_one_sentence(text, monkeypatch, capsys):
    def full():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.\nmore lines")

    break_off(monkeypatch, 2, full)
    assert train.main(command(text, "--attention", "eager")) == train.OUT_OF_MEMORY
    error = capsys.readouterr().err.strip()
    assert error.startswith("train.py: out of memory: eager attention does not hold 4 sequences of")
    assert "\n" not in error


def test_other_errors_are_not_hidden(text, monkeypatch):
    def wrong():
        raise RuntimeError("shapes differ")

    break_off(monkeypatch, 1, wrong)
    with pytest.raises(RuntimeError, match="shapes differ"):
        train.main(command(text, "--attention", "eager"))


@pytest.mark.parametrize(("more", "sentence"), [
    (("--seq-len", 16001), "the text has 64,001 tokens, too few for 4 sequences of 16,001"),
    (("--text", "nowhere.txt"), "cannot read the text nowhere.txt: No such file"),
])
def test_refuses_in_one_sentence(text, capsys, more, sentence):
    assert train.main(command(text, *more)) == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith(f"train.py: {sentence}") and "\n" not in error


@pytest.mark.parametrize(("more", "sentence"), [
    (("--attention", "flash"), "invalid choice: 'flash'"),
    (("--batch", 0), "argument --batch: 0 is below 1"),
    (("--dropout", 1), "argument --dropout: 1 is not in [0, 1)"),
    (("--lr", "nan"), "argument --lr: nan is below 0"),
])
def test_refuses_options(text, capsys, more, sentence):
    with pytest.raises(SystemExit) as stopped:
        train.main(command(text, *more))
    assert stopped.value.code == 2 and sentence in capsys.readouterr().err


def test_refuses_a_loss_that_is_not_finite(text, capsys):
    assert train.main(command(text, "--attention", "eager", "--lr", "1e38")) == 1
    assert "the loss is not a finite number before step" in capsys.readouterr().err


def test_refuses_another_runs_checkpoint(text, tmp_path, capsys):
    kept = ("--checkpoint", tmp_path / "kept", "--steps", 2, "--attention", "eager")
    assert train.main(command(text, *kept)) == 0
    assert train.main(command(text, *kept, "--seed", 2, "--batch", 3)) == 1
    assert "is of a run with another --batch, --seed: give" in capsys.readouterr().err
    text.write_text("another text " * 100, encoding="ascii")
    assert train.main(command(text, *kept)) == 1
    assert "is of a run with another --text: give" in capsys.readouterr().err
    assert train.main(command(text, *kept, "--report-every", 1)) == 1


def test_every_sequence_once_an_epoch(text):
    options = train.parse_options(command(text, "--seq-len", 8000, "--batch", 3))
    source = train.Text(train.read_tokens([text, text]), options, torch.device("cpu"))
    assert source.count == 16 and source.tokens == 128002
    seen = torch.cat([source.batch(step) for step in range(32)])
    rows = [tuple(row) for row in seen.tolist()]
    epochs = [rows[16 * i:16 * (i + 1)] for i in range(6)]
    assert all(sorted(epoch) == sorted(epochs[0]) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 6
    options.reverse_batches = True
    assert torch.equal(source.batch(5), seen[15:18].flip(0))


def test_sizes_are_gpt2s():
    for name, parameters in (("small", 124_439_808), ("medium", 354_823_168)):
        options = train.parse_options(["--model", name, "--attention", "eager"])
        model = train.make_model(options, torch.device("meta"))
        assert sum(x.numel() for x in model.parameters()) == parameters
    options = train.parse_options(["--seq-len", "16384"])
    model = train.make_model(options, torch.device("meta"))
    assert model.transformer.wpe.weight.shape == (16384, 768)


def test_the_default_text_is_pythons():
    tokens = train.read_tokens(None)
    assert tokens.numel() > 5_000_000 and tokens.max() == train.END and tokens.min() >= 0
