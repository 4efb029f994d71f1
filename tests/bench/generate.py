"""Tokens per second of text generation, beside transformers' generate() with its cache. Both sides have one model, generate
greedily and are asked in turn, round by round. Each round is printed when it is done, and the median over the rounds after the
last one. A case begins no further round after --seconds, so that a busy machine, where a token of both sides takes as long as
other programs keep the cores, still gives every row; the row says how many rounds it has.

    python tests/bench/generate.py [--rounds 5] [--seconds 60] [--threads 2]     needs gangway, torch and transformers
"""

import argparse
import os
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


def say(rows, prompt, new, what, own, other):
    print(f"{rows:>4} {prompt:>7} {new:>4} {what:>9} {own:>9.1f} {other:>13.1f} {own / other:>6.2f}", flush=True)


def measure(run_ours, run_theirs, options, tell):
    """Returns the seconds of both sides in each round."""
    run_theirs(2), run_ours(2)
    times, start = [], time.perf_counter()
    while len(times) < options.rounds and (not times or time.perf_counter() - start < options.seconds):
        times.append((seconds(run_ours), seconds(run_theirs)))
        tell(len(times), *times[-1])
    return times


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60, help="a case begins no further round after these")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    theirs = LlamaForCausalLM(LlamaConfig(**CONFIG)).float().eval()
    with tempfile.TemporaryDirectory() as folder, gw.init(threads=options.threads) as gangs:
        theirs.save_pretrained(folder)
        ours = gw.from_pretrained(folder, gangs)
        load, cores = os.getloadavg()[0], os.cpu_count()
        print(f"tokens/s, {options.threads} threads; load {load:.1f} of {cores} cores", flush=True)
        print(f"{'rows':>4} {'prompt':>7} {'new':>4} {'':>9} {'gangway':>9} {'transformers':>13} {'ratio':>6}", flush=True)
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

            def tell(round, own, other):
                say(rows, prompt, new, f"round {round}", rows * new / own, rows * new / other)

            times = measure(run_ours, run_theirs, options, tell)
            own, other = (rows * new / statistics.median(side) for side in zip(*times))
            say(rows, prompt, new, f"median {len(times)}", own, other)


if __name__ == "__main__":
    main()
