#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains GPT-2 of Hugging Face transformers from scratch, its attention computed as you choose.

    python examples/gpt2/train.py --attention attile

The model comes from a config and the text from Python's own sources, or from --text: nothing is
downloaded. With --checkpoint DIR a run that was stopped goes on when the same command is given
again. Exit codes: 0 done, 1 it could not run, 2 a wrong option, 3 out of memory, 130 stopped.
"""
import argparse
import contextlib
import functools
import hashlib
import json
import math
import os
import pathlib
import signal
import sys
import sysconfig
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

MODELS = {"tiny": (2, 64, 4), "small": (12, 768, 12), "medium": (24, 1024, 16)}
# What computes attention: how transformers calls it, and PyTorch's backend where one is forced.
ATTENTIONS = {
    "eager": ("eager", None),
    "sdpa": ("sdpa", None),
    "sdpa-flash": ("sdpa", SDPBackend.FLASH_ATTENTION),
    "sdpa-cudnn": ("sdpa", SDPBackend.CUDNN_ATTENTION),
    "sdpa-efficient": ("sdpa", SDPBackend.EFFICIENT_ATTENTION),
    "sdpa-math": ("sdpa", SDPBackend.MATH),
    "attile": ("attile", None),
}
END = 256  # the token after each file; the tokens before it are the bytes
OUT_OF_MEMORY, STOPPED = 3, 130
# Options that a resumed run may change: no loss depends on them.
FREE = ("text", "report_every", "results", "checkpoint", "checkpoint_every")


class Refused(Exception):
    """The run is impossible; its text is one sentence for the user."""


# ---- options -------------------------------------------------------------------------------------


def at_least(low, kind=int):
    def parse(word):
        value = kind(word)
        if not value >= low:
            raise argparse.ArgumentTypeError(f"{word} is below {low}")
        return value
    return parse


def probability(word):
    value = float(word)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{word} is not in [0, 1)")
    return value


def parse_options(arguments):
    parser = argparse.ArgumentParser(
        prog="train.py", description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add, count = parser.add_argument, at_least(1)
    add("--attention", choices=ATTENTIONS, default="attile", help="what computes attention; sdpa "
        "is PyTorch's own choice of the backends that the other names force")
    add("--model", choices=MODELS, default="small", help="124 or 355 million parameters; tiny is "
        "for tests")
    add("--seq-len", type=at_least(2), default=1024, help="tokens of a sequence; above 1024 the "
        "table of positions grows")
    add("--batch", type=count, default=8, help="sequences of a step")
    add("--steps", type=count, default=300)
    add("--text", type=pathlib.Path, nargs="+", metavar="FILE", help="text to learn, byte by byte "
        "(default: the sources of Python's standard library)")
    add("--seed", type=at_least(0), default=1, help="of weights, dropout and the order of the text")
    add("--dropout", type=probability, default=0.1, help="of attention, residuals and embeddings")
    add("--lr", type=at_least(0, float), default=6e-4, help="the highest learning rate")
    add("--warmup", type=at_least(0), default=30, help="steps in which the learning rate rises; "
        "then it falls as a cosine to a tenth")
    add("--precision", choices=("bf16", "fp32"), default="bf16", help="bf16: by torch.autocast, "
        "weights and optimizer stay fp32")
    add("--optimizer", choices=("fused", "plain"), default="fused", help="AdamW: one kernel, or "
        "PyTorch's default of some")
    add("--compile", action="store_true", help="run the model through torch.compile")
    add("--vocab-size", type=at_least(END + 1), default=50257, help="GPT-2's, so that time is "
        "GPT-2's, though bytes need 257")
    add("--reverse-batches", action="store_true", help="the sequences of each batch in reverse "
        "order: the same mathematics, summed in another order")
    add("--deterministic", action="store_true", help="the same bits at every run on a GPU")
    add("--report-every", type=count, default=10, help="steps from one line of progress to the "
        "next")
    add("--results", type=pathlib.Path, metavar="FILE", help="where losses, times and memory go, "
        "a JSON object a line")
    add("--checkpoint", type=pathlib.Path, metavar="DIR", help="where the run's state is kept: "
        "the same command goes on from there")
    add("--checkpoint-every", type=count, default=100, help="steps from one checkpoint to the next")
    return parser.parse_args(arguments)


# ---- text ----------------------------------------------------------------------------------------


def standard_library():
    """The sources of Python's standard library without its tests; the documentation that help()
    shows is among them."""
    root = pathlib.Path(sysconfig.get_path("stdlib"))
    skipped = {"site-packages", "dist-packages", "test", "tests", "idle_test"}
    found = [path.relative_to(root) for path in root.rglob("*.py")]
    found = sorted(path for path in found if not skipped.intersection(path.parts))
    if not found:
        raise Refused(f"{root} has no sources of Python's standard library: name a text by --text")
    return [root / path for path in found]


def read_tokens(files):
    """The bytes of all files, with END after each, as int16."""
    parts = []
    for path in files or standard_library():
        try:
            data = path.read_bytes()
        except OSError as error:
            raise Refused(f"cannot read the text {path}: {error.strerror}") from error
        if data:
            parts += [torch.frombuffer(bytearray(data), dtype=torch.uint8).to(torch.int16),
                      torch.tensor([END], dtype=torch.int16)]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int16)


class Text:
    """Batches of sequences. Which ones a step has, the seed and the step alone decide: each epoch
    has every sequence once, in an order of its own."""

    def __init__(self, tokens, options, device):
        self.options = options
        self.count = tokens.numel() // options.seq_len
        self.tokens = tokens.numel()
        if self.count < options.batch:
            raise Refused(
                f"the text has {self.tokens:,} tokens, too few for {options.batch} sequences of "
                f"{options.seq_len:,}: name a longer one by --text, or shorten --batch or "
                "--seq-len")
        self.digest = hashlib.sha256(tokens.numpy()).hexdigest()
        whole = tokens[:self.count * options.seq_len].to(device)
        self.sequences = whole.view(self.count, options.seq_len)

    @functools.lru_cache(maxsize=2)
    def order(self, epoch):
        """The numbers of all sequences, on the device: a step copies nothing to it."""
        generator = torch.Generator().manual_seed(self.options.seed * 1_000_003 + epoch)
        return torch.randperm(self.count, generator=generator).to(self.sequences.device)

    def batch(self, step):
        """The token ids of a step, (batch, seq_len)."""
        epoch, place = divmod(step * self.options.batch, self.count)
        numbers = self.order(epoch)[place:place + self.options.batch]
        missing = self.options.batch - numbers.numel()
        if missing:  # a batch is no longer than an epoch
            numbers = torch.cat([numbers, self.order(epoch + 1)[:missing]])
        if self.options.reverse_batches:
            numbers = numbers.flip(0)
        return self.sequences[numbers].long()


# ---- model and optimizer -------------------------------------------------------------------------


def import_transformers():
    try:
        import transformers
    except ImportError as error:
        raise Refused(f"train.py needs transformers 5, pip install transformers: {error}") \
            from error
    if int(transformers.__version__.split(".")[0]) < 5:
        raise Refused(f"train.py needs transformers 5, and {transformers.__version__} is installed")
    return transformers


def import_attile():
    """The operator that pip has installed, or the repository's beside this folder."""
    try:
        import attile_torch
    except ImportError:
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "pytorch"))
        import attile_torch
    return attile_torch


