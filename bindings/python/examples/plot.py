"""Draws the loss curve that train_llama.py left.

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

step, loss, speed = np.loadtxt(sys.argv[1], delimiter=",", skiprows=1, unpack=True)
figure, left = plt.subplots(figsize=(7, 4))
left.plot(step, loss, color="tab:blue")
left.set(xlabel="step", ylabel="loss (nats a byte)")
right = left.twinx()
right.plot(step, speed, color="tab:gray", alpha=0.4)
right.set_ylabel("tokens/s")
figure.tight_layout()
figure.savefig(sys.argv[2])
print(f"wrote {sys.argv[2]}")
