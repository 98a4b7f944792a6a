# SPDX-License-Identifier: MIT
"""Builds attile_c.cu into one shared library for each kernel, measures the compiler, and loads the
library with ctypes. Plain Python."""
import concurrent.futures
import ctypes
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "bench" / "attile_c.cu"
TYPES = {"bf16": "__nv_bfloat16", "fp16": "__half", "fp32": "float",
         "e4m3": "__nv_fp8_e4m3", "e5m2": "__nv_fp8_e5m2"}
MASKS = {"full": "NoMask", "causal": "Causal", "window": "SlidingWindow"}
POLICIES = {"": "Plain", "dropout": "Dropout", "softcap": "Softcap", "alibi": "Alibi",
            "softcap_alibi_dropout": "SoftcapAlibiDropout", "documents": "Documents",
            "prefix": "Prefix", "parity": "Parity", "bias": "Bias",
            "bias_hrc_dropout": "BiasDropout", "softcap_bias": "SoftcapBias",
            "learned_bias": "LearnedBias",
            "key_padding": "KeyPadding", "blocks": "Blocks", "sink": "Sink", "earlier": "Earlier",
            "packed": "Packed", "packed_bias": "PackedBias", "packed_documents": "PackedDocuments",
            "cached": "Cached", "cached_tree": "CachedTree", "paged": "Paged",
            "paged_packed": "PagedPacked"}

# What a compiler needs for no kernel of ours: the floor of the compile table.
BASELINES = {
    "an empty kernel": "__global__ void empty() {}\n",
    "attile.cuh and an empty kernel": "#include <attile/attile.cuh>\n__global__ void empty() {}\n",
}


