# SPDX-License-Identifier: MIT
"""Compiles a variant of the kernels when it is first asked for, and keeps it in a cache.

A variant is one shared library with a C interface (kernel.h, append.h): one element type, head
dimension, set of policies and direction. Its name in the cache is a hash of all that shapes it: the
headers, the variant, the compiler and its flags, and the machine that it is for.
"""
import concurrent.futures
import ctypes
import fcntl
import functools
import hashlib
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
from typing import NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
TYPES = {"fp32": "float", "fp16": "__half", "bf16": "__nv_bfloat16"}
MASKS = {"": None, "causal": "attile::Causal", "top_left": "attile::CausalTopLeft",
         "window": "attile::SlidingWindow"}
# Where keys of a cache are, one piece for each sequence or pages, with padded or packed queries.
CACHES = {"cached": "attile::Cached", "cached_packed": "attile::CachedPacked",
          "paged": "attile::Paged", "paged_packed": "attile::PagedPacked"}
SEQUENCES = {"": None, "padded": "attile::Padded", "packed": "attile::Packed", **CACHES}
# Head dimensions of the kernels, of Q and K and of V; a problem runs on the first that holds it.
DIMS = ((32, 32), (64, 64), (96, 96), (128, 128), (192, 128), (192, 192), (256, 256))


class BuildError(RuntimeError):
    """A compiler is missing, or has failed."""


class Variant(NamedTuple):
    arch: str  # as nvcc names it, e.g. "90a"; "" is the CPU executor
    dtype: str  # a key of TYPES
    d: int  # 0 on the CPU, whose executor takes any head_dim
    dv: int
    mask: str  # a key of MASKS
    softcap: bool
    alibi: bool
    bias: str  # the bias's element type, "" for none
    bias_gradient: bool  # backward: the bias's gradient is wanted
    dropout: bool
    sequences: str  # a key of SEQUENCES
    sinks: str  # the sinks' element type, "" for none
    backward: bool
    in_order: bool  # backward: the same bits at every run

    @property
    def direction(self):
        """The word for the pass: of keys in a cache it is `decode`."""
        return "decode" if self.sequences in CACHES else "backward" if self.backward else "forward"

    @property
    def name(self):
        """What a person reads: 'forward fp16, D 64, causal, dropout'."""
        words = [f"{self.direction} {self.dtype}"]
        if self.d:
            words.append(f"D {self.d}" + (f", Dv {self.dv}" if self.dv != self.d else ""))
        words += [self.mask] if self.mask else []
        words += [word for word in ("softcap", "alibi", "dropout") if getattr(self, word)]
        if self.bias:
            words.append(f"{'learned ' if self.bias_gradient else ''}{self.bias} bias")
        words += [self.sequences.replace("_", " ")] if self.sequences else []
        words += [f"{self.sinks} sinks"] if self.sinks else []
        words += ["in order"] if self.in_order else []
        return ", ".join(words)

    @property
    def policies(self):
        """The policies as C++ types; no modifier, no mask and so on are left out."""
        modifiers = []
        if self.softcap:
            modifiers.append("attile::Softcap")
        if self.alibi:
            modifiers.append("attile::Alibi")
        if self.bias:
            kind = "LearnedBias" if self.bias_gradient else "AdditiveBias"
            modifiers.append(f"attile::{kind}<{TYPES[self.bias]}>")
        joined = None
        for modifier in modifiers:
            joined = f"attile::Then<{joined}, {modifier}>" if joined else modifier
        policies = [MASKS[self.mask], joined, "attile::PhiloxDropout" if self.dropout else None,
                    SEQUENCES[self.sequences],
                    f"attile::Sink<{TYPES[self.sinks]}>" if self.sinks else None]
        return ", ".join(policy for policy in policies if policy) or "attile::NoMask"

    @property
    def source(self):
        return (f"// {self.name}\n"
                f"#define ATTILE_TORCH_TYPE {TYPES[self.dtype]}\n"
                f"#define ATTILE_TORCH_D {self.d}\n"
                f"#define ATTILE_TORCH_DV {self.dv}\n"
                f"#define ATTILE_TORCH_POLICIES {self.policies}\n"
                f"#define ATTILE_TORCH_DIRECTION {'kBackward' if self.backward else 'kForward'}\n"
                f"#define ATTILE_TORCH_MODE {'kInOrder' if self.in_order else 'kAccumulate'}\n"
                "#include <kernel.h>\n")


