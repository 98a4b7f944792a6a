#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""attile beside the attention that PyTorch carries: cuDNN, FlashAttention-2, the memory-efficient
backend and FlexAttention (Triton), forward and backward, and beside FlashAttention-3 and FlashInfer
where their packages are installed. docs/benchmarks.md says what the columns mean.

  compare.py                             everything
  compare.py --quick --peers cudnn,fa2   one cell of each group
  compare.py --before ../old/include     also the headers of another folder
  compare.py --from a.json b.json        tables and chart of earlier runs, without a GPU

Needs PyTorch, a CUDA GPU and nvcc. Exit codes: 1, a result of attile is missing or wrong; 2, there
is nothing to measure or to show."""
import argparse
import dataclasses
import datetime
import importlib.metadata
import itertools
import math
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import time

sys.dont_write_bytecode = True  # no __pycache__ in the source tree
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import chart  # noqa: E402
import compare_build  # noqa: E402
import compare_cells  # noqa: E402
import compare_report  # noqa: E402

START = time.monotonic()
LONGEST = 240  # characters of a reason


def progress(text):
    print(f"[{time.monotonic() - START:6.1f} s] {text}", file=sys.stderr, flush=True)


def sentence(error):
    """The first line of an error, or two where the first only announces, short enough for a
    table."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    said = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    if len(said) > LONGEST:
        end = said.rfind(" ", LONGEST - 40, LONGEST - 1)
        said = said[:end if end > 0 else LONGEST - 2] + " …"
    return said.replace("|", "/")


def names_in(allowed):
    def parse(text):
        names = [name for name in text.split(",") if name]
        if unknown := [name for name in names if name not in allowed]:
            raise argparse.ArgumentTypeError(
                f"no {', '.join(unknown)} among {', '.join(allowed)}")
        return names
    return parse


def positive(text):
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def include_folder(text):
    path = pathlib.Path(text).resolve()
    if not (path / "attile" / "attile.cuh").is_file():
        raise argparse.ArgumentTypeError(f"{text} holds no attile/attile.cuh")
    return path


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    groups, peers = compare_cells.GROUPS, tuple(compare_cells.PEERS)
    parser.add_argument("--groups", type=names_in(groups), default=list(groups),
                        help="of " + ",".join(groups))
    parser.add_argument("--cells", default="*", metavar="PATTERN",
                        help="only cells whose name matches, such as '*causal*S 4k'")
    parser.add_argument("--quick", action="store_true", help="one cell of each group")
    parser.add_argument("--direction", choices=(*compare_cells.DIRECTIONS, "both"), default="both")
    parser.add_argument("--peers", type=names_in(peers), default=list(peers),
                        help="of " + ",".join(peers))
    parser.add_argument("--in-order", action="store_true",
                        help="backward, also with DqMode::kInOrder")
    parser.add_argument("--before", metavar="INCLUDE", type=include_folder,
                        help="attile with the headers of that folder is a contender, too")
    parser.add_argument("--code", type=positive, metavar="CC",
                        help="attile's code for that compute capability, such as 80, on this "
                        "device")
    parser.add_argument("--rounds", type=positive, default=5,
                        help="counted rounds, after one to warm up")
    parser.add_argument("--round-ms", type=positive, default=70,
                        help="repetitions of a contender fill this time in a round")
    parser.add_argument("--build", default=str(compare_build.ROOT / "build" / "compare"),
                        help="folder of the compiled kernels")
    parser.add_argument("--json", help="file, written again after every cell")
    parser.add_argument("--svg", help="file")
    parser.add_argument("--charts", metavar="FOLDER",
                        help="a chart of each group, GROUP.svg")
    parser.add_argument("--markdown", help="file; the tables also end the standard output")
    parser.add_argument("--from", nargs="+", dest="earlier", metavar="JSON",
                        help="measure nothing: show the results of these files")
    parser.add_argument("--list", action="store_true", help="name the cells and end")
    return parser.parse_args(argv)


