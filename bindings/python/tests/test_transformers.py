"""A checkpoint of a run is a model of Hugging Face: transformers opens it as it is, and computes the same logits."""

from pathlib import Path

import numpy as np
import pytest

import gangway as gw

torch = pytest.importorskip("torch", reason="PyTorch is not installed; test.sh says from where it is borrowed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed; it is borrowed beside PyTorch")

DATA = Path(__file__).parents[3] / "tests" / "data"
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "olmo2", "gpt2", "phi3", "phi3_longrope")
FOLDERS = (*(f"families/{family}" for family in FAMILIES), "folders/llama3_bf16_sharded", "folders/llama_biases_f32",
           "folders/mistral_bf16", "folders/qwen2_f16_tied")


def config_of(folder):
    """What the class of transformers reads, without what has no meaning: who wrote the file, the dtype of the tensors, names that
    rope_parameters repeat, and the length of the origin where no scaling asks for it."""
    config = transformers.AutoConfig.from_pretrained(folder).to_dict()
    for key in ("_name_or_path", "dtype", "transformers_version", "partial_rotary_factor"):
        config.pop(key, None)
    rope = config.get("rope_parameters") or {}
    rope.pop("type", None)  # transformers 4 has it for rope_type
    if rope.get("rope_type") == "default":
        config.pop("original_max_position_embeddings", None)
    return config


@pytest.mark.parametrize("name", FOLDERS)
def test_transformers_opens_a_checkpoint_and_gives_the_same_logits(name, tmp_path):
    model = gw.from_pretrained(DATA / name, master_dtype="f64")
    opt = gw.AdamW(model, lr=1e-3)
    tokens = np.random.default_rng(1).integers(0, 19, (2, 12))
    for _ in range(2):
        gw.train_step(model, opt, tokens)
    run = gw.Checkpoints(tmp_path, synchronous=True, max_file_bytes=20_000)  # several files with an index
    run.save(model, opt, step=2)
    run.release()
    (ours,) = model.forward(tokens)

    theirs, report = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "step-00000002", dtype=torch.float64, attn_implementation="eager", output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    assert config_of(tmp_path / "step-00000002") == config_of(DATA / name)
    with torch.no_grad():
        logits = theirs.eval()(torch.tensor(tokens)).logits.numpy()
    # transformers rotates by angles in f32
    assert np.linalg.norm(ours - logits) < 1e-6 * np.linalg.norm(logits)
