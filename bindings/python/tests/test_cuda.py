"""Gangs and models of device "cuda", on the software GPU of the build (GANGWAY_TEST_GPUS is the folder of its modules)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gangway as gw
from ranks import GPUS, launch


def test_a_model_on_a_gpu_is_read_written_and_trained_from_numpy() -> None:
    """One rank: the GPUs of the software are of one process."""
    if not Path(GPUS, "libgangway_cuda.so").exists():
        pytest.skip("the build has no software GPU")
    assert "as on a CPU" in launch(1, __file__, timeout=120, gpus=True)


def losses(gangs: gw.Gangs) -> list[float]:
    model = gw.Llama(vocab=11, dim=8, layers=1, heads=2, ffn=16, max_positions=16).parallelize(
        gangs, strategy="full_shard", seed=3, master_dtype="f64")
    parameter = next(iter(model))
    whole = parameter.gather()
    parameter.assign(whole * 2)
    np.testing.assert_array_equal(parameter.gather(), whole * 2)
    first, last = parameter.rows
    np.testing.assert_array_equal(parameter.value(), whole[first:last] * 2)
    opt = gw.AdamW(model, lr=0.01)
    shard, shards = gangs.data_shard
    tokens = (np.arange(16).reshape(4, 4) * 3 % 11)[4 * shard // shards : 4 * (shard + 1) // shards]
    seen = [gw.train_step(model, opt, tokens).loss for _ in range(3)]
    assert isinstance(parameter.gradient(), np.ndarray)
    return seen


def main() -> None:
    with gw.init(device="cuda") as gangs:
        assert gangs.root.device == "cuda"
        assert gangs.root.empty((4,)).device == "cuda:0"
        on_gpu = losses(gangs)
    np.testing.assert_allclose(on_gpu, losses(gw.init(rank=0, size=1)), rtol=0, atol=1e-10)
    print("as on a CPU")


if __name__ == "__main__":
    main()