def select(options):
    """The cells that the options choose: at least one, unless the compiler alone is measured."""
    cells = compare_cells.select(options.groups, options.quick, options.cells)
    if cells and not any(options.direction in ("both", *cell.directions) for cell in cells):
        raise compare_report.Unusable(f"the chosen cells have no {options.direction} pass")
    if cells or ("compile" in options.groups and options.cells == "*" and not options.list):
        return cells
    chosen = ["--cells", options.cells]
    if set(options.groups) != set(compare_cells.GROUPS):
        chosen = ["--groups", ",".join(options.groups), *chosen]
    raise compare_report.Unusable(f"no cell matches {shlex.join(chosen)}; see --list")


def require_machine():
    """PyTorch with a GPU, and nvcc; else ends with one sentence."""
    try:
        import torch
    except (ImportError, OSError) as error:
        raise SystemExit(f"compare.py needs PyTorch: {sentence(error)}")
    if not torch.cuda.is_available():
        raise SystemExit("compare.py needs a CUDA GPU, and PyTorch finds none")
    nvcc = compare_build.find_nvcc()
    if nvcc is None:
        raise SystemExit("compare.py needs nvcc, on PATH, in /usr/local/cuda/bin or as CUDACXX")
    return torch, nvcc


def gpu_state(properties):
    """Clocks, power and temperature, as nvidia-smi reports them at this moment."""
    keys = ("driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "power.draw",
            "power.limit", "temperature.gpu")
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return {}
    command = [smi, f"--query-gpu={','.join(keys)}", "--format=csv,noheader"]
    uuid = getattr(properties, "uuid", None)
    for choice in ([f"--id=GPU-{uuid}"] if uuid else [], []):  # some containers hide the id
        answer = subprocess.run(command + choice, capture_output=True, text=True, check=False)
        if answer.returncode == 0 and answer.stdout:
            return dict(zip(keys, answer.stdout.splitlines()[0].split(", ")))
    return {}


def commit():
    """The commit of the sources, where there is a git to ask; else nothing."""
    git = shutil.which("git")
    if git is None:
        return ""
    answer = subprocess.run([git, "-C", str(compare_build.ROOT), "rev-parse", "--short", "HEAD"],
                            capture_output=True, text=True, check=False)
    return answer.stdout.strip() if answer.returncode == 0 else ""


def describe_run(torch, options, builder, properties, arguments):
    versions = {"PyTorch": torch.__version__, "CUDA": torch.version.cuda,
                "cuDNN": torch.backends.cudnn.version(), "nvcc": builder.version}
    try:
        import triton

        versions["Triton"] = triton.__version__
    except ImportError:
        pass
    for name, package in (("FlashAttention-3", "flash_attn_3"),
                          ("FlashInfer", "flashinfer-python")):
        try:
            versions[name] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    state = gpu_state(properties)
    return {"gpu": properties.name, "sms": properties.multi_processor_count,
            "driver": state.get("driver_version", "unknown"), "state_before": state,
            "versions": versions, "sources": builder.sources[:16], "commit": commit(),
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "command": shlex.join(["compare.py", *arguments]), "rounds": options.rounds,
            "round_ms": options.round_ms, "cores": os.cpu_count()}


# ---- building ------------------------------------------------------------------------------------


