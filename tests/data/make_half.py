#!/usr/bin/env python3
"""Makes half.json: how far PyTorch's training in bf16 and in f16 is from exact arithmetic, on the models of
the reference files.

usage: make_half.py [OUT]      (needs torch, numpy and safetensors; the tests need only half.json)

Both types train as FSDP2's mixed precision does: masters are f32; parameters, activations and gradients have
the narrow type; norms, rotary tables, softmax and the loss compute in f32. In f16 the loss is scaled, and
gradients are unscaled in f32. The script first checks that the same code in f64 gives the values of the
reference files.

For each type the file has two entries. "steps" has, for each reference file and its initial parameters, the
largest relative error of the loss over the file's batches, and for each parameter |g - g64| / |g64| of the
gradient of the first batch. "training" has, for each of 8 seeds of initial parameters, the largest |narrow /
f32 - 1| of the loss over 50 steps of AdamW, with the batches and the model of tests/train/precision_test.cpp.
"""
import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F
from safetensors import safe_open

HERE = pathlib.Path(__file__).parent
FILES = ("llama_small", "llama_small_bias_tied", "llama_parity", "llama_parity_tied")
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
SCALES = {torch.float16: 65536.0}  # loss scales; 1 for other types


def norm(x, weight, eps):
    exact = x if x.dtype == torch.float64 else x.float()
    return (exact * torch.rsqrt(exact.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def rotate(x, theta):  # x [batch, heads, sequence, width], half-rotation form
    half = x.shape[-1] // 2
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    angle = torch.arange(x.shape[-2], dtype=wide)[:, None] * theta ** (-torch.arange(half, dtype=wide) / half)
    cos, sin = (torch.cat((t, t), -1).to(x.dtype) for t in (angle.cos(), angle.sin()))
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def attend(x, p, name, c):
    heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
    batch, sequence, _ = x.shape

    def split(which, count):
        return F.linear(x, p[f"{name}.{which}_proj.weight"], p.get(f"{name}.{which}_proj.bias")).view(batch, sequence, count, -1).transpose(1, 2)

    q, k, v = rotate(split("q", heads), c["rope_theta"]), rotate(split("k", kv_heads), c["rope_theta"]), split("v", kv_heads)
    k, v = (t.repeat_interleave(heads // kv_heads, 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(torch.ones(sequence, sequence, dtype=torch.bool).triu(1), -math.inf)
    exact = scores if scores.dtype == torch.float64 else scores.float()
    out = (exact.softmax(-1).to(v.dtype) @ v).transpose(1, 2).reshape(batch, sequence, -1)
    return F.linear(out, p[f"{name}.o_proj.weight"])


def loss_of(p, c, tokens, labels):
    """Returns the mean over the labels that are not ignored. Labels are shifted already."""
    x = F.embedding(tokens, p["model.embed_tokens.weight"])
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        x = x + attend(norm(x, p[f"{layer}.input_layernorm.weight"], c["rms_norm_eps"]), p, f"{layer}.self_attn", c)
        h = norm(x, p[f"{layer}.post_attention_layernorm.weight"], c["rms_norm_eps"])
        gate = F.silu(F.linear(h, p[f"{layer}.mlp.gate_proj.weight"]))
        x = x + F.linear(gate * F.linear(h, p[f"{layer}.mlp.up_proj.weight"]), p[f"{layer}.mlp.down_proj.weight"])
    head = p["model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"]
    logits = F.linear(norm(x, p["model.norm.weight"], c["rms_norm_eps"]), head)
    exact = logits if logits.dtype == torch.float64 else logits.float()
    return F.cross_entropy(exact.flatten(0, 1), labels.flatten(), ignore_index=-100)


def step_of(masters, c, tokens, labels, dtype):
    """Returns the loss, and the gradients in the dtype of the masters."""
    p = {name: value.detach().to(dtype, copy=True).requires_grad_() for name, value in masters.items()}
    loss = loss_of(p, c, tokens, labels)
    scale = SCALES.get(dtype, 1.0)
    (loss * scale).backward()
    return loss.item(), {name: value.grad.to(masters[name].dtype) / scale for name, value in p.items()}


def errors_of(name, narrow):
    with safe_open(HERE / f"{name}.safetensors", "pt") as file:
        c = json.loads(file.metadata()["config"])
        at = {key: file.get_tensor(key) for key in file.keys()}
    masters = {key[5:]: value for key, value in at.items() if key.startswith("init.")}
    batches = list(zip(at["tokens"], at["labels"], strict=True))

    def gradients_of(dtype):
        found = step_of(masters, c, *batches[0], dtype)[1]
        exact = {key: at["grad." + key] for key in found}
        return {key: ((g.double() - exact[key]).norm() / exact[key].norm()).item() for key, g in found.items()}

    exact = [step_of(masters, c, *batch, torch.float64)[0] for batch in batches]
    same = max(abs(exact[0] / at["loss"].item() - 1), *gradients_of(torch.float64).values())
    assert same < 1e-11, f"{name}: this is another model, {same} off"
    losses = [step_of(masters, c, *batch, narrow)[0] for batch in batches]
    return {"loss": max(abs(n / e - 1) for n, e in zip(losses, exact, strict=True)), "gradients": gradients_of(narrow)}


# --- the model and the batches of tests/train/precision_test.cpp

CHAIN = dict(vocab_size=64, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=160, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False)
STEPS, ROWS, LENGTH, RANKS = 50, 4, 32, 2


def chain_rows(step, rank):
    state = 0x9E3779B97F4A7C15 * (2 * step + rank + 1) % 2**64

    def draw():
        nonlocal state
        state ^= state << 13 & 2**64 - 1
        state ^= state >> 7
        state ^= state << 17 & 2**64 - 1
        return state >> 33

    ids = []
    for _ in range(ROWS):
        for s in range(LENGTH):
            ids.append((5 * ids[-1] + 7) % 64 if s > 0 and draw() % 4 != 0 else draw() % 64)
    return torch.tensor(ids).view(ROWS, LENGTH)


def first_values(seed):
    generator = torch.Generator().manual_seed(seed)
    c, width = CHAIN, CHAIN["hidden_size"]
    kv = width * c["num_key_value_heads"] // c["num_attention_heads"]
    shapes = {"model.embed_tokens.weight": (64, width), "lm_head.weight": (64, width), "model.norm.weight": (width,)}
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        shapes |= {layer + "input_layernorm.weight": (width,), layer + "post_attention_layernorm.weight": (width,),
                   layer + "self_attn.q_proj.weight": (width, width), layer + "self_attn.k_proj.weight": (kv, width),
                   layer + "self_attn.v_proj.weight": (kv, width), layer + "self_attn.o_proj.weight": (width, width),
                   layer + "mlp.gate_proj.weight": (160, width), layer + "mlp.up_proj.weight": (160, width),
                   layer + "mlp.down_proj.weight": (width, 160)}
    return {name: torch.ones(s) if len(s) == 1 else 0.02 * torch.randn(s, generator=generator) for name, s in shapes.items()}


def losses(seed, dtype):
    masters = {name: value.requires_grad_() for name, value in first_values(seed).items()}
    adamw = torch.optim.AdamW(masters.values(), lr=3e-3, weight_decay=0.0)  # the other defaults are Gangway's as well
    made = []
    for step in range(STEPS):
        tokens = torch.cat([chain_rows(step, rank) for rank in range(RANKS)])
        labels = torch.cat((tokens[:, 1:], torch.full((len(tokens), 1), -100)), 1)
        loss, gradients = step_of({name: p.detach() for name, p in masters.items()}, CHAIN, tokens, labels, dtype)
        made.append(loss)
        for name, p in masters.items():
            p.grad = gradients[name]
        torch.nn.utils.clip_grad_norm_(masters.values(), 1.0)
        adamw.step()
    return made


def deviation(seed, narrow):
    return max(abs(n / f - 1) for n, f in zip(losses(seed, narrow), losses(seed, torch.float32), strict=True))


def main(out):
    torch.set_num_threads(1)
    made = {"made_with": f"torch {torch.__version__}"}
    for key, narrow in TYPES.items():
        made[key] = {"steps": {name: errors_of(name, narrow) for name in FILES},
                     "training": [deviation(seed, narrow) for seed in range(8)]}
        print(key, made[key]["training"], {name: made[key]["steps"][name]["loss"] for name in FILES})
    out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "half.json")
