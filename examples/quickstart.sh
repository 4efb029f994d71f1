#!/usr/bin/env bash
# The main job in one command: installs what is missing, builds, and trains a small Llama on real text over two ranks with
# parameters, gradients and optimizer states sharded.
#   usage: bash examples/quickstart.sh [--help] [--text FILE] [--out FOLDER] [--mesh AXIS=N,...] [--no-install]
#     [--build-dir DIR | --built DIR] [-- OPTIONS OF gw-train]
# It makes token files of the text and runs gw-train with quickstart/run.toml; both are what a run of your own
# uses.
# --mesh: over which axes the model is split, and over how many ranks: tp=2, pp=2, dp_shard=2,tp=2. The axes are
# dp_replicate, dp_shard, cp, tp and pp. --built takes the programs of a build that is there and builds nothing.
# Leaves in FOLDER (default quickstart-out): loss.csv, loss.svg, metrics.jsonl, the checkpoint step-00000400
# with config.json and model.safetensors, and sample.txt (not over cp and pp). Where FOLDER has a checkpoint
# of a run that was stopped, it is continued.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/examples/packages.sh"
. "$top/examples/script.sh"

text='' out=$PWD/quickstart-out install=1 build=$top/build-release built=0 ranks=2 mesh=() more=()

# "tp=2,pp=2" as options of gw-train, and the number of ranks.
read_mesh() {
  local part
  ranks=1
  for part in ${1//,/ }; do
    if [[ ! $part =~ ^(dp_replicate|dp_shard|cp|tp|pp)=([1-9][0-9]*)$ ]]; then
      echo "--mesh takes degrees like tp=2 or dp_shard=2,pp=2 (dp_replicate, dp_shard, cp, tp, pp), not \"$part\"" >&2
      exit 2
    fi
    mesh+=("--mesh.${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}")
    ranks=$((ranks * BASH_REMATCH[2]))
    [ "${BASH_REMATCH[1]}" != pp ] || mesh+=(--train.microbatch 4) # so that the stages work at the same time
  done
}

while [ $# -gt 0 ]; do
  case $1 in --text|--out|--mesh|--build-dir|--built) need_value "$@" ;; esac
  case $1 in
    -h|--help) print_help "$0"; exit ;;
    --text) text=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --mesh) read_mesh "$2"; shift 2 ;;
    --no-install) install=0; shift ;;
    --build-dir) build=$2; shift 2 ;;
    --built) build=$2 built=1; shift 2 ;;
    --) shift; more=("$@"); break ;;
    *) echo "unknown option $1 (--help lists all)" >&2; exit 2 ;;
  esac
done
if [ -n "$text" ] && [ ! -r "$text" ]; then echo "--text $text: no such file, or it cannot be read" >&2; exit 2; fi

packages=("${build_packages[@]}")
[ -n "$text" ] || packages+=(jargon-text)
if [ $install -eq 1 ]; then install_packages "${packages[@]}"; fi

mkdir -p "$out"
if [ -z "$text" ]; then
  text=$out/text.txt
  archive=/usr/share/doc/jargon-text/jargon.txt.gz
  if [ -e $archive ]; then
    gzip -dc $archive >"$text"
  else # this system leaves out documentation when it installs a package
    unpack=$(mktemp -d)
    (cd "$unpack" && apt-get download -qq jargon-text && dpkg-deb -x jargon-text_*.deb .)
    gzip -dc "$unpack$archive" >"$text"
    rm -rf "$unpack"
  fi
fi

build_programs() {
  echo "Building into $build, which takes some minutes the first time ..."
  # The library and its tools, without the archive and the modules for MPI and GPUs.
  cmake -S "$top" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DGANGWAY_STATIC=OFF >"$out/build.log" 2>&1 &&
    with_progress "$out/build.log" ninja -C "$build" gangway gangrun gw-checkpoint gw-compare gw-info gw-plan \
      gw-tokens gw-trace gw-train ||
    { tail -n 30 "$out/build.log" >&2; echo "the build failed; all of it is in $out/build.log" >&2; exit 1; }
}
[ $built -eq 1 ] || build_programs

tools=$build/impl/tools
# Paragraphs are documents; a twentieth of them is for validation.
"$tools/gw-tokens" --separator '\n\n' --validation 0.05 "$text" "$out/text.u16"

echo "Training over $ranks ranks ..."
"$tools/gangrun" -n "$ranks" --no-prefix "$tools/gw-train" "$top/examples/quickstart/run.toml" \
  --model.folder "$top/examples/quickstart/model" --data.train "$out/text.u16" --data.validation "$out/text.validation.u16" \
  --checkpoint.folder "$out" "${mesh[@]}" "${more[@]}"
