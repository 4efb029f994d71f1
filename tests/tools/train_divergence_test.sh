#!/usr/bin/env bash
# gw-train tells of skipped steps, ends a run that diverges, and keeps the good checkpoints.
#   usage: train_divergence_test.sh BUILD_DIR
set -euo pipefail
source "$(dirname "$0")/train_job.sh"

keep=(--checkpoint.every 5 --checkpoint.keep 2)
ends 0 "${keep[@]}"
# Step 11 makes the values so large that every later loss is not finite.
ends 76 "${keep[@]}" --train.steps 60 --optimizer.lr 1e20 --optimizer.max_grad_norm 1 --train.max_skips 12
says 'step 12 is skipped: its loss or a gradient is not finite (12 steps like this in a row end the run)'
says 'the run ends after step 23, and does not save it: the last 12 steps changed nothing'
[ -d run/step-00000010 ] || fail "the last good checkpoint is gone: $(ls run)"
# Of those after skipped steps alone the newest counts, and the oldest stays beside it.
[ "$(ls -d run/step-* | wc -l)" -eq 3 ] || fail "keep = 2 has left $(ls -d run/step-*)"
tail -n 1 run/metrics.jsonl | grep -q '"loss": .*"skipped": 1' || fail "the row of a skipped step does not say so"
# gangrun does not start it again: it would do the same.
code=0
"$tools/gangrun" -n 1 --no-prefix --max-restarts 3 "$tools/gw-train" run.toml --train.steps 60 --train.max_skips 2 \
  "${keep[@]}" >log 2>&1 || code=$?
[ $code -eq 76 ] || fail "under gangrun it ended with $code"
is_silent_about 'restart 1 of 3'
# An older checkpoint continues.
ends 0 "${keep[@]}" --train.steps 12 --checkpoint.step 10
says 'continuing run after step 10'

# Losses above those before: with this ratio any that is above their mean.
ends 76 --checkpoint.folder spikes --train.steps 200 --optimizer.lr 1e-12 --train.max_spikes 2 --train.spike_ratio 1.0001
says 'its last 2 steps had losses over train.spike_ratio times the mean: the last is'
echo "gw-train notices a run that diverges"
