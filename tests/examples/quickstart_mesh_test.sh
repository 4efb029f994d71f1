#!/usr/bin/env bash
# The quickstart over other axes of the mesh: as many ranks as the degrees multiply to, the same first losses on each.
#   usage: quickstart_mesh_test.sh QUICKSTART BUILD_DIR
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; cat "$work/log" >&2; exit 1; }
for i in $(seq 1 500); do printf 'Sentence %d says that %d is seven times %d.\n\n' $i $((i * 7)) $i; done >"$work/text"
mkdir "$work/model"
sed 's/"hidden_size": 128/"hidden_size": 32/; s/"intermediate_size": 352/"intermediate_size": 96/; s/layers": 6/layers": 4/' \
  "$(dirname "$1")/quickstart/model/config.json" >"$work/model/config.json"

quickstart() { # MESH...
  rm -rf "$work/out"
  bash "$quick" --no-install --built "$build" --text "$work/text" --out "$work/out" "$@" >"$work/log" 2>&1
}
quick=$1 build=$2
small=(-- --model.folder "$work/model" --train.steps 2 --optimizer.warmup_steps 1 --data.sequence 32 --sample.tokens 8 --metrics.peak_tflops 0.1)
losses() { cut -d, -f4 "$work/out/loss.csv" | tail -n 2; }

quickstart "${small[@]}" || fail "two ranks"
grep -q '^Training over 2 ranks' "$work/log" || fail "without a mesh there are not two ranks"
losses >"$work/want"
for mesh in tp=2 pp=2 cp=2 dp_shard=1,tp=2 dp_replicate=2,tp=2; do
  quickstart --mesh $mesh "${small[@]}" || fail "$mesh"
  ranks=2
  [ $mesh != dp_replicate=2,tp=2 ] || ranks=4
  grep -q "^Training over $ranks ranks" "$work/log" || fail "$mesh does not take $ranks ranks"
  [ -s "$work/out/step-00000002/model.safetensors" ] || fail "$mesh leaves no model"
  losses | paste "$work/want" - | awk '{ d = $1 - $2; if (d > 1e-4 || d < -1e-4) exit 1 }' ||
    fail "$mesh: losses $(losses | xargs), wanted $(xargs <"$work/want")"
done
for wrong in tp tp=0 tp=two ep=2; do
  code=0
  quickstart --mesh "$wrong" "${small[@]}" || code=$?
  [ $code -eq 2 ] || fail "--mesh $wrong ended with code $code, not 2"
  grep -q "not \"$wrong\"" "$work/log" || fail "--mesh $wrong is not named"
done
