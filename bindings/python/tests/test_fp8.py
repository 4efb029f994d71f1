"""Layers in FP8: chosen by patterns, trained over ranks, refused."""

import numpy as np
import pytest
from ranks import together
from small_llama import SMALL, rows

import gangway as gw


@together(1, 2)
def test_layers_in_fp8_train(gangs):
    batch = rows(gangs)
    plain = gw.eval_step(gw.Llama(**SMALL).parallelize(gangs, seed=3), batch).loss
    for scaling in ("tensor", "delayed", "row"):
        model = gw.Llama(**SMALL).fp8_apply(["model.layers.*.mlp.*", "**.o_proj"], scaling=scaling).parallelize(gangs, seed=3)
        opt = gw.SGD(model, lr=0.5)
        rounded = gw.eval_step(model, batch).loss
        assert rounded != plain
        np.testing.assert_allclose(rounded, plain, rtol=0.05)
        for _ in range(3):
            gw.train_step(model, opt, batch)
        assert gw.eval_step(model, batch).loss < rounded


def test_wrong_choices_are_refused():
    with pytest.raises(gw.NotFound, match=r"\*\*.x_proj"):
        gw.Llama(**SMALL).fp8_apply("**.x_proj")
    with pytest.raises(gw.InvalidArgument, match="only a Linear computes in FP8"):
        gw.Llama(**SMALL).fp8_apply("model.layers.*")
    with pytest.raises(gw.InvalidArgument, match="history is 0"):
        gw.Llama(**SMALL).fp8_apply(scaling=gw.Fp8Scaling.DELAYED, history=0)
