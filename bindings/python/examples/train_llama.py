"""Trains a byte-level Llama on a text, with parameters, gradients and optimizer states sharded over the ranks.

    python -m gangway.run -n 2 python train_llama.py --text FILE
"""

import argparse
from pathlib import Path

import numpy as np

import gangway as gw

parser = argparse.ArgumentParser(description="Trains a byte-level Llama on a text.")
parser.add_argument("--text", type=Path, required=True)
parser.add_argument("--out", type=Path, default=Path("train-out"))
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--batch", type=int, default=16, help="rows of all ranks together")
parser.add_argument("--sequence", type=int, default=128)
parser.add_argument("--dim", type=int, default=128)
parser.add_argument("--layers", type=int, default=4)
arguments = parser.parse_args()

text = np.frombuffer(arguments.text.read_bytes(), np.uint8)

with gw.init() as gangs:
    model = gw.Llama(dim=arguments.dim, layers=arguments.layers, heads=4).parallelize(gangs, recompute="selective", seed=1)
    opt = gw.AdamW(model, lr=3e-3, weight_decay=0.1, schedule="cosine", warmup_steps=10,
                   total_steps=arguments.steps + 10, last_lr_ratio=0.1)
    index, count = gangs.data_shard
    first, last = arguments.batch * index // count, arguments.batch * (index + 1) // count
    curve = []
    for step in gw.progress(range(arguments.steps)):
        starts = np.random.default_rng(step).integers(0, len(text) - arguments.sequence, arguments.batch)[first:last]
        rows = np.stack([text[s : s + arguments.sequence + 1] for s in starts]).astype(np.int64)
        result = gw.train_step(model, opt, rows[:, :-1], rows[:, 1:], shifted=True, max_grad_norm=1.0)
        memory = sum(model.memory().values()) / (1 << 20)  # of this rank, by use: parameters, gradients, activations, ...
        curve.append((step + 1, result.loss, result.tokens_per_second, memory))
    sample = bytes(model.generate(b"The ", 80, temperature=0.8, top_k=40))
    model.save(arguments.out)
    if gangs.rank == 0:
        np.savetxt(arguments.out / "loss.csv", curve, "%g", ",", header="step,loss,tokens_per_second,memory_mib",
                   comments="")
        print(f"loss {curve[0][1]:.3f} -> {curve[-1][1]:.3f}; sample: The {sample.decode(errors='replace')!r}")
