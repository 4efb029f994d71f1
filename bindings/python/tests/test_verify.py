"""A step over a mesh against the same step on one rank."""

import numpy as np
import pytest
from ranks import together

import gangway as gw

SMALL = dict(dim=16, layers=2, heads=2, vocab=32)


@together(2)
def test_a_decoder_is_the_same_over_a_mesh(gangs):
    tokens = np.arange(2 * 8).reshape(2, 8) * (3 + gangs.root.rank) % 32
    found = gw.verify(lambda: gw.Llama(**SMALL), tokens, gangs=gangs, parallel={"strategy": "shard_grad_op"})
    assert found.differing == 0 and found.parameters == 21 and abs(found.loss - found.mesh_loss) < 1e-12


def test_wrong_builders_are_told():
    tokens = np.zeros((1, 4), np.int64)
    with pytest.raises(TypeError, match="what build returns is a int"):
        gw.verify(lambda: 3, tokens)
    dims = iter((16, 32))
    with pytest.raises(gw.InvalidArgument, match="built another model the second time"):
        gw.verify(lambda: gw.Llama(**{**SMALL, "dim": next(dims)}), tokens)
    with pytest.raises(gw.InvalidArgument, match="tolerance is 0"):
        gw.verify(lambda: gw.Llama(**SMALL), tokens, tolerance=0)
    with pytest.raises(TypeError, match="strategi"):
        gw.verify(lambda: gw.Llama(**SMALL), tokens, parallel={"strategi": "full_shard"})


ROWS = np.arange(24.0).reshape(8, 3) % 7 - 3


def step_of(wrong=""):
    """A step of the mean of (x . w)^2 / 2 over the rows, with an error over several ranks."""

    def step(gangs):
        index, count = gangs.data_shard
        w = gw.ShardGroup(gangs, "g", {"w": np.array([0.5, -1.0, 2.0], np.float32 if wrong == "dtype" else np.float64)})
        rows = ROWS[index * 8 // count:(index + 1) * 8 // count]
        with w.unsharded() as full:
            y = rows @ full["w"]
            scale = 1 / len(ROWS) if wrong != "divisor" else 1 / len(rows)
            w.add_gradients({"w": rows.T @ y * scale})
        if wrong != "reduce":
            w.reduce()
        if wrong == "loss":
            return (y * y).mean() / 2, w
        return gangs["dp"].all_sum((y * y).sum() / 2) / len(ROWS), w

    return step


@together(1, 2, not_on_gpus="NumPy cannot compute in a GPU's memory")
def test_a_step_with_shard_groups_is_the_same_over_a_mesh(gangs):
    found = gw.verify_groups(step_of(), gangs)
    assert found.differing == 0 and found.parameters == 1 and found.grad_norm > 0
    assert abs(found.loss - found.mesh_loss) < 1e-12


@together(2, not_on_gpus="NumPy cannot compute in a GPU's memory")
def test_errors_of_a_step_with_shard_groups_are_named(gangs):
    with pytest.raises(gw.Mismatch, match="the gradient of g.w differs by 1 of its norm"):
        gw.verify_groups(step_of("divisor"), gangs)
    with pytest.raises(gw.Mismatch, match="the loss is "):
        gw.verify_groups(step_of("loss"), gangs)
    with pytest.raises(gw.InvalidArgument, match="parameter g.w is f32"):
        gw.verify_groups(step_of("dtype"), gangs)
    with pytest.raises(gw.InvalidState, match='shard group "g" .* not reduced'):
        gw.verify_groups(step_of("reduce"), gangs)
