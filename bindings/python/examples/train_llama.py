"""Trains a byte-level Llama on a text, sharded over the ranks; leaves the model, and loss.csv for plot.py.

    python -m gangway.run -n 2 python train_llama.py TEXT FOLDER [STEPS] [cpu|cuda]
"""

import sys
from pathlib import Path

import numpy as np

import gangway as gw

ROWS, SEQUENCE = 8, 64  # a batch of all ranks together

if len(sys.argv) < 3:
    sys.exit("usage: train_llama.py TEXT FOLDER [STEPS] [cpu|cuda]")
text = np.frombuffer(Path(sys.argv[1]).read_bytes(), np.uint8)
folder, steps = Path(sys.argv[2]), int((*sys.argv, 200)[3])
device = sys.argv[4] if len(sys.argv) > 4 else "cpu"


def batch(step, first, last):
    """Rows first to last of a step's batch. Their places depend on step and row alone, so on no mesh."""
    starts = [(step * ROWS + row) * 0x9E3779B97F4A7C15 % 2**64 % (len(text) - SEQUENCE) for row in range(first, last)]
    return np.array([text[start : start + SEQUENCE] for start in starts], np.int64)


with gw.init(device=device) as gangs:
    model = gw.Llama(dim=64, layers=4, heads=4).parallelize(gangs, strategy="full_shard", seed=1)
    opt = gw.AdamW(model, lr=3e-3)
    shard, shards = gangs.data_shard  # which rows of the batch are this rank's
    first, last = ROWS * shard // shards, ROWS * (shard + 1) // shards
    curve = []
    for step in range(1, steps + 1):
        tokens = batch(step, first, last)  # the labels are the tokens: the library shifts them
        result = gw.train_step(model, opt, tokens, max_grad_norm=1.0)
        memory = sum(model.memory().values()) / (1 << 20)  # of this rank: parameters, gradients, activations, ...
        curve.append((step, result.loss, result.tokens_per_second, memory))
        if shard == 0 and (step == 1 or step % 20 == 0):
            print(f"step {step}/{steps}  loss {result.loss:.3f}  {result.tokens_per_second:.0f} tokens/s", flush=True)
    sample = bytes(model.generate(b"The ", 64, temperature=0.8))
    model.save(folder)  # Hugging Face's names, safetensors
    if shard == 0:
        print(f"sample: The {sample.decode('ascii', 'backslashreplace')}")
        np.savetxt(folder / "loss.csv", curve, "%g", ",", header="step,loss,tokens_per_second,memory_mib", comments="")
