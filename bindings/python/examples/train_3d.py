"""Trains a small Llama over tensor, pipeline and fully sharded data parallel ranks at once: 8 ranks are tp 2 x pp 2 x 2.

    python -m gangway.run -n 8 python train_3d.py [STEPS]
"""

import sys

import numpy as np

import gangway as gw

VOCAB, SEQUENCE, ROWS, MICROBATCHES = 32, 32, 8, 2
steps = int((*sys.argv, 40)[1])


def batch(step, first, last):
    """Rows first to last of a step's batch: counting by a step of each row's own, the same in every language."""
    place = np.arange(SEQUENCE)
    return np.array([(place * (row % 4 + 1) + row + step) % VOCAB for row in range(first, last)], np.int64)


with gw.init(tp=2, pp=2) as gangs:  # dp_shard is what is left
    model = gw.Llama(vocab=VOCAB, dim=32, layers=4, heads=4, kv_heads=2).parallelize(
        gangs, strategy="full_shard", seed=1,  # over dp_shard
        sequence_parallel=True, loss_parallel=True,  # over tp
        schedule="1f1b", stage_split="by_cost")  # over pp
    opt = gw.AdamW(model, lr=1e-2)
    shard, shards = gangs.data_shard  # the ranks of a data coordinate read the same rows
    for step in range(1, steps + 1):
        tokens = batch(step, ROWS * shard // shards, ROWS * (shard + 1) // shards)
        result = gw.train_step(model, opt, tokens, microbatches=MICROBATCHES, max_grad_norm=1.0)
        if gangs.rank == 0 and (step == 1 or step % 10 == 0):
            print(f"step {step}  loss {result.loss:.3f}", flush=True)
    assert result.loss < 1.0
