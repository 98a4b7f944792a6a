#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Takes one barrier, fence or wait out of a kernel at a time, or one call of a function that wraps
one, and sees whether the suite on the simulated machine notices.

  mutate.py                      all of them
  mutate.py --only flash1        those in files whose path has this in it
  mutate.py --only flash1 --table    and writes what it finds into mutants.md
  mutate.py --list               names them: the ctest mutants.list
  mutate.py --list --table       and brings mutants.md up to date with the sources, trying nothing

Prints a Markdown table: each mutant with the report that killed it, or `survived`. A survivor is a
barrier that nothing needs, or has its reason beside it in test/sim/README.md. Exit code 1: some
survived that are not named there."""
import argparse
import collections
import concurrent.futures
import dataclasses
import datetime
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# What is mutated, and the suites that launch it.
PORTABLE = ("portable", "flash1")
MATRIX = ("sm80", "sm80_fp32")
DECODE = ("decode",)
APPEND = ("append",)
MERGE = ("merge",)
HOPPER = ("sm90", "sm90_fp8")
# Programs that are no suite.
PROGRAMS = {"pipeline": "test/sim/pipeline.cu", "tutorial": "examples/14_tutorial/main.cu",
            "own_hopper": "examples/12_own_kernels/hopper.cu",
            "fusion": "examples/13_prologue_epilogue.cu"}
OWN = ("pipeline", "tutorial", "own_hopper")
FOLDERS = {"include/attile/kernel/append": APPEND,
           "include/attile/kernel/merge": MERGE,
           "include/attile/tile": OWN + PORTABLE + MATRIX + HOPPER,
           "include/attile/kernel/problem": PORTABLE + MATRIX + HOPPER,
           "include/attile/kernel/problem/row_items.cuh": APPEND + MERGE,
           "include/attile/kernel/forward": PORTABLE + MATRIX + HOPPER,
           "include/attile/kernel/backward": PORTABLE + MATRIX + HOPPER,
           "include/attile/kernel/portable": PORTABLE,
           "include/attile/kernel/decode": DECODE,
           "include/attile/kernel/sm80": MATRIX,
           "include/attile/kernel/sm80/decode.cuh": DECODE,
           "include/attile/kernel/sm80/decode_loads.cuh": DECODE,
           "include/attile/kernel/sm80/merge_warps.cuh": DECODE,
           "include/attile/kernel/sm80/forward.cuh": ("fusion",) + MATRIX,
           "include/attile/kernel/sm90": HOPPER}
# What orders threads or copies: the machine's functions, and those of attile that wrap one of them,
# which are mutated where they are called, too.
ORDERS = (r"(?:(?:warp_|consumer_|all_consumers_|cluster_)?barrier|barrier_arrive|barrier_any"
          r"|cluster_arrive|cluster_wait|async_copy_commit|async_copy_wait|mbarrier_\w+"
          r"|fence_async_proxy|bulk_commit|bulk_wait|bulk_wait_read|wgmma_fence"
          r"|wgmma_commit|wgmma_wait"
          r"|sync|sync_rows|wait_product|wait|release|consumer_(?:wait|release|skip)"
          r"|producer_(?:acquire|commit(?:_copies)?)"
          r"|(?:allow|await|arrive|signal|acquire|release|skip)_\w+)")
CALLED = (r"(?:\w+(?:<[^;<>]*>)?(?:\([^;()]*\))?(?:\.|::|->))*"  # of what: `arch::`, `smem.q().`
          r"(?:template )?")
ARGUMENTS = r"(?:<[^;<>]*>)?\([^;]*\)"
# A statement that is such a call is taken out whole.
STATEMENT = re.compile(
    rf"^\s*((?:if (?:constexpr )?\([^;{{}}]*\) )?(?:{CALLED}{ORDERS}{ARGUMENTS}"
    rf"|static_cast<void>\({CALLED}(?:consumer_wait|expect)\([^;]*\)\));)")
# A pipeline's tile that is waited for is taken without.
TILE = re.compile(rf"= ({CALLED}consumer_wait\(([^;]*)\));")
# Who votes at a barrier goes by its own vote.
VOTE = re.compile(r"return (arch::barrier_any\([^;]*, (\w+)\));")
# A ticket is taken without an order.
TICKET = re.compile(r"(arch::fetch_add_acq_rel(\([^;()]*\)))")
# Every other call is one that has been overlooked here, but for those in a function's head.
CALL = re.compile(rf"\b{ORDERS}{ARGUMENTS}")
# Samples of the suite, every N-th case, and the seeds that each runs under. Most mutants die of few
# cases, so that those come first.
RUNS = ((40, 1), (8, 1), (1, 1), (1, 2), (1, 3))
LONGEST = 3600  # seconds of a run
# mutants.md: what is behind this line is written here.
WRITTEN = "<!-- mutate.py --table writes what follows. -->\n"
HEAD = "| without | reported as | by | tried |\n|---|---|---|---|\n"
ROW = re.compile(r"\| `(.*)`(?: \((\d+)\))? \| ([^|]*) \| ([^|]*) \| ([^|]*) \|")
NOT_TRIED = ("not tried", "", "")
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
KILLED = re.compile(r"sim: ((?:race|uninitialised|bounds|misaligned|in flight|proxy|registers|"
                    r"divergence|barrier|mbarrier|cluster|dependency|deadlock): .*)")


@dataclasses.dataclass(frozen=True)
class Mutant:
    path: pathlib.Path
    line: int
    text: str
    instead: str = ";"

    @property
    def name(self):
        return f"{self.path.name}:{self.line}"


def mutants(only):
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).glob("*.*h")):
            relative = path.relative_to(ROOT)
            if only and only not in str(relative):
                continue
            for i, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
                code = line.split("//")[0]
                if match := STATEMENT.match(code):
                    found.append(Mutant(relative, i, match.group(1)))
                elif match := TILE.search(code):
                    wait, state = match.groups()
                    stage = "0" if state == "{}" else f"({state}).stage"
                    tile = wait[:wait.rindex("consumer_wait(")] + f"tile({stage})"
                    found.append(Mutant(relative, i, wait, tile))
                elif match := VOTE.search(code):
                    found.append(Mutant(relative, i, *match.groups()))
                elif match := TICKET.search(code):
                    found.append(Mutant(relative, i, match.group(1),
                                        f"arch::fetch_add{match.group(2)}"))
                elif CALL.search(code) and "ATTILE_DEVICE" not in code:
                    raise SystemExit(f"{relative}:{i + 1}: no mutant for {code.strip()}")
    return found


# A suite is compiled once, with every mutant in it: the environment says which one is alive.
SWITCH = """#pragma once
#include <cstdlib>
namespace attile_test {
[[gnu::no_sanitize("thread")]] inline bool is_mutant(int number) {
  static const char* const name = std::getenv("ATTILE_MUTANT");
  static const int alive = name == nullptr ? -1 : std::atoi(name);
  return number == alive;
}
}  // namespace attile_test
"""


def write_mutants(folder, all_mutants):
    """The headers with all mutants, as folder/include, and what chooses one as folder/mutants.h."""
    shutil.copytree(ROOT / "include", folder / "include")
    (folder / "mutants.h").write_text(SWITCH, encoding="utf-8")
    for path, of_file in itertools.groupby(enumerate(all_mutants), lambda pair: pair[1].path):
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines(keepends=True)
        for number, mutant in of_file:
            alive = f"attile_test::is_mutant({number})"
            instead = (f"if (!{alive}) {{ {mutant.text} }}" if mutant.instead == ";"
                       else f"({alive} ? {mutant.instead} : {mutant.text})")
            lines[mutant.line] = lines[mutant.line].replace(mutant.text, instead, 1)
        (folder / path).write_text("".join(lines), encoding="utf-8")


def compile_suite(folder, suite, objects):
    """folder/suite, a program with all mutants."""
    source = f"test/sim/suite_{suite}.cpp"
    if not (ROOT / source).exists():
        source = f"test/sim/{suite}.cpp"
    if suite in PROGRAMS:
        source, objects = PROGRAMS[suite], [o for o in objects if "attile_sim.dir" in o]
    code, text = run(["g++", "-std=c++20", "-O2", "-g1", "-fsanitize=thread",
                      "-fno-optimize-sibling-calls", "--param",
                      "tsan-instrument-func-entry-exit=0", "-DATTILE_TEST_FULL=1",
                      f"-I{ROOT}/test/sim", f"-I{folder}/include", f"-I{ROOT}/test", "-isystem",
                      "/usr/local/cuda/include", "-Wno-unknown-pragmas", "-include",
                      f"{folder}/mutants.h", "-x", "c++", str(ROOT / source), "-x",
                      "none", *objects, "-lboost_context", "-ldl", "-lpthread", "-o",
                      str(folder / suite)], 1800)
    if code != 0:
        raise SystemExit(f"suite {suite} does not compile with its mutants:\n{text}")


def run(words, seconds, **environment):
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False,
                              env={**os.environ, **environment})
    except subprocess.TimeoutExpired:
        return 1, "did not end"
    return done.returncode, done.stdout + done.stderr


def reason(mutant, text):
    """What the suite says against it; the end of mutate.py where it says nothing that counts."""
    if match := KILLED.search(text):
        return match.group(1)
    if any(word in text for word in ("failed: ", "did not end", ", and not ", " (bound ")):
        return text.rstrip().splitlines()[-1]
    raise SystemExit(f"{mutant.name}: the suite ended without a verdict:\n{text[-2000:]}")


def run_suite(folder, suite, every, seed, mutant=-1):
    options = [f"{folder / suite}.{mutant}.bin"] if suite in PROGRAMS else [
        "--abort", "-r", "compact"]
    return run([str(folder / suite), *options], LONGEST, ATTILE_SIM_SEED=str(seed),
               ATTILE_MUTANT=str(mutant), ATTILE_SUITE_EVERY=str(every))


def suites_of(mutant):
    of_file = FOLDERS.get(mutant.path.as_posix())
    return of_file or FOLDERS[mutant.path.parent.as_posix()]


def try_mutant(folder, number, mutant):
    """What kills it, or None."""
    for every, seed in RUNS:
        for suite in suites_of(mutant):
            code, text = run_suite(folder, suite, every, seed, number)
            if code != 0:
                return reason(mutant, text), f"{suite}, every {every}, seed {seed}"
    return None


def cells(killer):
    """What mutants.md says of a mutant that was tried: the report's kind is enough there."""
    said, suite = killer or ("**survived**", "all")
    is_report = KILLED.match(f"sim: {said}") or not killer
    kind = said.partition(":")[0] if is_report else "wrong values"
    commit = run(["git", "-C", str(ROOT), "rev-parse", "--short=7", "HEAD"], 60)[1].strip()
    return kind, suite, f"{datetime.date.today()}, {commit}"


