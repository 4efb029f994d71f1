"""Trains a byte-level Llama by DPO (Rafailov and others, "Direct Preference Optimization", 2023) to prefer the next bytes of a
text over random ones. Logits never exist: the loss comes from log-probabilities, and the step from its derivatives by them.

    python -m gangway.run -n 2 python dpo.py TEXT [STEPS]
"""

import sys
from pathlib import Path

import numpy as np

import gangway as gw

PAIRS, PROMPT, ANSWER, BETA = 4, 16, 16, 0.1  # pairs of a rank's batch; tokens; how far the policy may go


def batch(text, random):
    """Rows of tokens, the chosen ones first, and the labels of their answers."""
    starts = random.integers(0, len(text) - PROMPT - ANSWER, PAIRS)
    chosen = np.array([text[start : start + PROMPT + ANSWER] for start in starts], np.int64)
    rejected = chosen.copy()
    rejected[:, PROMPT:] = random.integers(0, 256, (PAIRS, ANSWER))
    tokens = np.concatenate([chosen, rejected])
    labels = np.full_like(tokens, -100)  # label[i] is what token[i] must predict; prompts do not count
    labels[:, PROMPT - 1 : -1] = tokens[:, PROMPT:]
    return tokens, labels


def dpo(policy, reference, beta=BETA):
    """The loss of each pair, and its derivative by every log-probability of the policy, both of [2 pairs, sequence]."""
    margin = (policy - reference).sum(1)
    margin = beta * (margin[: len(margin) // 2] - margin[len(margin) // 2 :])
    loss = np.logaddexp(0, -margin)  # -log(sigmoid(margin))
    slope = -beta / (1 + np.exp(margin))  # by the chosen row's sum; by the rejected row's it is the opposite
    return loss, np.concatenate([slope, -slope])[:, None] * np.ones_like(policy)


def main():
    text, steps = np.frombuffer(Path(sys.argv[1]).read_bytes(), np.uint8), int((*sys.argv, 50)[2])
    with gw.init() as gangs:
        model, reference = (gw.Llama(dim=64, layers=2, heads=4).parallelize(gangs, seed=1) for _ in range(2))
        opt = gw.AdamW(model, lr=1e-3)
        shard, shards = gangs.data_shard
        for step in range(1, steps + 1):
            tokens, labels = batch(text, np.random.default_rng([step, shard]))
            loss, slopes = dpo(gw.log_probs(model, tokens, labels), gw.log_probs(reference, tokens, labels))
            gw.train_step(model, opt, tokens, labels, token_weights=-slopes, weight=PAIRS, max_grad_norm=1.0)
            if shard == 0 and (step == 1 or step % 10 == 0):
                print(f"step {step}/{steps}  loss {loss.mean():.4f}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: dpo.py TEXT [STEPS]")
    main()