def build(builder, cells, directions, in_order, measure_compiler, results):
    """{kernel: Library or the error that there is instead}; the compiler's figures into results."""
    if measure_compiler:
        try:
            results["compile"] += builder.baselines()
        except compare_build.BuildError as error:
            results["compile"].append({"kernel": "baseline", "why": sentence(error)})
        for kernel in compare_cells.compile_kernels():
            try:
                row = builder.build(kernel, fresh=True)[1]
            except compare_build.BuildError as error:
                row = {"kernel": kernel.name, "why": sentence(error)}
            results["compile"].append(row)
            progress(f"compiled {kernel.name}")
    kernels = list(dict.fromkeys(
        kernel for cell in cells for way in directions if way in cell.directions
        for kernel in cell.kernels(way, in_order)))
    if not kernels:
        return {}
    jobs = min(len(kernels), os.cpu_count() or 1)
    progress(f"building {len(kernels)} kernels, {jobs} at a time")
    libraries = {}
    listed = {row["kernel"] for row in results["compile"]}
    for kernel, made in builder.build_all(kernels, jobs).items():
        if isinstance(made, Exception):
            libraries[kernel] = made
            row = {"kernel": kernel.name, "why": sentence(made)}
        else:
            libraries[kernel] = compare_build.Library(made[0])
            row = made[1]
        if kernel.name not in listed:
            results["compile"].append(row)
    progress("built")
    return libraries


# ---- measuring -----------------------------------------------------------------------------------


def poison(torch, x):
    """Leaves NaN in memory that PyTorch's allocator is about to give to a contender's outputs."""
    held = [torch.full_like(t, float("nan")) for t in (x.q, x.k, x.v, x.dout) for _ in range(2)]
    del held


def milliseconds(torch, call, repetitions):
    """GPU time of one of several calls in a row, by one pair of events around them all."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(repetitions):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / repetitions


def calibrate(torch, call, round_ms):
    """Repetitions that fill a round, and whether the host takes as long to enqueue a call as the
    GPU to run it: then the time is the host's."""
    gpu_ms = milliseconds(torch, call, 1)
    few = 20 if gpu_ms < 5 else 1
    start = time.perf_counter()
    for _ in range(few):
        call()
    host_ms = 1e3 * (time.perf_counter() - start) / few
    torch.cuda.synchronize()
    gpu_ms = milliseconds(torch, call, few)
    return max(1, round(round_ms / gpu_ms)), host_ms > 0.9 * gpu_ms, host_ms


def beyond(name, error, allowed):
    """An error and the bound that it exceeds, in three digits or as many as tell them apart."""
    pairs = ((f"{error:.{digits}g}", f"{allowed:.{digits}g}") for digits in range(3, 18))
    return "{} {} (allowed {})".format(name, *next(pair for pair in pairs if pair[0] != pair[1]))


def judge(reference, outputs):
    """The status of outputs with their errors, and a sentence where they are wrong."""
    errors = reference.errors(outputs)
    result = {"status": "ok",
              "errors": {n: e if math.isfinite(e) else str(e) for n, e in errors.items()},
              **reference.details(outputs)}
    if wrong := reference.wrong(errors):
        said = ", ".join(beyond(n, errors[n], reference.tolerance[n]) for n in wrong)
        result.update(status="wrong", why=f"relative error of {said}")
    return result


def judge_run(reference, run, outputs):
    """judge() of the outputs of a run's call. Of a run that drops what only it knows they have to
    be finite, and the same call without dropout is judged."""
    if run.judged_by is not None:
        reference = run.judged_by(reference)
    if run.undropped is None:
        return judge(reference, outputs)
    dropped = judge(reference.undropped, outputs)
    if not all(isinstance(error, float) for error in dropped["errors"].values()):
        return dropped
    return judge(reference.undropped, run.outputs(run.undropped()))


def failure(error):
    return {"status": "error", "why": f"{type(error).__name__}: {sentence(error)}"}


def prepare(torch, makers, x, direction, reference, Refused):
    """Every contender's first run, held against the reference: ({name: Run}, {name: result})."""
    runs, found = {}, {}
    for name, make in makers.items():
        try:
            poison(torch, x)
            start = time.monotonic()
            run = make(x, direction)
            poison(torch, x)
            outputs = run.outputs(run.call())
            torch.cuda.synchronize()
            first_s = time.monotonic() - start
            found[name] = {**judge_run(reference, run, outputs), "first_s": first_s}
            del outputs
            if found[name]["status"] == "ok":
                runs[name] = run
        except Refused as refusal:
            found[name] = {"status": "refused", "why": sentence(refusal)}
        except Exception as error:  # a cell that fails is a result; the run goes on
            found[name] = failure(error)
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            raise RuntimeError(f"{name} has broken the device: {sentence(error)}") from error
    return runs, found


