"""A small Llama and four rows of tokens, dealt out to the data ranks."""

import numpy as np

SMALL = dict(dim=16, layers=2, heads=2, vocab=32)


def rows(gangs):
    index, parts = gangs.data_shard
    every = np.arange(4 * 8).reshape(4, 8) * 7 % 32
    return every[4 * index // parts : 4 * (index + 1) // parts].copy()
