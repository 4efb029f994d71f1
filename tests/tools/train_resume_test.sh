#!/usr/bin/env bash
# What gw-train says and does when a run is continued with other settings, data or base.
#   usage: train_resume_test.sh BUILD_DIR
set -euo pipefail
source "$(dirname "$0")/train_job.sh"
checkpoint=$tools/gw-checkpoint

# Each setting that changes the numbers is named, with both values.
ends 0 --optimizer.max_grad_norm 1
cp -r run kept
differs() { # TEXT OPTIONS...
  local text=$1
  shift
  rm -rf run && cp -r kept run
  ends 0 --train.steps 11 --optimizer.max_grad_norm 1 "$@"
  says "$text"
}
differs 'optimizer.max_grad_norm: 1 in the checkpoint, 0.5 now' --optimizer.max_grad_norm 0.5
differs 'train.global_batch: 2 in the checkpoint, 4 now' --train.global_batch 4
differs 'param_dtype: "f32" in the checkpoint, "bf16" now' --train.param_dtype bf16
differs 'model.fp8: none in the checkpoint, model.layers' --model.fp8 'model.layers.*.mlp.*'
differs 'schedule: "constant" in the checkpoint, "cosine" now' --optimizer.schedule cosine
differs 'this one is muon, which begins anew' --optimizer.name muon --checkpoint.strict false
rm -rf run && cp -r kept run
ends 0 --train.steps 11 --optimizer.max_grad_norm 1
is_silent_about 'in the checkpoint'
ends 64 --train.steps 12 --optimizer.name lion
says 'has the states of optimizer adamw, this one is lion'
ends 0 --checkpoint.folder delayed --model.fp8 'model.layers.*.mlp.*' --model.fp8_scaling delayed
ends 0 --checkpoint.folder delayed --model.fp8 'model.layers.*.mlp.*' --model.fp8_scaling delayed --train.steps 11
says 'the histories of delayed scales begin anew'

"$tools/gw-train" --explain run.toml --checkpoint.folder delayed --model.fp8 'model.layers.*.mlp.*' \
  --model.fp8_scaling delayed >log
says 'the histories of delayed FP8 scales begin anew'

# Other data under the same name and of the same size.
cp text.u8 before.u8
tr 'S' 'T' <before.u8 >text.u8
ends 64 --train.steps 12 --optimizer.max_grad_norm 1
says 'sources\[0\].files\[0\] has other contents than before'
cp before.u8 text.u8

# A damaged checkpoint: the older one is named, and continues.
ends 0 --checkpoint.folder damaged --checkpoint.every 5
printf '\125' | dd of=damaged/step-00000010/model.safetensors bs=1 seek=9000 conv=notrunc status=none
ends 65 --checkpoint.folder damaged --train.steps 11
says '--checkpoint.step 5 continues from the one before'
ends 0 --checkpoint.folder damaged --train.steps 11 --checkpoint.step 5

# A start that is refused leaves nothing behind.
ends 64 --checkpoint.folder refused --optimizer.nonsense 7
[ ! -e refused ] || fail "a refused start has left a folder"
ends 64 --evaluate.every 5
says 'evaluate.every = 5 asks for evaluations, but data.validation names no files'
mkdir fifo && mkfifo fifo/metrics.jsonl
ends 74 --checkpoint.folder fifo
says 'fifo/metrics.jsonl'

mkdir large && sed 's/"vocab_size": 256/"vocab_size": 2000/' model/config.json >large/config.json
# What a run would do is refused and counted as by the run.
explains() { # TEXT OPTIONS...
  local text=$1
  shift
  "$tools/gw-train" --explain run.toml --checkpoint.folder none "$@" >log 2>&1 || true
  says "$text"
}
explains 'optimizer 0.0 MiB' --optimizer.name sgd
explains 'there is no option nonsense' --optimizer.nonsense 7
explains 'fp8: no module matches' --model.fp8 'none.*'
explains '50.0 % of the rows' --data.train '["text.u8", "before.u8"]'
ends 64 --checkpoint.folder none --sample.prompt x --model.folder large
says 'is read as bytes, but the model has 2000 ids'

# Adapters: a checkpoint has them alone, and only their base continues them.
"$checkpoint" weights run base >/dev/null
"$checkpoint" weights kept other >/dev/null
lora=(--lora.rank 2 --optimizer.lr 1e-2 --checkpoint.folder lora)
ends 0 --model.folder base "${lora[@]}"
folder=lora/step-00000010
[ -s $folder/adapter/adapter_model.safetensors ] && [ -s $folder/adapter/adapter_config.json ] || fail "no adapter/: $(ls $folder)"
[ ! -e $folder/config.json ] && [ ! -e $folder/model.safetensors ] || fail "the checkpoint has the base: $(ls $folder)"
ends 64 --model.folder other "${lora[@]}" --train.steps 11
says 'the adapters were trained over another base'
ends 0 --model.folder base "${lora[@]}" --lora.alpha 16 --lora.dropout 0.5 --train.steps 11
says 'lora.alpha: 8'
says 'lora.dropout: 0'
"$checkpoint" verify lora >/dev/null || fail "verify of adapters"
if "$checkpoint" weights lora whole >log 2>&1; then fail "weights gave the base for a trained model"; fi
says 'gw-checkpoint merge'
"$checkpoint" merge lora base merged >log || fail "merge: $(cat log)"
[ -s merged/config.json ] && [ -s merged/model.safetensors ] || fail "merge wrote $(ls merged)"
if "$checkpoint" merge lora other elsewhere >log 2>&1; then fail "merge took another base"; fi
says 'is not the base of'
# The merged model computes what the base with the adapters does: a run of it that learns nothing has the same
# validation loss, which is another one than that of the base.
validation=(--data.validation text.u8 --evaluate.batches 4)
validation_loss() { tail -n 1 "$1/loss.csv" | cut -d, -f5; }
ends 0 --model.folder base "${lora[@]}" --train.steps 20 "${validation[@]}" --evaluate.every 20
"$checkpoint" merge lora base merged20 >/dev/null
for model in base merged20; do
  ends 0 --model.folder $model --optimizer.lr 0 --train.steps 1 "${validation[@]}" --evaluate.every 1 --checkpoint.folder of-$model
done
awk -v a="$(validation_loss lora)" -v b="$(validation_loss of-merged20)" -v base="$(validation_loss of-base)" \
  'BEGIN { d = a - b; e = a - base; exit !(a > 0 && d < 1e-5 && d > -1e-5 && (e > 1e-3 || e < -1e-3)) }' ||
  fail "validation loss: $(validation_loss lora) with adapters, $(validation_loss of-merged20) merged, $(validation_loss of-base) base"
# Fresh values are drawn again.
ends 0 --lora.rank 2 --checkpoint.folder fresh
ends 0 --lora.rank 2 --checkpoint.folder fresh --train.steps 11
grep -q '"base_model_name_or_path": null' fresh/step-00000011/adapter/adapter_config.json || fail "a checkpoint is named as a base"
echo "gw-train continues, and says what is other"
