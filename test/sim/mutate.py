#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Takes one barrier, fence or wait out of a kernel at a time, or one call of a function that wraps
one, and sees whether the suite on the simulated machine notices.

  mutate.py                      all of them: hours
  mutate.py --only flash1        those in files whose path has this in it
  mutate.py --list               names them

Prints a Markdown table: each mutant with the report that killed it, or `survived`. A survivor is a
barrier that nothing needs, or has its reason beside it in docs/simulator.md. Exit code 1: some
survived that are not named there."""
import argparse
import concurrent.futures
import dataclasses
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
HOPPER = ("sm90",)
PROGRAMS = ("cluster_ring",)  # that are no suite: test/sim/NAME.cu
FOLDERS = {"include/attile/tile": PROGRAMS + PORTABLE + MATRIX + HOPPER,
           "include/attile/kernel": PORTABLE + MATRIX + HOPPER,
           "include/attile/kernel/portable": PORTABLE,
           "include/attile/kernel/sm80": MATRIX,
           "include/attile/kernel/sm90": HOPPER}
# What orders threads or copies: the machine's functions, and those of attile that wrap one of them,
# which are mutated where they are called, too.
ORDERS = (r"(?:(?:warp_|computing_|cluster_)?barrier|barrier_arrive|barrier_any|cluster_arrive"
          r"|cluster_wait|async_copy_commit|async_copy_wait|mbarrier_\w+|fence_async_proxy"
          r"|bulk_commit|bulk_wait|bulk_wait_read|wgmma_fence|wgmma_commit|wgmma_wait"
          r"|sync|sync_rows|wait_product|wait|release|pass|drain|(?:await|arrive|pass|tell)_\w+)")
CALLED = r"(?:\w+(?:\([^;()]*\))?(?:\.|::|->))*(?:template )?"  # of what: `arch::`, `smem.q().`
ARGUMENTS = r"(?:<[^;<>]*>)?\([^;]*\)"
# A statement that is such a call is taken out whole.
STATEMENT = re.compile(
    rf"^\s*((?:if (?:constexpr )?\([^;{{}}]*\) )?(?:{CALLED}{ORDERS}{ARGUMENTS}"
    rf"|static_cast<void>\({CALLED}(?:wait|announce)\([^;]*\)\));)")
# A ring's tile that is waited for is taken without.
TILE = re.compile(rf"= ({CALLED}wait\(([^;]*)\));")
# Who votes at a barrier goes by its own vote.
VOTE = re.compile(r"return (arch::barrier_any\([^;]*, (\w+)\));")
# Every other call is one that has been overlooked here, but for those in a function's head.
CALL = re.compile(rf"\b{ORDERS}{ARGUMENTS}")
SEEDS = (1, 2, 3)
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
                    wait, place = match.groups()
                    stage = "0" if place == "{}" else f"({place}).stage"
                    tile = wait[:wait.rindex("wait(")] + f"tile({stage})"
                    found.append(Mutant(relative, i, wait, tile))
                elif match := VOTE.search(code):
                    found.append(Mutant(relative, i, *match.groups()))
                elif CALL.search(code) and "ATTILE_DEVICE" not in code:
                    raise SystemExit(f"{relative}:{i + 1}: no mutant for {code.strip()}")
    return found


def compile_flags(include):
    return ["-std=c++20", "-O2", "-g1", "-fsanitize=thread",
            "-fno-optimize-sibling-calls", "--param",
            "tsan-instrument-func-entry-exit=0", "-DATTILE_TEST_FULL=1", f"-I{ROOT}/test/sim",
            f"-I{include}", f"-I{ROOT}/test", "-isystem", "/usr/local/cuda/include",
            "-Wno-unknown-pragmas"]


def run(words, seconds):
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return 1, "did not end"
    return done.returncode, done.stdout + done.stderr


def reason(mutant, text):
    """What the suite says against it; the end of mutate.py where it says nothing that counts."""
    if match := KILLED.search(text):
        return match.group(1)
    if any(word in text for word in ("failed: ", "did not end", ", and not ")):
        return text.rstrip().splitlines()[-1]
    raise SystemExit(f"{mutant.name}: the suite ended without a verdict:\n{text[-2000:]}")


def try_mutant(mutant, objects):
    """What kills it, or None."""
    with tempfile.TemporaryDirectory() as folder:
        include = pathlib.Path(folder) / "include"
        shutil.copytree(ROOT / "include", include)
        target = pathlib.Path(folder) / mutant.path
        lines = target.read_text(encoding="utf-8").splitlines(keepends=True)
        lines[mutant.line] = lines[mutant.line].replace(mutant.text, mutant.instead, 1)
        target.write_text("".join(lines), encoding="utf-8")
        for suite in FOLDERS[mutant.path.parent.as_posix()]:
            program = pathlib.Path(folder) / suite
            source, needs = f"suite_{suite}.cpp", objects
            options = ["--abort", "-r", "compact"]
            if suite in PROGRAMS:
                source, options = f"{suite}.cu", [f"{program}.bin"]
                needs = [o for o in objects if "attile_sim.dir" in o]
            code, text = run(["g++", *compile_flags(include), "-x", "c++",
                              str(ROOT / "test/sim" / source), "-x", "none", *needs,
                              "-lboost_context", "-ldl", "-lpthread", "-o", str(program)], 600)
            if code != 0:
                raise SystemExit(f"{mutant.name} does not compile:\n{text}")
            for seed in SEEDS:
                code, text = run(["env", f"ATTILE_SIM_SEED={seed}", str(program), *options], 900)
                if code != 0:
                    return f"{reason(mutant, text)} (suite {suite}, seed {seed})"
    return None


def main(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="part of a path")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--build", default=str(ROOT / "build/test"),
                        help="a build folder in which the targets test_sim_* were made")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(argv)
    all_mutants = mutants(options.only)
    if options.list:
        for mutant in all_mutants:
            print(f"{mutant.name}  {mutant.text}")
        return 0
    build = pathlib.Path(options.build) / "test"
    objects = [str(p) for p in sorted(build.glob("sim/CMakeFiles/attile_sim.dir/*.o"))]
    objects += [str(p) for kind in ("main", "host_main")
                for p in build.glob(f"CMakeFiles/attile_test_{kind}.dir/support/*.o")]
    objects += [str(p) for p in build.glob("libattile_test_yardstick.a")]
    if not objects:
        raise SystemExit(f"mutate.py needs the targets test_sim_* built in {options.build}")
    reasons = (ROOT / "docs/simulator.md").read_text(encoding="utf-8")
    print("| mutant: without | killed by |\n|---|---|", flush=True)
    unexplained = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for mutant, killer in zip(all_mutants,
                                  pool.map(lambda m: try_mutant(m, objects), all_mutants)):
            named = f"`{mutant.text}` in {mutant.path.name}" in reasons
            unexplained += killer is None and not named
            print(f"| {mutant.path.name}:{mutant.line + 1} `{mutant.text}` "
                  f"| {killer or '**survived**'} |", flush=True)
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
