#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Bytes that standard attention, FlashAttention-1 and FlashAttention-2 move, as Nsight Compute
counts them, beside the formulas of examples/07_algorithms.

  bytes.py                                     the shape of FlashAttention-1's paper
  bytes.py -- --batch 4 --heads 16 --seqlen 4096 --type fp32

What stands behind -- goes to 07_algorithms, which names its options and is given one problem.
Each pass is run once under the profiler; the numbers are sums over its kernels. The caches are
emptied before each kernel (the profiler's default), so what one kernel leaves in L2 for the next is
read from DRAM again.

Needs a CUDA GPU, ncu (on PATH, in /usr/local/cuda/bin, or --ncu), the right to read performance
counters, and 07_algorithms (--program)."""
import argparse
import csv
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ALGORITHMS = ("standard", "flash1", "flash2")
DIRECTIONS = ("forward", "backward")
PAPER = ("--paper",)
DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
L2 = "lts__t_bytes.sum"
METRICS = (*DRAM, L2)
SKIPPED = 77  # 07_algorithms without a CUDA device
UNITS = {"byte": 1, "Kbyte": 10**3, "Mbyte": 10**6, "Gbyte": 10**9, "Tbyte": 10**12}


class Failure(Exception):
    """What went wrong, in one sentence."""


def amount(text, unit):
    """A value of ncu's CSV in bytes: "1,234.5" of "Kbyte" is 1234500."""
    if unit not in UNITS:
        raise Failure(f"ncu gave a metric in '{unit}', which is no unit of bytes")
    try:
        value = float(text.replace(",", "")) * UNITS[unit]
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Failure(f"ncu measured '{text}', which is no number")
    return value


def parse(text):
    """The sums over all kernels of each metric of ncu's --csv --page details, in bytes, and the
    number of kernels. Lines before the header, such as ==PROF==, are passed over."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines)
                  if line.startswith('"ID"') and '"Metric Name"' in line), None)
    if start is None:
        raise Failure(complaint(text) or "ncu wrote no table: it profiled no kernel")
    sums = dict.fromkeys(METRICS, 0.0)
    seen = set()
    rows = csv.DictReader(line for line in lines[start:] if line.startswith('"'))
    for row in rows:
        metric = row["Metric Name"]
        if metric not in sums:
            continue
        if (key := (row["ID"], metric)) in seen:
            raise Failure(f"ncu gave {metric} of kernel {row['ID']} twice")
        seen.add(key)
        sums[metric] += amount(row["Metric Value"], row["Metric Unit"])
    kernels = {kernel for kernel, _ in seen}
    if not kernels:
        raise Failure(complaint(text) or "ncu profiled no kernel")
    if len(seen) != len(kernels) * len(METRICS):
        raise Failure("ncu left out a metric of a kernel")
    return sums, len(kernels)


def complaint(text):
    """What ncu itself says went wrong, or nothing."""
    return next((line.removeprefix("==ERROR==").strip() for line in text.splitlines()
                 if line.startswith("==ERROR==")), None)


def command(ncu, log, program, pass_arguments):
    return [ncu, "--profile-from-start", "off", "--target-processes", "all",
            "--clock-control", "none", "--metrics", ",".join(METRICS), "--csv", "--page", "details",
            "--print-units", "base", "--log-file", str(log), str(program), *pass_arguments]


def run(words):
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Failure(f"{words[0]}: {error.strerror.lower()}") from error
    return done.returncode, done.stdout, done.stderr


def measure(ncu, program, shape, algorithm, direction):
    """One pass: what 07_algorithms says of it, and the measured sums."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "ncu.csv"
        words = [*shape, "--once", algorithm, direction, "--json"]
        code, out, error = run(command(ncu, log, program, words))
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        if code != 0:
            # What the program says comes before ncu's "The application returned an error code".
            why = [*error.strip().splitlines()[-1:], complaint(text + "\n" + out)][0]
            raise Failure(f"{algorithm} {direction} failed under ncu: {why or 'no word of why'}")
    sums, kernels = parse(text)
    # Only what the program itself prints begins with a bracket.
    said = json.loads(out[out.index("["):out.rindex("]") + 1])[0]
    return {"algorithm": algorithm, "direction": direction, "problem": said, "kernels": kernels,
            "formula": said["bytes"], "dram": sum(sums[name] for name in DRAM), "l2": sums[L2]}


def with_sums(passes):
    """The passes, and for each algorithm with both directions their sum."""
    rows = list(passes)
    for algorithm in ALGORITHMS:
        both = [row for row in passes if row["algorithm"] == algorithm]
        if len(both) == len(DIRECTIONS):
            rows.append({"algorithm": algorithm, "direction": "both",
                         **{key: sum(row[key] for row in both)
                            for key in ("kernels", "formula", "dram", "l2")}})
    return rows


def markdown(passes):
    problem = passes[0]["problem"]
    rows = with_sums(passes)
    standard = {row["direction"]: row["dram"] for row in rows if row["algorithm"] == "standard"}
    lines = [
        f"Batch {problem['batch']}, {problem['heads']} heads, length {problem['len']}, head_dim "
        f"{problem['head_dim']}, {problem['type']}{', causal' if problem['causal'] else ''}. GB of "
        "10^9 bytes, summed over the kernels of a pass.",
        "",
        f"| pass | algorithm | kernels | by formula | DRAM: {' + '.join(DRAM)} | L2: {L2} "
        "| DRAM, of standard's |",
        "|---|---|---|---|---|---|---|"]
    for direction in (*DIRECTIONS, "both"):
        for row in rows:
            if row["direction"] != direction:
                continue
            share = (f"{100 * row['dram'] / standard[direction]:.1f} %"
                     if standard.get(direction) else "")
            lines.append(f"| {direction} | {row['algorithm']} | {row['kernels']} "
                         f"| {row['formula'] / 1e9:.3f} | {row['dram'] / 1e9:.3f} "
                         f"| {row['l2'] / 1e9:.3f} | {share} |")
    return "\n".join(lines) + "\n"


def find_ncu(given):
    ncu = shutil.which(given or "ncu") or (
        None if given else shutil.which("/usr/local/cuda/bin/ncu"))
    if ncu is None:
        raise Failure("bytes.py needs Nsight Compute: there is no " + (
            f"program {given}" if given else "ncu here (see --ncu)"))
    return ncu


def find_program(given):
    if given is not None:
        if not given.is_file():
            raise Failure(f"bytes.py needs the program 07_algorithms: there is no file {given}")
        return given.resolve()  # no search on PATH
    found = [path for path in ROOT.glob("build/*/examples/07_algorithms") if path.is_file()]
    if not found:
        raise Failure("bytes.py needs the program 07_algorithms: build the examples, or see "
                      "--program")
    return max(found, key=lambda path: path.stat().st_mtime)


def need_gpu(program, shape):
    """Tries a pass without the profiler, so that its own error is heard."""
    code, _, error = run([str(program), *shape, "--once", "flash2", "forward", "--json"])
    if code == SKIPPED:
        raise Failure("bytes.py needs a CUDA GPU: there is none here")
    if code != 0:
        raise Failure((error.strip().splitlines() or ["07_algorithms failed without a word"])[-1])


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ncu", help="the profiler")
    parser.add_argument("--program", type=pathlib.Path, help="07_algorithms; default: the "
                        "newest of build/*/examples/07_algorithms")
    parser.add_argument("--markdown", type=pathlib.Path, help="writes the table here too")
    parser.add_argument("shape", nargs="*", help="options of 07_algorithms; default: --paper")
    options, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}; options of 07_algorithms go "
                     "behind --")
    if several_problems(options.shape):
        parser.error("only one problem is measured: no --sweep, and one length behind --seqlen")
    return options


def several_problems(shape):
    """Whether the options of 07_algorithms ask for more than one problem."""
    lengths = [value for word, value in zip(shape, shape[1:]) if word == "--seqlen"]
    return "--sweep" in shape or len(lengths) > 1 or any("," in value for value in lengths)


def main(argv):
    options = parse_arguments(argv)
    shape = options.shape or list(PAPER)
    try:
        ncu = find_ncu(options.ncu)
        program = find_program(options.program)
        print(f"the program is {program}", file=sys.stderr, flush=True)
        need_gpu(program, shape)
        passes = []
        for algorithm in ALGORITHMS:
            for direction in DIRECTIONS:
                print(f"{algorithm} {direction}", file=sys.stderr, flush=True)
                try:
                    passes.append(measure(ncu, program, shape, algorithm, direction))
                except Failure as failure:
                    # Standard attention may not fit the device; the others are still of use.
                    if algorithm != "standard" or "out of memory" not in str(failure):
                        raise
                    print(failure, file=sys.stderr)
        text = markdown(passes)
    except Failure as failure:
        raise SystemExit(str(failure)) from None
    print(text, end="")
    if options.markdown:
        options.markdown.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