def implementation(attention):
    """What transformers is told as attn_implementation.

    The sequences of a batch are whole and of one length, so that only eager attention needs a
    tensor of the mask. For the others transformers finds that out where it can: by waiting for the
    device once a step, and in a compiled model not at all, which then has such a tensor. Registered
    by a name that has no function for masks, an attention function gets none and is causal.
    """
    name = ATTENTIONS[attention][0]
    if name == "eager":
        return name
    transformers = import_transformers()
    if name == "attile":
        import_attile().register_transformers()
    functions = transformers.AttentionInterface()
    functions.register(f"{name}_without_mask", functions[name])
    return f"{name}_without_mask"


def make_model(options, device):
    """A new GPT-2 in training mode; the seed decides its weights."""
    transformers = import_transformers()
    layers, width, heads = MODELS[options.model]
    p = options.dropout
    config = transformers.GPT2Config(
        n_layer=layers, n_embd=width, n_head=heads, n_positions=max(1024, options.seq_len),
        vocab_size=options.vocab_size, bos_token_id=END, eos_token_id=END,
        attn_pdrop=p, resid_pdrop=p, embd_pdrop=p)
    torch.manual_seed(options.seed)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(
            config, attn_implementation=implementation(options.attention))
    model.loss_type = "ForCausalLM"  # what it takes anyway, then with a warning
    return model.train()