class AppendVariant(NamedTuple):
    """A variant of `append`, of any head_dim."""
    arch: str
    dtype: str
    sequences: str  # a key of CACHES
    rotary: str  # the element type of the tables, "" for no rotary embedding

    @property
    def name(self):
        """What a person reads: 'append bf16, paged packed, fp32 rotary'."""
        return f"append {self.dtype}, {self.sequences.replace('_', ' ')}" + (
            f", {self.rotary} rotary" if self.rotary else "")

    @property
    def source(self):
        rotary = f"attile::Rotary<{TYPES[self.rotary]}>" if self.rotary else "attile::NoRotary"
        return (f"// {self.name}\n"
                f"#define ATTILE_TORCH_TYPE {TYPES[self.dtype]}\n"
                f"#define ATTILE_TORCH_SEQUENCES {CACHES[self.sequences]}\n"
                f"#define ATTILE_TORCH_ROTARY {rotary}\n"
                "#include <append.h>\n")


def kernel_dims(head_dim, head_dim_v):
    """(D, Dv) of the kernel that a problem runs on; the largest one refuses what is larger."""
    for d, dv in DIMS:
        if head_dim <= d and head_dim_v <= dv:
            return d, dv
    return DIMS[-1]


# ---- what the compilers need --------------------------------------------------------------------


@functools.cache
def include_folder():
    """The folder of the library's headers: beside this file where pip has put them, else that of
    the repository."""
    for folder in (HERE / "include", HERE.parents[2] / "include"):
        if (folder / "attile" / "attile.cuh").is_file():
            return folder
    raise BuildError("attile_torch finds no headers: install it by pip from the repository")


