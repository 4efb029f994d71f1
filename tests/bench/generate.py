"""Tokens per second of text generation, beside transformers' generate() with its cache. Both sides have one model, generate
greedily and are asked in turn; a figure is the median over the rounds.

    python tests/bench/generate.py [--rounds 5] [--threads 2]     needs gangway, torch and transformers
"""

import argparse
import statistics
import tempfile
import time

import numpy as np

import gangway as gw

CONFIG = {"vocab_size": 8192, "hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4,
          "intermediate_size": 1408, "max_position_embeddings": 4096}
CASES = [(1, 16, 64), (1, 256, 64), (1, 1024, 64), (4, 256, 64)]  # rows, tokens of a prompt, new tokens


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--threads", type=int, default=2)
    options = options.parse_args()
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    theirs = LlamaForCausalLM(LlamaConfig(**CONFIG)).float().eval()
    with tempfile.TemporaryDirectory() as folder, gw.init(threads=options.threads) as gangs:
        theirs.save_pretrained(folder)
        ours = gw.from_pretrained(folder, gangs)
        print(f"{'rows':>4} {'prompt':>7} {'new':>4} {'gangway':>9} {'transformers':>13}  tokens/s")
        for rows, prompt, new in CASES:
            ids = np.random.default_rng(0).integers(0, CONFIG["vocab_size"], (rows, prompt))
            tensor = torch.from_numpy(ids)
            mask = torch.ones_like(tensor)

            def run_theirs(count=new):
                with torch.no_grad():
                    theirs.generate(tensor, attention_mask=mask, max_new_tokens=count, min_new_tokens=count, do_sample=False,
                                    use_cache=True, pad_token_id=0)

            def run_ours(count=new):
                ours.generate(ids.tolist(), count, temperature=0)

            run_theirs(2), run_ours(2)
            times = [(seconds(run_ours), seconds(run_theirs)) for _ in range(options.rounds)]
            own, other = (rows * new / statistics.median(side) for side in zip(*times))
            print(f"{rows:>4} {prompt:>7} {new:>4} {own:>9.1f} {other:>13.1f}", flush=True)


if __name__ == "__main__":
    main()
