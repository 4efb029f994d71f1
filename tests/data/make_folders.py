#!/usr/bin/env python3
"""Makes the folders of tests/data/folders: small models as transformers saves them, and the logits that it
computes.

usage: make_folders.py OUT      (needs torch, transformers and safetensors; the tests need only the folders)

Each folder has config.json and weights as save_pretrained writes them, and expected.safetensors: tokens i64
[B, S] and logits f64 [B, S, vocab], which transformers computes in f64 after from_pretrained has read the
folder. Its rotary tables are f32.
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM

SMALL = dict(vocab_size=19, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=40, max_position_embeddings=32, initializer_range=0.4)
SCALED = {"rope_type": "llama3", "rope_theta": 5000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}

FOLDERS = {
    # name: model, dtype of the stored weights, largest size of a file
    "llama3_bf16_sharded": (lambda: LlamaForCausalLM(LlamaConfig(
        **SMALL, rms_norm_eps=1e-5, rope_parameters=SCALED, tie_word_embeddings=False)), torch.bfloat16, "8KB"),
    "qwen2_f16_tied": (lambda: Qwen2ForCausalLM(Qwen2Config(
        **SMALL, rms_norm_eps=1e-6, rope_parameters={"rope_type": "default", "rope_theta": 20000.0},
        tie_word_embeddings=True)), torch.float16, "1GB"),
    "llama_biases_f32": (lambda: LlamaForCausalLM(LlamaConfig(
        **SMALL, head_dim=8, attention_bias=True, mlp_bias=True)), torch.float32, "1GB"),
    "mistral_bf16": (lambda: MistralForCausalLM(MistralConfig(
        **SMALL, rms_norm_eps=1e-5, sliding_window=None)), torch.bfloat16, "1GB"),
}


def fill(model, seed):
    """Fills all parameters with random values, so that biases are not 0 and norm weights are not 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.2 * noise if "norm" in name else 0.3 * noise)


def main(out):
    for seed, (name, (make, dtype, most)) in enumerate(FOLDERS.items()):
        model = make()
        fill(model, seed)
        model = model.to(dtype)
        folder = out / name
        model.save_pretrained(folder, max_shard_size=most)
        (folder / "generation_config.json").unlink(missing_ok=True)
        tokens = torch.randint(0, SMALL["vocab_size"], (2, 20), generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            logits = type(model).from_pretrained(folder, dtype=torch.float64)(tokens).logits
        save_file({"tokens": tokens, "logits": logits}, folder / "expected.safetensors")
        print(name, json.loads((folder / "config.json").read_text())["model_type"], sorted(p.name for p in folder.iterdir()))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