@functools.cache
def cache_folder():
    named = os.environ.get("ATTILE_TORCH_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    folder = pathlib.Path(named) if named else pathlib.Path(base) / "attile_torch"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def toolkit_folders():
    """Where the CUDA toolkit may be."""
    named = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    nvcc = shutil.which("nvcc")
    beside = [str(pathlib.Path(nvcc).resolve().parents[1])] if nvcc else []
    return [pathlib.Path(x) for x in named + beside + ["/usr/local/cuda", "/opt/cuda"] if x]


@functools.cache
def nvcc_path():
    named = os.environ.get("CUDACXX")
    if named:
        return named
    for folder in toolkit_folders():
        if (folder / "bin" / "nvcc").is_file():
            return str(folder / "bin" / "nvcc")
    raise BuildError("attile_torch compiles kernels at first use and finds no nvcc: install the "
                     "CUDA toolkit and set CUDA_HOME to its folder, or CUDACXX to nvcc")


@functools.cache
def cuda_headers():
    """The folder of cuda_fp16.h, which the CPU executor's types come from: the toolkit's, or that
    of a package that PyTorch depends on."""
    folders = [folder / "include" for folder in toolkit_folders()]
    for path in sys.path:
        folders += sorted(pathlib.Path(path or ".").glob("nvidia/*/include"))
    for folder in folders:
        if (folder / "cuda_fp16.h").is_file() and (folder / "driver_types.h").is_file():
            return folder
    raise BuildError("attile_torch compiles its CPU executor at first use and finds no "
                     "cuda_fp16.h: set CUDA_HOME, or install the package nvidia-cuda-runtime")


@functools.cache
def _sources():
    """A hash of the headers' contents."""
    digest = hashlib.sha256()
    for path in sorted(HERE.glob("*.h")):
        digest.update(path.read_bytes())
    include = include_folder()
    for path in sorted((include / "attile").rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(include)}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


@functools.cache
def _version(compiler):
    try:
        done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(f"attile_torch cannot run {compiler}: {error}") from error
    return done.stdout


@functools.cache
def _machine():
    """What -march=native depends on."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        flags = platform.processor()
    return platform.machine() + flags


def _compiler(arch):
    """(command, flags that shape the result, flags that name folders, the machine)."""
    shaping = ["-std=c++20", "-O3", "-shared"]
    folders = [f"-I{include_folder()}", f"-I{HERE}"]
    if arch:
        shaping += ["-Xcompiler=-fPIC,-fvisibility=hidden", "-cudart=static",
                    f"-gencode=arch=compute_{arch},code=sm_{arch}"]
        return nvcc_path(), shaping, folders, ""
    shaping += ["-fPIC", "-fvisibility=hidden", "-march=native", "-pthread",
                *os.environ.get("ATTILE_TORCH_CXXFLAGS", "").split()]
    return (os.environ.get("CXX") or "g++", shaping,
            folders + ["-isystem", str(cuda_headers())], _machine())


def _path(variant):
    command, shaping, _, machine = _compiler(variant.arch)
    key = "\0".join([_sources(), variant.source, _version(command), *shaping, machine])
    return cache_folder() / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.so"


# ---- compiling ----------------------------------------------------------------------------------


def _say(text):
    # One write, as two threads may compile at once.
    print(f"attile_torch: {text}\n", end="", file=sys.stderr, flush=True)


def _compile(variant, path):
    """Compiles `variant` to `path`, which appears when it is whole."""
    command, shaping, folders, _ = _compiler(variant.arch)
    where = f"sm_{variant.arch}" if variant.arch else "the CPU"
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="build_") as folder:
        source = pathlib.Path(folder) / f"variant.{'cu' if variant.arch else 'cpp'}"
        made = pathlib.Path(folder) / "variant.so"
        source.write_text(variant.source, encoding="utf-8")
        _say(f"compiling for {where}, once: {variant.name}")
        done = subprocess.run([command, *shaping, *folders, str(source), "-o", str(made)],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            log = path.with_suffix(".log")
            log.write_text(done.stdout + done.stderr, encoding="utf-8")
            lines = [line for line in (done.stderr + done.stdout).splitlines() if "error" in line]
            raise BuildError(f"attile_torch could not compile {variant.name}: "
                             f"{lines[0] if lines else 'no message'} (all of it: {log})")
        os.replace(made, path)


def _ensure(variant):
    """Returns the path of the variant's library, which is compiled where it is not cached. Of
    several processes that want it one compiles it."""
    path = _path(variant)
    if not path.exists():
        with open(path.with_suffix(".lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                _compile(variant, path)
    return path


class Library:
    """A variant's functions. A call is a `bytes` object that `_call.py` has packed."""

    def __init__(self, variant, call_bytes):
        library = ctypes.CDLL(str(_ensure(variant)))
        self.run = library.attile_torch_run
        self.run.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64]
        self.workspace = library.attile_torch_workspace
        self.workspace.argtypes = [ctypes.c_char_p]
        self.workspace.restype = ctypes.c_int64
        self.capture = library.attile_torch_capture
        self.capture.argtypes = [ctypes.c_int64]
        self.capture.restype = ctypes.c_uint64
        self._check = library.attile_torch_check
        self._check.argtypes = [ctypes.c_char_p]
        self._check.restype = ctypes.c_char_p
        self._error = library.attile_torch_error
        self._error.restype = ctypes.c_char_p
        library.attile_torch_call_bytes.restype = ctypes.c_int64
        if library.attile_torch_call_bytes() != call_bytes:
            raise BuildError(f"attile_torch: the words of a call of {variant.name} differ in C "
                             "and in Python")

    def explain(self, call, error):
        """Raises what a call that has failed with `error` deserves: ValueError, with the library's
        own sentence, where it refuses the arguments."""
        why = self._check(call).decode()
        if why:
            raise ValueError(why)
        raise RuntimeError(f"attile: {self._error(error).decode()}")


_pool = concurrent.futures.ThreadPoolExecutor(max(2, min(16, os.cpu_count() or 2)))
_pending = {}
_pending_lock = threading.Lock()


def request(variant, call_bytes):
    """Begins to make a variant's library in the background. Returns a future."""
    with _pending_lock:
        future = _pending.get(variant)
        if future is None or (future.done() and future.exception() is not None):
            future = _pending[variant] = _pool.submit(Library, variant, call_bytes)
    return future
