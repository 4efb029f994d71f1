#!/usr/bin/env bash
# The three commands of README's "Train your own text", as they stand there, on a text of this test: they
# leave a model and its losses. The third one gets a few options at its end, so that it takes seconds.
#   usage: three_commands_test.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
source=$1 tools=$2/impl/tools
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

# The first block of code below the heading.
commands=$(awk '/^## Train your own text in three commands/ { here = 1 } here && /^```/ { if (inside) exit; inside = 1; next } inside' \
  "$source/README.md")
[ "$(grep -c '^[a-z]' <<<"$commands")" -eq 3 ] || fail "README has other than three commands: $commands"
[[ $(tail -n 1 <<<"$commands") == *--checkpoint.folder* ]] || fail "the last command of README is not the training: $commands"

ln -s "$source/examples" "$work/examples"
for i in $(seq 1 400); do printf 'Sentence %d says that %d is seven times %d.\n\n' "$i" $((i * 7)) "$i"; done >"$work/my.txt"
run() { # COMMANDS: as a user whose path has the tools
  (cd "$work" && PATH=$tools:$PATH bash -euo pipefail -c "$1 --train.steps 4 --train.global_batch 4 --data.sequence 32 \
    --optimizer.warmup_steps 1 --evaluate.every 2 --evaluate.batches 1 --sample.tokens 8" >log 2>&1) || { cat "$work/log"; fail "a command fails"; }
}
run "$commands"
for file in my.u16 my.validation.u16 my-run/run.toml my-run/model/config.json my-run/out/loss.svg my-run/out/metrics.jsonl \
  my-run/out/sample.txt my-run/out/step-00000004/{config.json,model.safetensors,state.json}; do
  [ -s "$work/$file" ] || { cat "$work/log"; fail "$file is empty or absent"; }
done
[ "$(wc -l <"$work/my-run/out/loss.csv")" -eq 5 ] || { cat "$work/log"; fail "loss.csv has not 4 rows"; }
tail -n 1 "$work/my-run/out/loss.csv" | cut -d, -f5 | grep -q '[0-9]' || fail "the last row has no validation loss"

# "The same command continues a run from its newest checkpoint."
run "$(awk '/^gangrun/ { here = 1 } here' <<<"$commands")"
grep -q 'continuing .* after step 4' "$work/log" || { cat "$work/log"; fail "the third command does not continue the run"; }
echo "README's three commands work"
