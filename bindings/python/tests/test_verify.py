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