def keys(all_mutants):
    """Of each mutant: its file, its text, the how-manieth of that text it is in its file, and of
    how many."""
    count = collections.Counter((m.path, m.text) for m in all_mutants)
    seen = collections.Counter()
    result = []
    for mutant in all_mutants:
        seen[mutant.path, mutant.text] += 1
        result.append((mutant.path.as_posix(), mutant.text, seen[mutant.path, mutant.text],
                       count[mutant.path, mutant.text]))
    return result


def read_table(text):
    """From keys to the cells of a table."""
    rows, path = {}, None
    for line in text.splitlines():
        if line.startswith("## "):
            path = f"include/attile/{line[3:]}"
        elif match := ROW.fullmatch(line):
            without, number, *rest = match.groups()
            rows[path, without.replace("\\|", "|"), int(number or 1)] = tuple(rest)
    count = collections.Counter(key[:2] for key in rows)
    return {(*key, count[key[:2]]): rest for key, rest in rows.items()}


def write_table(found):
    """Brings mutants.md up to date: the mutants that there are now, with the cells `found` of those
    that have been tried now. The others keep what was known of them, unless their file has more or
    fewer of the same text than before."""
    path = ROOT / "test/sim/mutants.md"
    about, _, written = path.read_text(encoding="utf-8").partition(WRITTEN)
    now = keys(mutants(None))
    known = {**read_table(written), **found}
    rows = {key: known.get(key, NOT_TRIED) for key in now}
    survive = sum(kind == "**survived**" for kind, *_ in rows.values())
    tried = sum(row != NOT_TRIED for row in rows.values())
    parts = [f"\n{len(rows)} mutants: {tried - survive} reported, {survive} survive, "
             f"{len(rows) - tried} not tried.\n"]
    for file, of_file in itertools.groupby(rows.items(), lambda item: item[0][0]):
        parts.append(f"\n## {file.removeprefix('include/attile/')}\n\n{HEAD}")
        for (_, text, number, count), row in of_file:
            which = f" ({number})" if count > 1 else ""
            without = text.replace("|", "\\|")
            parts.append(f"| `{without}`{which} | {' | '.join(row)} |\n")
    path.write_text(about + WRITTEN + "".join(parts), encoding="utf-8")