class BuildError(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One instantiation of attile's one-call forward, backward or decode."""

    d: int
    dv: int
    dtype: str
    mask: str
    direction: str
    in_order: bool = False  # DqMode::kInOrder
    policy: str = ""
    decode: bool = False  # `decode` in the place of `forward`
    inputs: tuple = ()  # the types of Q, K and V where they are not all `dtype`, which is O's
    promoted: bool = True  # false: Fp8Sums::kUnpromoted

    @property
    def name(self):
        dims = f"{self.d}" if self.d == self.dv else f"{self.d}/{self.dv}"
        order = " in order" if self.in_order else ""
        policy = f", {self.policy}" if self.policy else ""
        call = "decode" if self.decode else self.direction
        inputs = f" of {'/'.join(self.inputs)}" if self.inputs else ""
        sums = "" if self.promoted else " not promoted"
        return f"{call}{order} {self.dtype}{inputs}{sums} D {dims} {self.mask}{policy}"


def find_nvcc():
    """The path of nvcc; None where there is none."""
    named = os.environ.get("CUDACXX")
    return named or shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def architecture(major, minor):
    """The compute capability as nvcc names it; from 9.0 on with the features of that device alone
    (`a`), which Hopper's kernels need."""
    return f"{major}{minor}{'a' if major >= 9 else ''}"


def compile_flags(arch, device, include=ROOT / "include"):
    """For the code of `arch`, such as 80, on a device of the architecture `device`, such as 90a."""
    return ["-std=c++20", "-O3", "-Xcompiler=-fPIC,-fvisibility=hidden",
            f"-gencode=arch=compute_{arch},code=sm_{device}", f"-I{include}"]


def kernel_macros(kernel):
    return [f"-DATTILE_D={kernel.d}", f"-DATTILE_DV={kernel.dv}",
            f"-DATTILE_TYPE={TYPES[kernel.dtype]}", f"-DATTILE_MASK={MASKS[kernel.mask]}",
            f"-DATTILE_POLICY={POLICIES[kernel.policy]}",
            f"-DATTILE_DIRECTION=k{kernel.direction.capitalize()}",
            f"-DATTILE_DQ_MODE=k{'InOrder' if kernel.in_order else 'Accumulate'}",
            *(f"-DATTILE_{role}_TYPE={TYPES[kind]}"
              for role, kind in zip("QKV", kernel.inputs)),
            *([] if kernel.promoted else ["-DATTILE_FP8_SUMS=kUnpromoted"]),
            *(["-DATTILE_DECODE"] if kernel.decode else [])]


def source_hash(root=ROOT, include=None):
    """Of every header, those of `include` if given, and of attile_c.cu, by content."""
    digest = hashlib.sha256()
    include = include or root / "include"
    for path in sorted(include.rglob("*")) + [root / "bench" / "attile_c.cu"]:
        if path.is_file():
            name = path.relative_to(include if include in path.parents else root)
            digest.update(f"{name}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def cache_key(sources, nvcc_version, flags):
    """Names a built library: nothing that shapes it is left out. The flag that holds the path of
    the headers is: their content is in `sources`."""
    shaping = [flag for flag in flags if not flag.startswith("-I")]
    return hashlib.sha256(json.dumps([sources, nvcc_version, shaping]).encode()).hexdigest()[:20]


def run_measured(command, log):
    """Runs a compiler. Returns wall and CPU seconds of the process tree, and the largest memory
    of any one process in it (Linux reports no sum)."""
    start = time.perf_counter()
    with open(log, "w", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        text = pathlib.Path(log).read_text(encoding="utf-8", errors="replace")
        lines = [line for line in text.splitlines() if "error" in line] or text.splitlines()
        said = lines[0].replace(f"{ROOT}{os.sep}", "") if lines else "no message"
        raise BuildError(f"nvcc failed: {said}")
    return {"wall_s": time.perf_counter() - start, "cpu_s": usage.ru_utime + usage.ru_stime,
            "peak_mb": usage.ru_maxrss / 1024}


class Builder:
    """Libraries in `folder`, one subfolder for each content, of the headers in `include`."""

    def __init__(self, folder, nvcc, arch, device, include=ROOT / "include"):
        self.folder, self.nvcc = pathlib.Path(folder), nvcc
        self.flags = compile_flags(arch, device, include)
        self.folder.mkdir(parents=True, exist_ok=True)
        version = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True)
        self.version = version.stdout.strip().splitlines()[-1]
        self.sources = source_hash(include=include)

    def _compile(self, source, macros, target):
        target.mkdir(parents=True, exist_ok=True)
        made = target / "kernel.o"
        row = run_measured([self.nvcc, *self.flags, *macros, "-c", str(source), "-o", str(made)],
                           target / "log.txt")
        return {**row, "object_bytes": made.stat().st_size}

    def build(self, kernel, jobs=1, fresh=False):
        """The library of a kernel and what compiling it took. The link is not counted."""
        flags = self.flags + kernel_macros(kernel)
        target = self.folder / cache_key(self.sources, self.version, flags)
        library, measured = target / "kernel.so", target / "measured.json"
        if fresh or not measured.exists():
            row = self._compile(SOURCE, kernel_macros(kernel), target)
            run_measured([self.nvcc, "-shared", str(target / "kernel.o"), "-o", str(library)],
                         target / "link.txt")
            row = {"kernel": kernel.name, "jobs": jobs, **row}
            measured.write_text(json.dumps(row), encoding="utf-8")
        return library, json.loads(measured.read_text(encoding="utf-8"))

    def baselines(self):
        rows = []
        for name, text in BASELINES.items():
            target = self.folder / "baseline"
            target.mkdir(parents=True, exist_ok=True)
            source = target / "baseline.cu"
            source.write_text(text, encoding="utf-8")
            rows.append({"kernel": name, "jobs": 1, **self._compile(source, [], target)})
        return rows

    def build_all(self, kernels, jobs):
        """{kernel: (library, row) or the exception}."""
        def attempt(kernel):
            try:
                return self.build(kernel, jobs)
            except (BuildError, OSError) as error:
                return error

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            return dict(zip(kernels, pool.map(attempt, kernels)))


# ---- the C interface, as attile_c.cu declares it -------------------------------------------------


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p)] + [
        (f"{axis}_stride", ctypes.c_int64) for axis in ("batch", "head", "row")]