def orders(names):
    """The order of names in each round, without end. A chip at its power limit runs faster behind a
    contender that takes less, so each runs behind each other one equally often where their number
    is a prime, and once or twice where it is not: round n goes through them, and through places
    up to the next prime that stay empty, in steps of 1 + n % (prime - 1)."""
    names = list(names)
    places = max(len(names), 2)
    while any(places % divisor == 0 for divisor in range(2, places)):
        places += 1
    for turn in itertools.count():
        step = 1 + turn % (places - 1)
        taken = (place * step % places for place in range(places))
        yield [names[place] for place in taken if place < len(names)]


def race(torch, runs, rounds, round_ms):
    """Rounds in which the contenders take turns (orders); the first is not counted.
    {name: ([milliseconds of one call by round], details)}."""
    plans = {name: calibrate(torch, run.call, round_ms) for name, run in runs.items()}
    times = {name: [] for name in runs}
    for turn, order in enumerate(itertools.islice(orders(runs), rounds + 1)):
        for name in order:
            time_of_call = milliseconds(torch, runs[name].call, plans[name][0])
            if turn > 0:
                times[name].append(time_of_call / runs[name].calls)
    return {name: (times[name], {"repetitions": plan[0], "host_bound": plan[1],
                                 "host_ms": plan[2]}) for name, plan in plans.items()}


def overwrite(run):
    """Fills a run's outputs with NaN; those that each call allocates lie where these did."""
    for tensor in run.outputs(run.call()).values():
        tensor.fill_(math.nan)


def check_again(runs, reference):
    """{name: status and errors} of one more call after the race. Outputs hold NaN before it,
    scratch memory what the timed calls left there."""
    found = {}
    for name, run in runs.items():
        try:
            overwrite(run)
            found[name] = judge_run(reference, run, run.outputs(run.call()))
        except Exception as error:  # like a first run that fails
            found[name] = failure(error)
    return found


def our_makers(contenders, cell, direction, in_order, libraries, before):
    """{name: contender}: the cell's, and those of them that have a name with other headers."""
    def maker(built, mode):
        return lambda x, way: contenders.attile(x, way, built, **mode)

    modes = cell.modes(direction, in_order)
    makers = {name: maker(libraries, mode) for name, mode in modes.items()}
    if before:
        makers.update((compare_cells.BEFORE[name], maker(before, mode))
                      for name, mode in modes.items() if name in compare_cells.BEFORE)
    return makers


def measure(torch, contenders, cell, direction, options, libraries, before=None):
    """A row of the results."""
    x = contenders.Inputs(cell)
    reference = contenders.Reference(x, direction)
    makers = our_makers(contenders, cell, direction, options.in_order, libraries, before)
    makers.update((name, contenders.PEERS[name]) for name in options.peers
                  if name in contenders.PEERS and (name != "flex" or cell.flex))
    runs, found = prepare(torch, makers, x, direction, reference, contenders.Refused)
    flops = cell.flops(direction)
    raced = race(torch, runs, options.rounds, options.round_ms)
    for name, last in check_again(runs, reference).items():
        times, details = raced[name]
        if last["status"] == "ok":
            found[name].update(compare_report.summarise(times, flops, cell.kv_bytes), **details,
                               **runs[name].details, last_errors=last["errors"])
        else:
            found[name].update(last, why=f"after the timed rounds: {last['why']}")
    return {"cell": cell.name, "group": cell.group, "direction": direction,
            "shape": dataclasses.asdict(cell), "flops": flops, "kv_bytes": cell.kv_bytes,
            "tolerance": reference.tolerance, "contenders": found}


