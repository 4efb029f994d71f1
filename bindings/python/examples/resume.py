"""A run that outlives its ranks: every 5 steps it saves all that changes the next step. A program that is started
again goes on from the newest checkpoint, with the losses of a run that was never stopped.

    python -m gangway.run -n 2 --max-restarts 2 python resume.py TEXT FOLDER [DIE]

DIE: before this step rank 1 kills itself, in the first attempt alone.
"""

import os
import signal
import sys

import gangway as gw

SEQUENCE, BATCH, STEPS, EVERY = 32, 8, 20, 5

if len(sys.argv) < 3:
    sys.exit("usage: resume.py TEXT FOLDER [DIE]")
text, folder, die = sys.argv[1], sys.argv[2], int((*sys.argv, 0)[3])
if os.environ.get("GANGWAY_RESTART_COUNT", "0") != "0":  # set by gangrun
    die = 0

with gw.init() as gangs:
    model = gw.Llama(dim=32, layers=2, heads=2).parallelize(gangs, seed=1)
    opt = gw.AdamW(model, lr=3e-3)
    data = gw.Dataset(text, format="u8", sequence=SEQUENCE, seed=1)  # a token is a byte
    run = gw.Checkpoints(folder, gangs=gangs, every=EVERY)
    state = run.restore(model, opt, data)  # None: a new run
    if state and gangs.rank == 0:
        print(f"goes on after step {state.step}", flush=True)
    while data.batches_taken < STEPS:
        step = data.batches_taken + 1
        if step == die and gangs.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        result = gw.train_step(model, opt, data.next(gangs, global_batch=BATCH))
        if gangs.rank == 0:
            print(f"step {step}  loss {result.loss:.17f}", flush=True)
        if run.due(step):
            run.save(model, opt, data, tokens=step * BATCH * SEQUENCE)  # copies the values; a thread writes them
    run.wait()  # until the last one is written
    run.release()