def make_optimizer(model, options):
    """AdamW with GPT-3's settings: matrices decay, biases and norms do not."""
    matrices = [x for x in model.parameters() if x.dim() >= 2]
    vectors = [x for x in model.parameters() if x.dim() < 2]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=options.lr, betas=(0.9, 0.95),
        fused=True if options.optimizer == "fused" else None)  # None: a kernel for many tensors


def learning_rate(step, options):
    if step < options.warmup:
        return options.lr * (step + 1) / options.warmup
    done = (step - options.warmup) / max(1, options.steps - options.warmup)
    return options.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


# ---- what a run leaves ---------------------------------------------------------------------------


class Checkpoint:
    """The state of a run in a folder: weights, optimizer, random numbers, and where it is."""

    def __init__(self, options, digest):
        self.path = options.checkpoint / "checkpoint.pt" if options.checkpoint else None
        self.run = {key: value for key, value in vars(options).items() if key not in FREE}
        self.run["text"] = digest

    def load(self, model, optimizer):
        """The number of steps that are done; 0 where there is no checkpoint."""
        if self.path is None or not self.path.exists():
            return 0
        state = torch.load(self.path, map_location="cpu", weights_only=True)
        other = [key for key, value in self.run.items() if state["run"].get(key) != value]
        if other:
            names = ", ".join("--" + key.replace("_", "-") for key in other)
            raise Refused(f"{self.path} is of a run with another {names}: give the same command, "
                          "or another folder")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["cpu_rng"])
        if "cuda_rng" in state:
            torch.cuda.set_rng_state(state["cuda_rng"])
        return state["step"]

    def save(self, model, optimizer, step):
        """Replaces the checkpoint when the new one is whole on the disk."""
        if self.path is None:
            return
        state = {"run": self.run, "step": step, "model": model.state_dict(),
                 "optimizer": optimizer.state_dict(), "cpu_rng": torch.get_rng_state()}
        if model.device.type == "cuda":
            state["cuda_rng"] = torch.cuda.get_rng_state()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        with open(part, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self.path)


class Report:
    """Lines of progress on the screen, and of JSON in a file."""

    def __init__(self, options, device, done, run):
        self.options, self.device, self.file = options, device, None
        kept = []
        if options.results:
            if done:  # what was written after the checkpoint is computed again
                with contextlib.suppress(FileNotFoundError):
                    lines = options.results.read_text(encoding="utf-8").splitlines()
                    kept = [line for line in lines if json.loads(line).get("step", 0) <= done]
            options.results.parent.mkdir(parents=True, exist_ok=True)
            self.file = open(options.results, "w", encoding="utf-8")
            for line in kept:
                print(line, file=self.file)
        if not kept:
            self.write(run=run)
        self.losses, self.since = [], time.perf_counter()

    def write(self, **record):
        if self.file:
            print(json.dumps(record), file=self.file, flush=True)

    def add(self, loss):
        self.losses.append(loss.detach())

    def interval(self, step):
        """Reads the losses since the last call, which waits for the device."""
        losses = torch.stack(self.losses).tolist()
        ms = (time.perf_counter() - self.since) / len(losses) * 1e3
        rate = self.options.batch * self.options.seq_len / ms * 1e3
        memory = torch.cuda.max_memory_allocated() / 2**30 if self.device.type == "cuda" else None
        self.write(step=step, losses=losses, ms_per_step=ms, tokens_per_second=rate,
                   memory_gib=memory)
        print(f"step {step:>5}/{self.options.steps}  loss {losses[-1]:7.4f}  {rate / 1e3:7.1f} "
              f"thousand tokens/s  {ms:7.1f} ms/step"
              + (f"  {memory:5.1f} GiB" if memory else ""), flush=True)
        if not all(map(math.isfinite, losses)):
            raise Refused(f"the loss is not a finite number before step {step}: a smaller --lr may "
                          "help")
        self.restart()

    def restart(self):
        """What follows is timed anew."""
        self.losses, self.since = [], time.perf_counter()


