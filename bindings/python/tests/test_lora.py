"""Adapters: applied, trained, saved as PEFT has them, switched off and merged."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from ranks import together
from small_llama import SMALL, rows

import gangway as gw


@together(1, 2)
def test_adapters_train_and_their_files_load(gangs):
    folder = Path(gangs.root.broadcast_object(tempfile.mkdtemp() if gangs.rank == 0 else None))
    model = gw.Llama(**SMALL).lora_apply(["**.q_proj", "**.v_proj"], rank=2, alpha=4, seed=3)
    model.parallelize(gangs, master_dtype="float64")
    assert {p.name.split(".", 3)[-1] for p in model if p.trainable} == {
        f"self_attn.{layer}.lora_{factor}.weight" for layer in ("q_proj", "v_proj") for factor in "AB"}
    opt, batch = gw.SGD(model, lr=0.5), rows(gangs)
    base = gw.eval_step(model, batch).loss
    for _ in range(3):
        gw.train_step(model, opt, batch)
    trained = gw.eval_step(model, batch).loss
    assert trained < base
    assert gw.eval_step(model.lora_enable(False), batch).loss == base
    assert gw.eval_step(model.lora_enable(), batch).loss == trained

    model.lora_save(folder, base="a-base")
    config = json.loads((folder / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["target_modules"]) == (2, 4, ["q_proj", "v_proj"])
    assert config["base_model_name_or_path"] == "a-base"
    again = gw.Llama(**SMALL).lora_apply_folder(folder).parallelize(gangs, master_dtype="float64")
    assert gw.eval_step(again.lora_load(folder), batch).loss == trained

    with pytest.raises(gw.InvalidState, match="lora_merge adds them"):
        model.save(folder)
    model.lora_merge().save(folder)
    plain = gw.Llama(**SMALL).parallelize(gangs, master_dtype="float64").load(folder)
    np.testing.assert_allclose(gw.eval_step(plain, batch).loss, trained, rtol=1e-12)


def test_wrong_adapters_are_refused():
    with pytest.raises(gw.NotFound, match=r"\*\*.x_proj"):
        gw.Llama(**SMALL).lora_apply("**.x_proj")
    with pytest.raises(gw.InvalidArgument, match="rank is 0"):
        gw.Llama(**SMALL).lora_apply(rank=0)
    with pytest.raises(gw.InvalidArgument, match="dropout is 1"):
        gw.Llama(**SMALL).lora_apply(dropout=1)
    with pytest.raises(FileNotFoundError):
        gw.Llama(**SMALL).lora_apply_folder("/nonexistent")