def measure_all(torch, cells, directions, options, libraries, before, results, properties):
    import compare_cached_contenders
    import compare_contenders
    import compare_fp8_contenders

    pairs = [(c, d) for c in cells for d in directions if d in c.directions]
    for i, (cell, direction) in enumerate(pairs):
        contenders = compare_contenders
        if isinstance(cell, compare_cells.CachedCell):
            contenders = compare_cached_contenders
        elif isinstance(cell, compare_cells.Fp8Cell):
            contenders = compare_fp8_contenders
        try:
            row = measure(torch, contenders, cell, direction, options, libraries, before)
        except Exception as error:  # recorded; the next cell may work
            row = {"cell": cell.name, "group": cell.group, "direction": direction,
                   "shape": dataclasses.asdict(cell), "kv_bytes": cell.kv_bytes,
                   "contenders": {compare_cells.OURS: failure(error)}}
        row.update(run=0, ratios=compare_report.ratios(row),
                   best_peer=compare_report.best_peer(row), state_after=gpu_state(properties))
        results["cells"].append(row)
        if options.json:
            compare_report.write_json(options.json, results)
        shown = ", ".join(
            f"{name} {compare_report.number(rate) if rate else row['contenders'][name]['status']}"
            for name, rate in compare_report.rates(row).items())
        progress(f"{i + 1}/{len(pairs)} {cell.group}: {cell.name}, {direction}: {shown}")
        torch.cuda.empty_cache()
        torch.cuda.synchronize()


def show(options, results):
    tables = compare_report.markdown(results)
    if options.markdown:
        pathlib.Path(options.markdown).write_text(tables, encoding="utf-8")
    if options.svg:
        pathlib.Path(options.svg).write_text(compare_report.svg(results), encoding="utf-8")
    if options.charts:
        chart.write(results, options.charts)
    if options.json:
        compare_report.write_json(options.json, results)
    print(tables, end="")


def ours_are_right(results):
    ours = (*compare_cells.BEFORE, *compare_cells.BEFORE.values(), *compare_cells.VARIANTS)
    return all(row["contenders"][name]["status"] == "ok" for row in results["cells"]
               for name in ours if name in row["contenders"]) and not any(
                   "why" in c for c in results["compile"])


def run(options, argv):
    if options.earlier:
        show(options, compare_report.read_json(options.earlier))
        return 0
    directions = (compare_cells.DIRECTIONS if options.direction == "both"
                  else (options.direction,))
    cells = select(options)
    if options.list:
        print("\n".join(f"{cell.group}: {cell.name}" for cell in cells))
        return 0
    torch, nvcc = require_machine()
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    device = compare_build.architecture(properties.major, properties.minor)
    arch = options.code or device
    builder = compare_build.Builder(options.build, nvcc, arch, device)
    results = {"runs": [describe_run(torch, options, builder, properties, argv)], "compile": [],
               "cells": []}
    libraries = build(builder, cells, directions, options.in_order,
                      "compile" in options.groups, results)
    before = None
    if options.before:
        other = compare_build.Builder(options.build, nvcc, arch, device, options.before)
        results["runs"][0]["sources_before"] = other.sources[:16]
        failed = {"compile": []}
        before = build(other, cells, directions, options.in_order, False, failed)
        results["compile"] += [row for row in failed["compile"] if "why" in row]
    broken = None
    try:
        measure_all(torch, cells, directions, options, libraries, before, results, properties)
    except Exception as error:  # the device is lost: what there is is shown
        broken = sentence(error)
    results["runs"][0].update(state_after=gpu_state(properties),
                              seconds=round(time.monotonic() - START, 1))
    show(options, results)
    if broken:
        raise SystemExit(f"compare.py stopped early: {broken}")
    return 0 if ours_are_right(results) else 1


def main(argv):
    options = parse_arguments(argv)
    try:
        return run(options, argv)
    except compare_report.Unusable as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
