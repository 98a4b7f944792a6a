# SPDX-License-Identifier: MIT
"""attn_implementation="attile" against eager attention, on tiny models made from configs."""
import copy

import attile_torch
import pytest
import torch
from reference import FULL

transformers = pytest.importorskip("transformers", minversion="5.0")
# Two layers have a window and none by turns; one has a window.
LAYERS = 2 if FULL else 1
SMALL = {"num_hidden_layers": LAYERS, "hidden_size": 64, "intermediate_size": 64, "vocab_size": 97,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0,
         "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 128}


@pytest.fixture(scope="module", autouse=True)
def registered():
    attile_torch.register_transformers()


def pair(name, device):
    """The same small model twice: eager, and by attile."""
    if name == "gpt2":
        config = transformers.GPT2Config(
            n_layer=2, n_embd=64, n_head=4, vocab_size=97, n_positions=128, bos_token_id=1,
            eos_token_id=2, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)
    elif name == "bert":
        config = transformers.BertConfig(
            num_hidden_layers=2, hidden_size=64, intermediate_size=64, vocab_size=97,
            num_attention_heads=4, attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0)
    elif name == "mistral":
        config = transformers.MistralConfig(**SMALL, sliding_window=7)
    elif name == "gemma2":
        config = transformers.Gemma2Config(**SMALL, sliding_window=7, query_pre_attn_scalar=16,
                                           attn_logit_softcapping=2.0)
    else:
        config = transformers.GptOssConfig(**SMALL, sliding_window=7, num_local_experts=2,
                                           num_experts_per_tok=1)
    kind = transformers.AutoModelForMaskedLM if name == "bert" else \
        transformers.AutoModelForCausalLM
    models = []
    for implementation in ("eager", "attile"):
        torch.manual_seed(0)
        own = copy.deepcopy(config)  # a model writes to its config
        models.append(kind.from_config(own, attn_implementation=implementation).to(device))
    for model in models:  # with the weights of a new model, attention hardly changes the logits
        torch.manual_seed(1)
        for key, x in model.named_parameters():
            if key.endswith("sinks"):
                torch.nn.init.constant_(x, 0.5)
            elif x.dim() > 1:
                torch.nn.init.normal_(x, std=0.2)
    assert [model.config._attn_implementation for model in models] == ["eager", "attile"]
    return models


def inputs(device, batch=3, rows=24):
    generator = torch.Generator().manual_seed(4)
    return torch.randint(3, 97, (batch, rows), generator=generator).to(device)


def check(models, real, **arguments):
    """Compares logits of the real tokens, and all gradients of a loss of them."""
    logits = []
    for model in models:
        model.zero_grad()
        out = model(**arguments).logits[real]
        torch.nn.functional.log_softmax(out.float(), -1)[:, ::7].sum().backward()
        logits.append(out.detach())
    assert torch.allclose(*logits, atol=2e-4), (logits[0] - logits[1]).abs().max()
    for (key, a), (_, b) in zip(models[0].named_parameters(), models[1].named_parameters(),
                                strict=True):
        if a.grad is not None:
            assert torch.allclose(a.grad, b.grad, atol=2e-3, rtol=2e-3), key


MODELS = ["gpt2", "bert", "mistral", "gemma2", "gpt-oss"]


@pytest.mark.parametrize("name", MODELS)
def test_dense(device, name):
    ids = inputs(device)
    check(pair(name, device), torch.ones_like(ids, dtype=torch.bool), input_ids=ids)


@pytest.mark.parametrize(("name", "side"), [
    (name, side) for name in MODELS for side in ("left", "right", "holes")
    if FULL or (name in ("gpt2", "bert") or (name, side) == ("mistral", "left"))])
def test_padding(device, name, side):
    ids = inputs(device)
    mask = torch.ones_like(ids)
    if side == "left":
        mask[0, :9] = mask[1, :1] = 0
    elif side == "right":
        mask[0, 15:] = mask[1, 3:] = 0
    else:
        mask[0, 4:9] = mask[1, ::2] = 0
    check(pair(name, device), mask.bool(), input_ids=ids, attention_mask=mask)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", ["gpt2", "mistral"])
def test_packed(device, name, batch):
    ids = inputs(device, batch)
    positions = torch.cat([torch.arange(5), torch.arange(16), torch.arange(3)]).to(device)
    positions = positions.expand(batch, -1)
    models = pair(name, device)
    real = torch.ones_like(ids, dtype=torch.bool)
    check(models, real, input_ids=ids, position_ids=positions, use_cache=False)
    if batch == 1:  # what transformers' collator for packed inputs adds
        cu = torch.tensor([0, 5, 21, 24], dtype=torch.int32, device=device)
        alone = models[1](input_ids=ids, position_ids=positions, use_cache=False).logits
        told = models[1](input_ids=ids, position_ids=positions, use_cache=False, cu_seq_lens_q=cu,
                         cu_seq_lens_k=cu, max_length_q=16, max_length_k=16).logits
        assert torch.allclose(alone, told, atol=1e-5)


def test_own_mask(device):
    """A mask of four axes that the caller makes: it alone counts, though the model is causal."""
    ids = inputs(device)
    seen = torch.ones(24, 24, dtype=torch.bool, device=device).tril()
    seen[10:, :5] = False
    seen[:6, :6] = True
    mask = torch.zeros(24, 24, device=device).masked_fill(~seen, float("-inf"))
    mask = mask.expand(3, 1, -1, -1)
    check(pair("gpt2", device), torch.ones_like(ids, dtype=torch.bool), input_ids=ids,
          attention_mask=mask)


@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("name", ["gpt2", "mistral"])
def test_generate(device, name, cache):
    ids = inputs(device)
    mask = torch.ones_like(ids)
    mask[0, :9] = 0
    texts = [model.eval().generate(ids, attention_mask=mask, max_new_tokens=8, min_new_tokens=8,
                                   do_sample=False, pad_token_id=0, cache_implementation=cache,
                                   disable_compile=True)
             for model in pair(name, device)]
    assert torch.equal(*texts)


def test_compile(device):
    ids = inputs(device)
    plain, ours = pair("gpt2", device)
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    mask = torch.ones_like(ids)
    mask[0, :9] = 0
    for arguments in ({}, {"attention_mask": mask}):
        a = plain(ids, use_cache=False, **arguments).logits
        b = compiled(ids, use_cache=False, **arguments).logits
        real = arguments.get("attention_mask", torch.ones_like(ids)).bool()
        assert torch.allclose(a[real], b[real], atol=2e-4)


def test_training_with_dropout(device):
    config = transformers.GPT2Config(n_layer=2, n_embd=64, n_head=4, vocab_size=97, n_positions=128,
                                     bos_token_id=1, eos_token_id=2)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="attile")
    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = inputs(device)
    losses = []
    for _ in range(15):
        loss = model(ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.3
