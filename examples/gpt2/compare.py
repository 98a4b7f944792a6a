#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares ways to compute GPT-2's attention by training with each: runs train.py again and again.

    compare.py speed    tokens per second and memory, nothing but the attention exchanged
    compare.py claim    the FlashAttention paper's whole claim: what each part of it gives
    compare.py loss     curves of the loss from the same seed, and one picture of them

Each run is a process of its own. Tables go to the screen, and with what they were made of to the
folder --out: MODE.md, MODE.json, for loss also loss.svg, and each run's results.
"""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time
from typing import NamedTuple, Optional

import curves

TRAIN = pathlib.Path(__file__).resolve().parent / "train.py"
OUT_OF_MEMORY = 3  # train.py's exit code

PAPERS = """\
What the papers state, on 8 A100 (FA: FlashAttention, arXiv 2205.14135; FA2: arXiv 2307.08691):

| what, and where | baseline | FA | FA2 |
|---|---|---|---|
| GPT-2 small at 1k, over Hugging Face (FA, table 2) | 1.0; Megatron-LM 2.0 | 3.5 | |
| GPT-2 medium at 1k, over Hugging Face (FA, table 2) | 1.0; Megatron-LM 1.8 | 3.0 | |
| GPT-2 small at 1k, 2k, 4k, over Megatron-LM at 1k (FA, table 4) | 1.0 | 1.7, 1.6, 1.3 | |
| GPT3-1.3B at 2k, 8k, TFLOP/s (FA2, table 1) | 142, 72 | 189, 170 | 196, 220 |
| GPT3-2.7B at 2k, 8k, TFLOP/s (FA2, table 1) | 149, 80 | 189, 175 | 205, 225 |
"""


class Run(NamedTuple):
    """What one run of train.py gave, or why it gave nothing."""
    losses: list = ()
    ms: Optional[float] = None
    memory: Optional[float] = None  # GiB, the most that was allocated
    about: Optional[dict] = None
    why: str = ""

    @property
    def rate(self):
        """Tokens per second."""
        options = self.about["options"]
        return options["batch"] * options["seq_len"] / self.ms * 1e3


NO_MEMORY = Run(why="out of memory")


class Runner:
    """Runs train.py, and keeps what it says in a folder."""

    def __init__(self, out, common):
        self.runs, self.common = out / "runs", common
        self.runs.mkdir(parents=True, exist_ok=True)
        self.device = ""

    def run(self, name, arguments, warmup=0):
        """Trains once. `ms` is the median of the reports behind the first `warmup` steps."""
        results, log = self.runs / f"{name}.jsonl", self.runs / f"{name}.log"
        command = [sys.executable, str(TRAIN), *map(str, arguments), *self.common,
                   "--results", str(results)]
        start = time.perf_counter()
        with open(log, "w", encoding="utf-8") as file:
            code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT,
                                  check=False).returncode
        seconds = f"({time.perf_counter() - start:.0f} s)"
        if code != 0:
            lines = log.read_text(encoding="utf-8").splitlines() or [f"exit code {code}"]
            run = NO_MEMORY if code == OUT_OF_MEMORY else Run(why=f"failed: {lines[-1]}")
            print(f"{name}: {run.why} {seconds}", flush=True)
            return run
        about, *reports = map(json.loads, results.read_text(encoding="utf-8").splitlines())
        about = about["run"]
        self.device = f"{about['device']}, {about['versions']}"
        run = Run([x for report in reports for x in report["losses"]],
                  statistics.median(r["ms_per_step"] for r in reports if r["step"] > warmup),
                  reports[-1]["memory_gib"], about)
        print(f"{name}: {run.rate / 1e3:.1f} thousand tokens/s, {run.ms:.1f} ms a step"
              + (f", {run.memory:.1f} GiB" if run.memory else "")
              + f", loss {run.losses[-1]:.3f} {seconds}", flush=True)
        return run

    def measure(self, name, tokens, arguments, measured):
        """The time of a step: three intervals after one to warm up; `measured` steps of 8192
        tokens, of larger ones in proportion fewer."""
        interval = max(3, round(measured * min(1, 8192 / tokens) / 3))
        return self.run(name, [*arguments, "--steps", 4 * interval, "--report-every", interval],
                        interval)


def number(value, digits=2):
    return "" if value is None else f"{value:.{digits}f}"


def table(head, rows):
    """Markdown whose columns are aligned, too."""
    rows = [head, *rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
             + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


# ---- speed ---------------------------------------------------------------------------------------


class Cells:
    """Runs of (attention, length, batch), each made once."""

    def __init__(self, runner, options):
        self.runner, self.options, self.runs = runner, options, {}

    def get(self, attention, length, batch):
        key = attention, length, batch
        if key not in self.runs:
            self.runs[key] = NO_MEMORY if self._cannot_fit(*key) else self.runner.measure(
                f"{self.options.model}-{length}-{batch}-{attention}", length * batch,
                ["--model", self.options.model, "--attention", attention, "--seq-len", length,
                 "--batch", batch], self.options.measured)
        return self.runs[key]

    def _cannot_fit(self, attention, length, batch):
        """Whether no more tokens, in no longer sequences, have run out of memory already."""
        return any(name == attention and run is NO_MEMORY and l <= length
                   and l * b <= length * batch for (name, l, b), run in self.runs.items())

    def largest(self, attention, length):
        """The largest batch that memory holds, halving; 0 where not even one sequence fits."""
        batch = self.options.batch
        while batch and self.get(attention, length, batch) is NO_MEMORY:
            batch //= 2
        return batch


def speed(runner, options):
    """Each length at the largest batch that fits with any attention, and at that of eager."""
    cells = Cells(runner, options)
    rows, found = [], []
    head = ["GPT-2", "length", "batch", "attention", "thousand tokens/s", "ms a step", "GiB",
            "over eager", "over the best SDPA"]
    for length in options.lengths:
        batches = {cells.largest(attention, length) for attention in options.attentions} - {0}
        for batch in sorted(batches, reverse=True):
            runs = {name: cells.get(name, length, batch) for name in options.attentions}
            rates = {name: run.rate for name, run in runs.items() if not run.why}
            best = max((x for name, x in rates.items() if name.startswith("sdpa")), default=None)
            for name, run in runs.items():
                cell = [options.model, str(length), str(batch), name]
                record = {"length": length, "batch": batch, "attention": name}
                if run.why:
                    rows.append([*cell, run.why, "", "", "", ""])
                    found.append({**record, "why": run.why})
                    continue
                over_eager = rates[name] / rates["eager"] if "eager" in rates else None
                over_sdpa = rates[name] / best if best else None
                rows.append([*cell, number(rates[name] / 1e3, 1), number(run.ms, 1),
                             number(run.memory, 1), number(over_eager), number(over_sdpa)])
                found.append({**record, "tokens_per_second": rates[name], "ms": run.ms,
                              "memory_gib": run.memory})
        yield table(head, rows) + "\n" + PAPERS, found


# ---- claim ---------------------------------------------------------------------------------------


def claim(runner, options):
    """From the eager baseline to everything, a step at a time; then the others with everything."""
    small, large = options.batch, options.large_batch
    plain, padded = ["--optimizer", "plain"], ["--vocab-size", 50304]
    everything = [*padded, "--compile"]
    steps = [("eager attention, plain AdamW", "eager", small, plain),
             ("attention by attile", "attile", small, plain),
             ("fused AdamW", "attile", small, []),
             ("vocabulary padded to 50304", "attile", small, padded),
             ("torch.compile", "attile", small, everything),
             ("a larger batch", "attile", large, everything)]
    others = [(f"everything, but {name}", name, large, everything)
              for name in options.attentions if name != "attile"]
    head = ["each line adds", "batch", "thousand tokens/s", "GiB", "over the line before",
            "over the first"]
    title = (f"GPT-2 {options.model} at {options.seq_len} tokens. Lines that begin with everything "
             "add nothing: they are what the others reach.\n\n")
    rows, found, rates = [], [], []
    for place, (what, attention, batch, extra) in enumerate(steps + others):
        run = NO_MEMORY
        while batch and run is NO_MEMORY:
            run = runner.measure(f"claim-{place}-{attention}-{batch}", options.seq_len * batch,
                                 ["--model", options.model, "--attention", attention, "--seq-len",
                                  options.seq_len, "--batch", batch, *extra], options.measured)
            batch = batch // 2 if run is NO_MEMORY else batch
        record = {"what": what, "attention": attention, "batch": batch}
        if run.why:
            rows.append([what, "", run.why, "", "", ""])
            found.append({**record, "why": run.why})
            rates.append(None)
        else:
            before = rates[-1] if rates and place < len(steps) else None
            rates.append(run.rate)
            rows.append([what, str(batch), number(run.rate / 1e3, 1), number(run.memory, 1),
                         number(run.rate / before if before else None),
                         number(run.rate / rates[0] if rates[0] else None)])
            found.append({**record, "tokens_per_second": run.rate, "memory_gib": run.memory})
        yield title + table(head, rows) + "\n" + PAPERS, found


# ---- loss ----------------------------------------------------------------------------------------

OWN = "eager, summed in another order"


def differences(losses, base):
    """How a curve differs from another: (largest, root mean square, step of the largest)."""
    gaps = [x - y for x, y in zip(losses, base, strict=True)]
    largest = max(map(abs, gaps))
    return (largest, math.sqrt(sum(x * x for x in gaps) / len(gaps)),
            [abs(x) for x in gaps].index(largest) + 1)


def loss(runner, options):
    """Curves from one seed beside eager's own noise: eager once more, with the sequences of each
    batch in reverse order. That is the same mathematics, and nothing but rounding differs where
    there is no dropout; where there is, other elements are dropped, as every other attention does.
    """
    common = ["--model", options.model, "--seq-len", options.seq_len, "--batch", options.batch,
              "--steps", options.steps, "--dropout", options.dropout]
    runs = {}
    for name in ["eager", OWN, *[x for x in options.attentions if x != "eager"]]:
        extra = ["--attention", "eager", "--reverse-batches"] if name == OWN \
            else ["--attention", name]
        run = runner.run("loss-" + (name if name != OWN else "eager-reversed"), common + extra)
        if run.why:
            raise SystemExit(f"compare.py: {name}: {run.why}")
        runs[name] = run.losses
    own = differences(runs[OWN], runs["eager"])
    rows = []
    for name, losses in runs.items():
        gap = differences(losses, runs["eager"])
        tail = statistics.mean(losses[-50:])
        cells = ["", "", ""]
        if name != "eager":
            cells = [f"{gap[0]:.4f} (step {gap[2]})", f"{gap[1]:.5f}",
                     number(gap[1] / own[1]) if own[1] else ""]
        rows.append([name, f"{losses[0]:.4f}", f"{tail:.4f}", *cells])
    head = ["attention", "first loss", "mean of the last 50", "largest difference from eager",
            "root mean square", "over eager's own"]
    title = (f"GPT-2 {options.model}, {options.batch} sequences of {options.seq_len} tokens a step,"
             f" dropout {options.dropout:g}")
    (options.out / "loss.svg").write_text(
        curves.picture(f"{title}, on {runner.device}", runs, "eager"), encoding="utf-8")
    yield f"{title}.\n\n" + table(head, rows), runs


# ---- main ----------------------------------------------------------------------------------------


def parse_options(arguments):
    parser = argparse.ArgumentParser(
        prog="compare.py", description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        epilog="Options behind -- go to each run of train.py.")
    parser.add_argument("mode", choices=("speed", "claim", "loss"))
    add = parser.add_argument
    add("--attentions", nargs="+", default=["eager", "sdpa", "sdpa-cudnn", "attile"],
        help="train.py's names")
    add("--model", default="small")
    add("--lengths", type=int, nargs="+", default=[1024, 2048, 4096, 8192], help="of speed")
    add("--seq-len", type=int, default=1024, help="of claim and loss")
    add("--batch", type=int, default=8, help="sequences of a step; speed halves it where memory "
        "runs out")
    add("--large-batch", type=int, default=32, help="claim's last step, halved likewise")
    add("--measured", type=int, default=30, help="steps that are timed at 8192 tokens a step; of "
        "larger ones fewer")
    add("--steps", type=int, default=300, help="of loss")
    add("--dropout", type=float, default=0.1, help="of loss")
    add("--out", type=pathlib.Path, default=pathlib.Path("gpt2_results"))
    common = []
    if "--" in arguments:
        place = arguments.index("--")
        arguments, common = arguments[:place], arguments[place + 1:]
    return parser.parse_args(arguments), common


def main(arguments):
    options, common = parse_options(arguments)
    runner = Runner(options.out, common)
    mode = {"speed": speed, "claim": claim, "loss": loss}[options.mode]
    text = ""
    for text, found in mode(runner, options):  # what is there is written as it grows
        text = f"{runner.device}.\n\n{text}"
        (options.out / f"{options.mode}.md").write_text(text, encoding="utf-8")
        (options.out / f"{options.mode}.json").write_text(json.dumps(found, indent=1),
                                                          encoding="utf-8")
    print("\n" + text)


if __name__ == "__main__":
    main(sys.argv[1:])