class Policies(ctypes.Structure):
    _fields_ = (
        [("bias", ctypes.c_void_p), ("dbias", ctypes.c_void_p)]
        + [(f"bias_{axis}_stride", ctypes.c_int64) for axis in ("batch", "head", "row", "col")]
        + [(name, ctypes.c_void_p) for name in (
            "slopes", "sinks", "dsinks", "earlier_o", "earlier_lse", "documents", "key_lengths",
            "table")]
        + [(f"{full}{side}_{what}", ctypes.c_void_p) for side in ("kv", "q")
           for full in ("", "full_") for what in ("num_blocks", "indices")]
        + [("ancestors", ctypes.c_void_p)]
        + [(name, ctypes.c_uint64) for name in ("seed", "offset")]
        + [(name, ctypes.c_float) for name in ("dropout", "softcap")]
        + [(name, ctypes.c_int32) for name in ("prefix", "window_left", "window_right", "blocks",
                                               "sequences")])


class Cache(ctypes.Structure):
    _fields_ = ([(name, ctypes.c_void_p) for name in ("seqused_k", "page_table", "q_scale",
                                                      "k_scale", "v_scale")]
                + [(name, ctypes.c_int32) for name in ("pages", "page_size", "pages_per_sequence",
                                                       "splits")])


class Problem(ctypes.Structure):
    _fields_ = (
        [(name, Tensor) for name in ("q", "k", "v", "o", "dout", "dq", "dk", "dv")]
        + [("lse", ctypes.c_void_p), ("workspace", ctypes.c_void_p),
           ("workspace_bytes", ctypes.c_size_t), ("stream", ctypes.c_void_p),
           ("policies", Policies), ("cache", Cache), ("cu_seqlens", ctypes.c_void_p)]
        + [(name, ctypes.c_int32) for name in ("batch", "q_heads", "kv_heads", "q_len", "kv_len",
                                               "total")]
        + [("scale", ctypes.c_float)])


class Library:
    """One kernel. Errors raise RuntimeError with the library's own sentence."""

    def __init__(self, path):
        self._library = ctypes.CDLL(str(path))
        pointer = ctypes.POINTER(Problem)
        self._library.attile_problem_bytes.restype = ctypes.c_size_t
        self._library.attile_check.argtypes = [pointer]
        self._library.attile_check.restype = ctypes.c_char_p
        self._library.attile_workspace.argtypes = [pointer, ctypes.POINTER(ctypes.c_size_t)]
        self._library.attile_prepare.argtypes = [pointer, ctypes.POINTER(ctypes.c_size_t)]
        self._library.attile_reset.argtypes = [pointer]
        self._library.attile_run.argtypes = [pointer]
        self._library.attile_error.argtypes = [ctypes.c_int]
        self._library.attile_error.restype = ctypes.c_char_p
        if self._library.attile_problem_bytes() != ctypes.sizeof(Problem):
            raise RuntimeError(f"{path} was built with another AttileProblem")

    def check(self, problem):
        """Why the kernel would refuse; empty when it would not."""
        return self._library.attile_check(ctypes.byref(problem)).decode()

    def workspace_bytes(self, problem):
        size = ctypes.c_size_t(0)
        self._demand(self._library.attile_workspace(ctypes.byref(problem), ctypes.byref(size)))
        return size.value

    def table_bytes(self, problem):
        """The size of the mask's table, for a problem that has none yet; 0: the mask needs none."""
        size = ctypes.c_size_t(0)
        self._demand(self._library.attile_prepare(ctypes.byref(problem), ctypes.byref(size)))
        return size.value

    def prepare(self, problem, table_bytes):
        """Writes the mask's table to the memory that the problem names."""
        size = ctypes.c_size_t(table_bytes)
        self._demand(self._library.attile_prepare(ctypes.byref(problem), ctypes.byref(size)))

    def reset(self, problem):
        """Makes the scratch memory of `decode` ready: once, before the first run."""
        self._demand(self._library.attile_reset(ctypes.byref(problem)))

    def runner(self, problem):
        """A call without arguments, with as little work on the host as ctypes allows."""
        run, reference = self._library.attile_run, ctypes.byref(problem)

        def call():
            if error := run(reference):
                self._demand(error)

        return call

    def _demand(self, error):
        if error:
            raise RuntimeError(f"attile: {self._library.attile_error(error).decode()}")
