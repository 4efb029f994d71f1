"""Evaluation and reload: the loss of a model on a text that it is not trained on, and the same loss of a model that is
made of the saved folder.

    python -m gangway.run -n 2 evaluate.py TEXT HELD_OUT_TEXT FOLDER
"""

import sys

import gangway as gw

BATCH, BATCHES = 8, 4


def evaluate(model, data, gangs):
    """The mean loss over the same rows at each call. It changes nothing of the model."""
    data.rows_taken = 0
    losses = [gw.eval_step(model, data.next(gangs, global_batch=BATCH)).loss for _ in range(BATCHES)]
    return sum(losses) / BATCHES


if len(sys.argv) != 4:
    sys.exit("usage: evaluate.py TEXT HELD_OUT_TEXT FOLDER")
text, held_out, folder = sys.argv[1:]

with gw.init() as gangs:
    model = gw.Llama(dim=32, layers=2, heads=2).parallelize(gangs, seed=1)
    opt = gw.AdamW(model, lr=3e-3)
    data = gw.Dataset(text, format="u8", sequence=32, seed=1)  # a token is a byte
    validation = gw.Dataset(held_out, format="u8", sequence=32, seed=1)
    for step in range(1, 21):
        gw.train_step(model, opt, data.next(gangs, global_batch=BATCH))
        if step % 10 == 0:
            loss = evaluate(model, validation, gangs)
            if gangs.rank == 0:
                print(f"step {step}  validation loss {loss:.6f}")
    model.save(folder)  # Hugging Face's names, safetensors
    again = evaluate(gw.from_pretrained(folder, gangs), validation, gangs)
    if gangs.rank == 0:
        print(f"reloaded  validation loss {again:.6f}")
    assert again == loss
