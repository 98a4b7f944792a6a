#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds the simulated machine's counters against those of Nsight Compute, for each launch of the
same program.

  compare_counters.py GPU_PROGRAM SIM_PROGRAM

Sectors have to agree within 1 %, bank conflicts within 1 % of the wavefronts of their direction:
those of the instructions, without what the pipe repeats for reasons of its own.
Wavefronts themselves are shown only: nvcc may read from shared memory less often than the source
does, or more (test/sim/README.md). A kernel that keeps registers in local memory cannot be
compared, and fails: lts counts that memory's sectors too, and the simulated machine has no
registers to keep.
Exit code 77: there is no GPU, or no ncu that may read its counters."""
import csv
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
BOUND = 0.01
SECTORS = [
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "lts__t_sectors_srcunit_tex_op_read.sum",
    "lts__t_sectors_srcunit_tex_op_write.sum",
]
LOCAL = [f"l1tex__t_sectors_pipe_lsu_mem_local_op_{op}.sum" for op in ("ld", "st")]
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
# The wavefronts that the instructions' addresses ask for. The pipe has more of them, up to 2 %
# and not the same number twice, which it counts among the conflicts.
INSTRUCTIONS = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
SHARED = [name.format(op) for name in (WAVEFRONTS, CONFLICTS) for op in ("ld", "st")]
MORE = [INSTRUCTIONS.format(op) for op in ("ld", "st")]


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def run(words, **more):
    return subprocess.run(words, capture_output=True, text=True, check=False, **more)


def simulated(program):
    """{launch: {metric: value}}"""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "counters"
        done = run([program], env={**os.environ, "ATTILE_SIM_COUNTERS": str(path)})
        if done.returncode != 0:
            sys.exit(f"{program} failed:\n{done.stdout}{done.stderr}")
        lines = path.read_text(encoding="utf-8").splitlines()
    found = {}
    for launch, metric, value in (x.split() for x in lines if not x.startswith("#")):
        found.setdefault(int(launch), {})[metric] = float(value)
    return found


def measured(ncu, program):
    """The same, and {launch: kernel}."""
    done = run([ncu, "--csv", "--metrics", ",".join(LOCAL + SECTORS + SHARED + MORE), program])
    text = done.stdout + done.stderr
    if "ERR_NVGPUCTRPERM" in text:
        skip("ncu may not read the GPU's counters")
    if done.returncode != 0:
        sys.exit(f"{ncu} failed:\n{text}")
    lines = done.stdout.splitlines()
    header = next(i for i, line in enumerate(lines) if line.startswith('"ID"'))
    found, kernels = {}, {}
    for row in csv.DictReader(lines[header:]):
        launch = int(row["ID"])
        kernels[launch] = row["Kernel Name"].split("<")[0].split("(")[0].split("::")[-1]
        try:
            value = float(row["Metric Value"].replace(",", ""))
        except ValueError:
            continue  # this GPU does not have it
        found.setdefault(launch, {})[row["Metric Name"]] = value
    for metrics in found.values():
        for op in ("ld", "st"):
            needed = [name.format(op) for name in (INSTRUCTIONS, WAVEFRONTS, CONFLICTS)]
            if all(name in metrics for name in needed):
                asked, had, conflicts = (metrics[name] for name in needed)
                metrics[CONFLICTS.format(op)] = conflicts - (had - asked)
            else:
                metrics.pop(CONFLICTS.format(op), None)
    return found, kernels


def main(argv):
    if len(argv) != 2:
        sys.exit(__doc__)
    gpu_program, sim_program = (os.path.abspath(path) for path in argv)
    if run([gpu_program]).returncode == SKIPPED:
        skip("no GPU")
    ncu = shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin")
    if ncu is None:
        skip("no ncu")
    sim = simulated(sim_program)
    gpu, kernels = measured(ncu, gpu_program)
    if sorted(sim) != sorted(gpu):
        sys.exit(f"{len(sim)} simulated launches, {len(gpu)} of the GPU")
    wrong = 0
    for launch, kernel in sorted(kernels.items()):
        print(f"{launch} {kernel}")
        for metric in LOCAL + SECTORS + SHARED:
            if metric not in gpu[launch]:
                print(f"  {metric:<64} not measured")
                wrong += 1
                continue
            if metric in LOCAL:
                if gpu[launch][metric] != 0:
                    print(f"  {metric:<64} ncu {gpu[launch][metric]:>10.0f}  NOT 0: registers "
                          "kept in memory, which lts counts")
                    wrong += 1
                continue
            expected, value = gpu[launch][metric], sim[launch][metric]
            if metric in SHARED[:2]:
                verdict = ""
            else:
                whole = expected
                for op in ("ld", "st"):
                    if metric == CONFLICTS.format(op):
                        whole = gpu[launch][WAVEFRONTS.format(op)]
                agrees = abs(value - expected) <= BOUND * whole
                wrong += not agrees
                verdict = "agrees" if agrees else "DIFFERS"
            print(f"  {metric:<64} ncu {expected:>10.0f}  simulated {value:>10.0f}  {verdict}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
