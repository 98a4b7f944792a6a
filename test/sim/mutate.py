#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Takes one barrier, fence or wait out of a kernel at a time, or one call of a function that wraps
one, and sees whether the suite on the simulated machine notices.

  mutate.py                      all of them
  mutate.py --table              and writes their table into mutants.md
  mutate.py --only flash1        those in files whose path has this in it
  mutate.py --list               names them: the ctest mutants.list

Prints a Markdown table: each mutant with the report that killed it, or `survived`. A survivor is a
barrier that nothing needs, or has its reason beside it in test/sim/README.md. Exit code 1: some
survived that are not named there."""
import argparse
import concurrent.futures
import dataclasses
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
           "include/attile/kernel/forward": PORTABLE + MATRIX + HOPPER,
           "include/attile/kernel/backward": PORTABLE + MATRIX + HOPPER,
           "include/attile/kernel/portable": PORTABLE,
           "include/attile/kernel/decode": DECODE,
           "include/attile/kernel/sm80": MATRIX,
           "include/attile/kernel/sm80/decode.cuh": DECODE,
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
          r"|producer_(?:acquire|commit)"
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
TABLE = "| without | reported as | suite |\n|---|---|---|\n"  # the head of that of mutants.md
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
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


def table_row(mutant, killer):
    """A line of mutants.md: the report's kind is enough there."""
    said, suite = killer or ("**survived**", "")
    is_report = KILLED.match(f"sim: {said}") or not killer
    kind = said.partition(":")[0] if is_report else "wrong values"
    return f"| {mutant.path.name}: `{mutant.text}` | {kind} | {suite} |"


def write_table(rows):
    """Replaces the rows of mutants.md, in the order of the sources."""
    path = ROOT / "test/sim/mutants.md"
    text = path.read_text(encoding="utf-8")
    end = text.index(TABLE) + len(TABLE)
    path.write_text(text[:end] + "".join(row + "\n" for row in rows), encoding="utf-8")


def ordinal(mutant, all_mutants):
    """`the first`, `the second`, ... of those with that text in its file."""
    same = [m for m in all_mutants if m.path == mutant.path and m.text == mutant.text]
    return ORDINALS[same.index(mutant)]


def main(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="part of a path")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--table", action="store_true",
                        help="all mutants, whose table in mutants.md is then written anew")
    parser.add_argument("--build", default=str(ROOT / "build/test"),
                        help="a build folder in which the targets test_sim_* were made")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(argv)
    if options.table and options.only:
        parser.error("--table is of all mutants")
    all_mutants = mutants(options.only)
    if options.list:
        for mutant in all_mutants:
            print(f"{mutant.name}  {mutant.text}")
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
        named = {number: f"the {ordinal(m, all_mutants)} `{m.text}` in {m.path.name}" in reasons
                 for number, m in enumerate(all_mutants)}
        tries = {pool.submit(try_mutant, folder, number, all_mutants[number]): number
                 for number in sorted(named, key=named.get)}
        rows = {}
        for done in concurrent.futures.as_completed(tries):
            number, killer = tries[done], done.result()
            mutant = all_mutants[number]
            unexplained += killer is None and not named[number]
            rows[number] = table_row(mutant, killer)
            said = "{} (suite {})".format(*killer) if killer else "**survived**"
            print(f"| {mutant.path.name}:{mutant.line + 1} `{mutant.text}` | {said} |", flush=True)
    if options.table:
        write_table([rows[number] for number in sorted(rows)])
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