def main(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="part of a path")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--table", action="store_true",
                        help="bring mutants.md up to date, with every verdict as it comes")
    parser.add_argument("--build", default=str(ROOT / "build/test"),
                        help="a build folder in which the targets test_sim_* were made")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(argv)
    all_mutants = mutants(options.only)
    if options.list:
        for mutant in all_mutants:
            print(f"{mutant.name}  {mutant.text}")
        if options.table:
            write_table({})
        return 0
    build = pathlib.Path(options.build) / "test"
    objects = [str(p) for p in sorted(build.glob("sim/CMakeFiles/attile_sim.dir/Unity/*.o"))]
    objects += [str(p) for kind in ("main", "host_main")
                for p in build.glob(f"CMakeFiles/attile_test_{kind}.dir/support/*.o")]
    objects += [str(p) for p in build.glob("libattile_test_yardstick.a")]
    if not objects:
        raise SystemExit(f"mutate.py needs the targets test_sim_* built in {options.build}")
    reasons = (ROOT / "test/sim/README.md").read_text(encoding="utf-8")
    print("| mutant: without | killed by |\n|---|---|", flush=True)
    unexplained = 0
    suites = dict.fromkeys(suite for mutant in all_mutants for suite in suites_of(mutant))
    with (tempfile.TemporaryDirectory() as name,
          concurrent.futures.ThreadPoolExecutor(options.jobs) as pool):
        folder = pathlib.Path(name)
        write_mutants(folder, all_mutants)
        list(pool.map(lambda suite: compile_suite(folder, suite, objects), suites))
        baselines = [(suite, *run) for suite in suites for run in RUNS]
        for case, (code, text) in zip(baselines,
                                      pool.map(lambda case: run_suite(folder, *case), baselines)):
            if code != 0:
                raise SystemExit(f"suite, every, seed {case}: fails without a mutant:\n"
                                 f"{text[-2000:]}")
        # Survivors run for longest: those that are known come last, and each line when it is known.
        names = keys(all_mutants)
        named = {i: f"the {ORDINALS[which - 1]} `{text}` in {pathlib.Path(path).name}" in reasons
                 for i, (path, text, which, _) in enumerate(names)}
        tries = {pool.submit(try_mutant, folder, number, all_mutants[number]): number
                 for number in sorted(named, key=named.get)}
        found = {}
        for done in concurrent.futures.as_completed(tries):
            number, killer = tries[done], done.result()
            mutant = all_mutants[number]
            unexplained += killer is None and not named[number]
            found[names[number]] = cells(killer)
            if options.table:
                write_table(found)
            said = "{} (suite {})".format(*killer) if killer else "**survived**"
            print(f"| {mutant.path.name}:{mutant.line + 1} `{mutant.text}` | {said} |", flush=True)
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