# ---- training ------------------------------------------------------------------------------------


class StopRequest:
    """Whether the user or the system has asked the process to end: a step is finished first."""

    def __init__(self):
        self.asked = False

    def __enter__(self):
        self.before = {number: signal.signal(number, self._ask)
                       for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def _ask(self, *_):
        self.asked = True
        self.__exit__()  # a second signal ends the process at once

    def __exit__(self, *_):
        for number, handler in self.before.items():
            signal.signal(number, handler)


def describe(options, model, text, device):
    """What a run is, for its first line and for its results."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU"
    versions = f"PyTorch {torch.__version__}, transformers {import_transformers().__version__}"
    parameters = sum(x.numel() for x in model.parameters())
    print(f"GPT-2 {options.model}, {parameters / 1e6:.1f} million parameters, {options.attention} "
          f"attention, {options.precision}, on {name}, {versions}; a step has {options.batch} x "
          f"{options.seq_len} tokens of a text of {text.tokens / 1e6:.1f} million bytes",
          flush=True)
    plain = {key: value if isinstance(value, (bool, int, float, str, type(None))) else str(value)
             for key, value in vars(options).items()}
    return {"options": plain, "device": name, "versions": versions, "parameters": parameters,
            "text_tokens": text.tokens}


def train(options, stop):
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    if options.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    text = Text(read_tokens(options.text), options, device)
    model = make_model(options, device)
    optimizer = make_optimizer(model, options)
    checkpoint = Checkpoint(options, text.digest)
    done = checkpoint.load(model, optimizer)
    run = describe(options, model, text, device)
    report = Report(options, device, done, run)
    if done:
        print(f"{done} of {options.steps} steps are done", flush=True)
    forward = torch.compile(model) if options.compile else model
    backend = ATTENTIONS[options.attention][1]
    with contextlib.nullcontext() if backend is None else sdpa_kernel(backend):
        for number in range(done, options.steps):
            ids = text.batch(number)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(number, options)
            with torch.autocast(device.type, torch.bfloat16, enabled=options.precision == "bf16"):
                loss = forward(input_ids=ids, labels=ids, use_cache=False).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            report.add(loss)
            step = number + 1
            last = step == options.steps or stop.asked
            saves = last or step % options.checkpoint_every == 0
            # The first step compiles what is not compiled yet: its time is reported by itself.
            if saves or step == done + 1 or step % options.report_every == 0:
                report.interval(step)
            if saves:
                checkpoint.save(model, optimizer, step)
                report.restart()
            if last and step < options.steps:
                kept = "the same command goes on" if options.checkpoint else "nothing is kept"
                print(f"stopped after step {step}: {kept}", file=sys.stderr)
                return STOPPED
    return 0


def ran_out(error):
    """Whether an exception means that memory is used up; libraries say it in their own ways."""
    signs = ("out of memory", "ALLOC_FAILED", "can't allocate memory")
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) \
        or (isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs))


def main(arguments=None):
    options = parse_options(arguments)
    try:
        with StopRequest() as stop:
            return train(options, stop)
    except Refused as error:
        print(f"train.py: {error}", file=sys.stderr)
    except (RuntimeError, MemoryError) as error:
        if ran_out(error):
            print(f"train.py: out of memory: {options.attention} attention does not hold "
                  f"{options.batch} sequences of {options.seq_len} tokens on this device; a "
                  "smaller --batch may fit", file=sys.stderr)
            return OUT_OF_MEMORY
        if "No available kernel" not in str(error) and type(error).__name__ != "BuildError":
            raise
        print(f"train.py: {options.attention}: {str(error).splitlines()[0]}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
