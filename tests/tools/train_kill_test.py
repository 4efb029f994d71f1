#!/usr/bin/env python3
"""A run that is killed at random moments, and goes on by itself or by the same command, ends with the losses, values and states of
an undisturbed run, bit by bit; and whenever it is killed, its newest checkpoint is whole.

  usage: train_kill_test.py BUILD_DIR [--kills N] [--seed S]

A kill is SIGKILL to one rank, to all ranks, or to gangrun; a stop is SIGTERM to gangrun, after which the same command goes on.
Saves run beside nearly every step, so kills hit data, steps, evaluations, copies, writes, commits and clean-up."""
import argparse
import csv
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

CONFIG = """{"model_type": "llama", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
 "num_attention_heads": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "max_position_embeddings": 64}"""
RUN = """
[model]
folder = "{work}/model"
[data]
train = "{work}/text.u8"
validation = "{work}/validation.u8"
sequence = 32
[train]
steps = {steps}
global_batch = 4
[optimizer]
lr = 1e-3
[checkpoint]
folder = "{work}/unset"
every = 2
keep = 2
[evaluate]
every = 5
batches = 3
[metrics]
peak_tflops = 0.1
"""
RANKS = 2
STEPS, EVALUATIONS = 24, 5  # at 5, 10, 15, 20 and the end
# The columns of loss.csv that are numbers of the training; the others are times, and the memory of a process.
EQUAL = ("step", "tokens", "samples", "loss", "validation_loss", "grad_norm", "lr", "loss_scale", "skipped")


def children(pid):
    """The ranks of a gangrun: its children that are gw-train by now."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        name, rest = stat[stat.index("(") + 1:].rsplit(")", 1)
        if name == "gw-train" and int(rest.split()[1]) == pid:
            found.append(int(entry.name))
    return found


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Runs:
    def __init__(self, build, work):
        self.tools, self.work = build / "impl/tools", work
        (work / "model").mkdir()
        (work / "model/config.json").write_text(CONFIG)
        (work / "text.u8").write_bytes(b"".join(b"Sentence %d says that %d is seven times %d.\n" % (i, 7 * i, i) for i in range(2000)))
        (work / "validation.u8").write_bytes(b"".join(b"Sentence %d says nothing.\n" % i for i in range(500)))
        (work / "run.toml").write_text(RUN.format(work=work, steps=STEPS))

    def start(self, folder, log):
        command = [self.tools / "gangrun", "-n", str(RANKS), "--no-prefix", "--grace", "0.2", "--max-restarts", "20",
                   self.tools / "gw-train", self.work / "run.toml", "--checkpoint.folder", folder]
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def verify(self, folder):
        """The newest checkpoint is whole; there may be none yet."""
        if not any(folder.glob("step-*")):
            return
        done = subprocess.run([self.tools / "gw-checkpoint", "verify", folder], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"FAILED: {folder} is not whole after a kill:\n{done.stdout}{done.stderr}")

    def result(self, folder):
        last = folder / f"step-{STEPS:08}"
        with open(folder / "loss.csv", newline="") as file:
            rows = [tuple(row[name] for name in EQUAL) for row in csv.DictReader(file)]
        return rows, (last / "model.safetensors").read_bytes(), (last / "optimizer.safetensors").read_bytes()


def disturb(runs, folder, rng, duration):
    """One run with one kill or stop; returns what it was."""
    what = rng.choice(["one rank", "all ranks", "gangrun", "a stop of gangrun"])
    at = rng.uniform(0.0, duration)
    with open(runs.work / "log", "w") as log:
        job = runs.start(folder, log)
        time.sleep(at)
        ranks = children(job.pid)
        if what == "gangrun":
            kill(job.pid)
            job.wait()
            deadline = time.monotonic() + 20
            while any(pathlib.Path(f"/proc/{pid}").exists() for pid in ranks) and time.monotonic() < deadline:
                time.sleep(0.01)
            runs.verify(folder)
            job = runs.start(folder, log)
        elif what == "a stop of gangrun":
            job.terminate()
            stopped = job.wait(timeout=120)
            if stopped not in (0, 75, 128 + signal.SIGTERM, -signal.SIGTERM):
                print((runs.work / "log").read_text()[-3000:])
                raise SystemExit(f"FAILED: a stop at {at:.3f} s ended with {stopped}")
            runs.verify(folder)
            job = runs.start(folder, log)
        else:
            for pid in ranks if what == "all ranks" else ranks[:1] if rng.random() < 0.5 else ranks[-1:]:
                kill(pid)
        status = job.wait(timeout=120)
    if status != 0:
        print((runs.work / "log").read_text()[-3000:])
        raise SystemExit(f"FAILED: after {what} at {at:.3f} s the run ended with {status}")
    runs.verify(folder)
    return f"{what} at {at:.3f} s"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=int(os.environ.get("GANGWAY_TEST_KILLS", "20")))
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        runs = Runs(arguments.build.resolve(), work)
        began = time.monotonic()
        with open(work / "log", "w") as log:
            if runs.start(work / "calm", log).wait() != 0:
                print((work / "log").read_text()[-3000:])
                raise SystemExit("FAILED: the undisturbed run did not end well")
        duration = time.monotonic() - began
        wanted = runs.result(work / "calm")
        evaluations = sum(row[EQUAL.index("validation_loss")] != "" for row in wanted[0])
        if (len(wanted[0]), evaluations) != (STEPS, EVALUATIONS):
            raise SystemExit(f"FAILED: the undisturbed run has {len(wanted[0])} rows and {evaluations} evaluations")
        for i in range(arguments.kills):
            folder = work / f"run{i}"
            said = disturb(runs, folder, rng, duration)
            if runs.result(folder) != wanted:
                raise SystemExit(f"FAILED: after {said} the run ends otherwise than the undisturbed one")
            subprocess.run(["rm", "-rf", folder], check=True)
            print(f"kill {i + 1} of {arguments.kills}: {said}", flush=True)
    print(f"{arguments.kills} kills: every run ends as the undisturbed one")


if __name__ == "__main__":
    sys.exit(main())
