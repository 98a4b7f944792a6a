# SPDX-License-Identifier: MIT
"""What the masks and policies of compare.py's cells compute, as formulas that FlexAttention and the
reference share, and the memory that they read. Dropout's decisions are attile's. PyTorch is
imported where it is used."""
import dataclasses
import math
import typing

import compare_build
from compare_cells import BLOCK, BLOCK_PERCENT, DOCUMENT_ROWS, DROPOUT, PREFIX, SOFTCAP

ROUNDS = 7  # of Philox, as in core/philox.h
SEED, OFFSET = 0x0123456789ABCDEF, 0x0000000500000003  # all their halves count
WORD = 0xFFFFFFFF


# ---- dropout -------------------------------------------------------------------------------------


def _product(a, b):
    """(high, low) words of the product of two 32-bit numbers. It is made of halves of `a`, so that
    no sum leaves int64."""
    low, high = (a & 0xFFFF) * b, (a >> 16) * b
    high = high + (low >> 16)
    return high >> 16, (high & 0xFFFF) << 16 | low & 0xFFFF


def philox4x32(counter, key, rounds=ROUNDS):
    """The four words of Philox4x32 (Salmon et al., SC 2011), each of the counter's and of the key's
    words an integer or an int64 tensor."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(rounds):
        high0, low0 = _product(0xD2511F53, c0)
        high1, low1 = _product(0xCD9E8D57, c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + 0x9E3779B9 & WORD, k1 + 0xBB67AE85 & WORD
    return c0, c1, c2, c3


def dropout_threshold(probability):
    """A score is dropped where its 16 random bits are below this."""
    return int(probability * 65536 + 0.5)


def is_kept(slice_, row, column, threshold, seed, offset):
    """What PhiloxDropout of core/dropout.h decides; `slice_` is batch * q_heads + head."""
    counter = (column // 16 * 4 + column % 8 // 2, row // 16 * 8 + row % 8, slice_, offset & WORD)
    words = philox4x32(counter, (seed & WORD, seed >> 32 ^ offset >> 32))
    which = row // 8 % 2 * 2 + column // 8 % 2
    word = sum(word * (which == i) for i, word in enumerate(words))
    return (word >> column % 2 * 16 & 0xFFFF) >= threshold


# ---- one cell's policy ---------------------------------------------------------------------------


@dataclasses.dataclass
class HeadPolicy:
    """A policy in one head: functions of rows and columns that broadcast against each other, or
    None where there is nothing to do. `modified` and `derivative` have scores before them;
    `factors` are what dropout multiplies P and dP by; `sink` is a number; `earlier` are O and LSE
    of earlier keys."""

    visible: typing.Callable | None
    modified: typing.Callable | None
    derivative: typing.Callable | None
    factors: typing.Callable | None
    sink: typing.Any = None
    earlier: tuple | None = None


class Policy:
    """A cell's mask and policy. `normal(*shape)` gives standard normal numbers of the cell's type;
    a bias has 4 axes, of 1 where it is repeated. `learned` is a bias whose gradient is made, too:
    it has these axes, or is (head, column - row + length - 1). Its gradient is timed, and not
    compared: contenders sum it in types and orders of their own."""

    def __init__(self, cell, normal, device="cuda"):
        import torch

        self.cell = cell
        self.dropout = DROPOUT if cell.policy.endswith("dropout") else 0.0
        self.bias = self.slopes = self.documents = self.key_lengths = self.blocks = None
        self.learned = self.dlearned = self.sinks = self.earlier = None
        self.lists = {}
        batch, heads, length = cell.batch, cell.q_heads, cell.length
        if cell.policy in ("bias_hrc", "bias_hrc_dropout", "softcap_bias_hrc"):
            self.bias = normal(1, heads, length, length)
        if cell.policy == "bias_bc":
            self.bias = normal(batch, 1, 1, length)
        if cell.policy == "dbias_hrc":
            self.learned = self.bias = normal(1, heads, length, length)
        if cell.policy == "dbias_hc":
            self.learned = self.bias = normal(1, heads, 1, length)
        if cell.policy == "dbias_distance":
            self.learned = normal(heads, 2 * length - 1)
        if self.learned is not None:
            self.dlearned = torch.zeros(self.learned.shape, dtype=torch.float32, device=device)
        if cell.policy in ("alibi", "softcap_alibi_dropout"):
            self.slopes = torch.tensor([2.0 ** (-8 * (head + 1) / heads) for head in range(heads)],
                                       dtype=torch.float32, device=device)
        if cell.policy == "sink":  # about as much as the keys of a row weigh together
            self.sinks = normal(heads).float() + math.log(length)
        if cell.policy == "earlier":  # as many as those of the call
            self.earlier = (normal(batch, length, heads, cell.dv).float(),
                            normal(batch, heads, length).float() + math.log(length))
        if cell.policy in DOCUMENT_ROWS:
            ids = [i for i, rows in enumerate(cell.document_lengths()) for _ in range(rows)]
            self.documents = torch.tensor([ids] * batch, dtype=torch.int32, device=device)
        if cell.policy == "key_padding":
            self.key_lengths = torch.tensor(cell.key_lengths(), dtype=torch.int32, device=device)
        if cell.policy in BLOCK_PERCENT:
            listed = cell.listed_blocks()
            seen = [[column in set(columns) for column in range(len(listed))]
                    for columns in listed]
            self.blocks = torch.tensor(seen, device=device)
            for name, table in (("kv", self.blocks), ("q", self.blocks.T)):
                counts = table.sum(1, dtype=torch.int32)
                # Seen ones first, in their order; what follows is not looked at.
                entries = torch.argsort(table.int(), dim=1, descending=True, stable=True)
                self.lists[f"full_{name}_num_blocks"] = counts
                self.lists[f"full_{name}_indices"] = entries.int().contiguous()
                self.lists[f"{name}_num_blocks"] = torch.zeros_like(counts)
                self.lists[f"{name}_indices"] = torch.zeros_like(entries, dtype=torch.int32)

    @property
    def by_batch(self):
        """Whether the mask differs between batches."""
        return self.documents is not None or self.key_lengths is not None

    def visible(self):
        """(batch, head, row, column) -> whether the row sees the column; None: it always does.
        These functions close over tensors and plain numbers, as FlexAttention's compiler wants."""
        documents, key_lengths, width = self.documents, self.key_lengths, self.cell.window
        blocks = self.blocks

        def causal(batch, head, row, column):
            return column <= row

        def window(batch, head, row, column):
            return (column <= row) & (row - column < width)

        def prefix(batch, head, row, column):
            return (column < PREFIX) | (column <= row)

        def document(batch, head, row, column):
            return documents[batch, row] == documents[batch, column]

        def parity(batch, head, row, column):
            return row % 2 == column % 2

        def first_keys(batch, head, row, column):
            return column < key_lengths[batch]

        def listed(batch, head, row, column):
            return blocks[row // BLOCK, column // BLOCK]

        if self.cell.policy == "prefix":  # the causal mask is in it
            return prefix
        of_mask = {"causal": causal, "window": window}.get(self.cell.mask)
        own = {**dict.fromkeys(DOCUMENT_ROWS, document), "parity": parity,
               "key_padding": first_keys, "blocks_50": listed,
               "blocks_10": listed}.get(self.cell.policy)
        if of_mask is None or own is None:
            return of_mask or own

        def both(batch, head, row, column):
            return of_mask(batch, head, row, column) & own(batch, head, row, column)

        return both

    def modify(self, dtype, learned=None):
        """(score, batch, head, row, column) -> the score in its place; None: the score. `learned`
        stands for the learned bias: a tensor that gets a gradient."""
        slopes = None if self.slopes is None else self.slopes.to(dtype)
        by_head = by_batch = None
        if self.bias is not None:
            by_head, by_batch = self.bias[0], self.bias[:, 0, 0]
        learned, last = self.learned if learned is None else learned, self.cell.length - 1

        def softcap(score, batch, head, row, column):
            return SOFTCAP * (score / SOFTCAP).tanh()

        def alibi(score, batch, head, row, column):
            return score - slopes[head] * (row - column).abs()

        def softcap_alibi(score, batch, head, row, column):
            return alibi(softcap(score, batch, head, row, column), batch, head, row, column)

        def bias_hrc(score, batch, head, row, column):
            return score + by_head[head, row, column]

        def softcap_bias(score, batch, head, row, column):
            return bias_hrc(softcap(score, batch, head, row, column), batch, head, row, column)

        def bias_bc(score, batch, head, row, column):
            return score + by_batch[batch, column]

        def dbias_hrc(score, batch, head, row, column):
            return score + learned[0, head, row, column]

        def dbias_hc(score, batch, head, row, column):
            return score + learned[0, head, 0, column]

        def dbias_distance(score, batch, head, row, column):
            return score + learned[head, column - row + last]

        return {"softcap": softcap, "alibi": alibi, "softcap_alibi_dropout": softcap_alibi,
                "bias_hrc": bias_hrc, "bias_hrc_dropout": bias_hrc, "bias_bc": bias_bc,
                "softcap_bias_hrc": softcap_bias,
                "dbias_hrc": dbias_hrc, "dbias_hc": dbias_hc,
                "dbias_distance": dbias_distance}.get(self.cell.policy)

    def derivative(self):
        """score -> the derivative of the score in its place; None: 1."""
        def softcap(score):
            return 1 - (score / SOFTCAP).tanh() ** 2

        return softcap if self.cell.policy.startswith("softcap") else None

    def of_head(self, batch, head, dtype, dropout=True):
        """The policy in one head, for scores of type `dtype`, with attile's dropout or without."""
        visible, modify = self.visible(), self.modify(dtype)
        threshold = dropout_threshold(self.dropout)
        slice_ = batch * self.cell.q_heads + head

        def factors(row, column):
            kept = is_kept(slice_, row, column, threshold, SEED, OFFSET)
            return kept.to(dtype) * (65536 / (65536 - threshold))

        return HeadPolicy(
            visible and (lambda row, column: visible(batch, head, row, column)),
            modify and (lambda score, row, column: modify(score, batch, head, row, column)),
            self.derivative(), factors if self.dropout and dropout else None,
            None if self.sinks is None else self.sinks[head].to(dtype),
            None if self.earlier is None else (self.earlier[0][batch, :, head].to(dtype),
                                               self.earlier[1][batch, head].to(dtype)))

    def torch_bias(self, dtype):
        """The policy as the attn_mask of scaled_dot_product_attention; None: it has none."""
        if self.key_lengths is None:
            return self.bias
        import torch

        columns = torch.arange(self.cell.length, device=self.key_lengths.device)
        hidden = columns >= self.key_lengths[:, None, None, None]
        return torch.zeros_like(hidden, dtype=dtype).masked_fill_(hidden, -math.inf)

    def arguments(self):
        """The same for attile_c.cu."""
        cell = self.cell
        held = {"slopes": self.slopes, "sinks": self.sinks, "documents": self.documents,
                "key_lengths": self.key_lengths, "bias": self.bias,
                **dict(zip(("earlier_o", "earlier_lse"), self.earlier or ())), **self.lists}
        given = {name: tensor.data_ptr() for name, tensor in held.items() if tensor is not None}
        if self.bias is not None:
            whole = self.bias.expand(cell.batch, cell.q_heads, cell.length, cell.length)
            names = (f"bias_{axis}_stride" for axis in ("batch", "head", "row", "col"))
            given.update(zip(names, whole.stride()))
        if self.learned is not None:
            given["dbias"] = self.dlearned.data_ptr()
        if cell.policy == "dbias_distance":
            last = cell.length - 1  # the element of column 0 and row 0
            given["bias"] = self.learned[0, last:].data_ptr()
            given["dbias"] = self.dlearned[0, last:].data_ptr()
            given.update(bias_batch_stride=0, bias_head_stride=2 * last + 1, bias_row_stride=-1,
                         bias_col_stride=1)
        return compare_build.Policies(
            **given, blocks=0 if self.blocks is None else len(self.blocks),
            sequences=0 if self.documents is None else cell.batch * len(cell.document_lengths()),
            dropout=self.dropout,
            seed=SEED, offset=OFFSET, softcap=SOFTCAP, prefix=PREFIX, window_left=cell.window - 1,
            window_right=0)
