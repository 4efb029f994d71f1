"""A Llama in PyTorch, in f64, by Hugging Face's names: what tests of files compare losses with."""

import torch


def loss(values, tokens, heads, eps=1e-5, theta=10000.0):
    """The mean over the next tokens. values: the parameters by name."""
    x = values["model.embed_tokens.weight"][tokens]
    rows, length, dim = x.shape
    width = dim // heads
    angles = torch.arange(length, dtype=torch.float64)[:, None] * theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    cos, sin = (torch.cat([f(angles)] * 2, -1) for f in (torch.cos, torch.sin))

    def norm(x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * values[name]

    def linear(x, name):
        return x @ values[name].T

    def rotated(x):
        low, high = x.chunk(2, -1)
        return x * cos + torch.cat([-high, low], -1) * sin

    layers = sum(name.endswith(".input_layernorm.weight") for name in values)
    for place in (f"model.layers.{i}." for i in range(layers)):
        y = norm(x, place + "input_layernorm.weight")
        q, k, v = (linear(y, f"{place}self_attn.{n}_proj.weight").view(rows, length, heads, width).transpose(1, 2) for n in "qkv")
        y = torch.nn.functional.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        x = x + linear(y.transpose(1, 2).reshape(rows, length, dim), place + "self_attn.o_proj.weight")
        y = norm(x, place + "post_attention_layernorm.weight")
        y = torch.nn.functional.silu(linear(y, place + "mlp.gate_proj.weight")) * linear(y, place + "mlp.up_proj.weight")
        x = x + linear(y, place + "mlp.down_proj.weight")
    logits = linear(norm(x, "model.norm.weight"), "lm_head.weight")
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
