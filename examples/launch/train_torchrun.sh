#!/bin/bash
# Trains under torchrun, which starts the ranks again when one dies; they continue from the newest checkpoint.
#   usage: bash examples/launch/train_torchrun.sh RANKS run.toml [--section.key value]...
set -u
ranks=$1
shift
exec torchrun --nproc-per-node "$ranks" --max-restarts 3 --no-python gw-train "$@"
