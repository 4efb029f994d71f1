"""Draws loss and memory of a training, from what train_llama.py left.

    python plot.py train-out/loss.csv loss.svg
"""

import importlib.util
import sys

import numpy as np

if importlib.util.find_spec("matplotlib") is None:
    print("skipped: matplotlib is not installed")
    sys.exit(0)

import matplotlib  # noqa: E402

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

step, loss, speed, memory = np.loadtxt(sys.argv[1], delimiter=",", skiprows=1, unpack=True)
figure, (upper, lower) = plt.subplots(2, figsize=(7, 5), sharex=True, height_ratios=(2, 1))
upper.plot(step, loss, color="tab:blue")
upper.set(ylabel="loss (nats a byte)", title=f"{np.median(speed):.0f} tokens/s")
lower.fill_between(step, memory, color="tab:green", alpha=0.5)
lower.set(xlabel="step", ylabel="MiB on rank 0", ylim=(0, None))
figure.tight_layout()
figure.savefig(sys.argv[2])
print(f"wrote {sys.argv[2]}")
