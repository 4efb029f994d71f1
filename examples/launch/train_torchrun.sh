#!/bin/bash
# Trains under torchrun, which starts the ranks again when one dies; they continue from the newest checkpoint.
#   usage: bash examples/launch/train_torchrun.sh RANKS run.toml [--section.key value]...
#   on several hosts, each with RANKS ranks: the same on each of them with NODES=2 FIRST=node1:29400, the number of
#   hosts and one of them with a free port, and with GANGWAY_SECRET_FILE, a file of 32 random bytes, equal on all
set -u
ranks=$1 where=()
shift
[ -z "${NODES:-}" ] || where=(--nnodes "$NODES" --rdzv-backend c10d --rdzv-endpoint "$FIRST" --rdzv-id gw-train)
exec torchrun "${where[@]}" --nproc-per-node "$ranks" --max-restarts 3 --no-python gw-train "$@"
