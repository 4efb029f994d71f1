#!/usr/bin/env bash
# The main job in one command: installs what lacks, builds, and trains a small Llama on real text over two ranks with
# parameters, gradients and optimizer states sharded.
#   usage: bash examples/quickstart.sh [--text FILE] [--out FOLDER] [--no-install] [--build-dir DIR | --built DIR]
# --built takes the programs of a build that is there and builds nothing.
# Leaves in FOLDER (default quickstart-out): loss.csv, loss.svg, model.safetensors, config.json, sample.txt.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/examples/packages.sh"

text='' out=$PWD/quickstart-out install=1 build=$top/build-release built=0
while [ $# -gt 0 ]; do
  case $1 in
    --text) text=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --no-install) install=0; shift ;;
    --build-dir) build=$2; shift 2 ;;
    --built) build=$2 built=1; shift 2 ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
done

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
  echo "Building into $build ..."
  cmake -S "$top" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo >"$out/build.log" 2>&1 &&
    ninja -C "$build" gangway gangrun llama_trainer >>"$out/build.log" 2>&1 ||
    { tail -n 30 "$out/build.log" >&2; echo "the build failed; all of it is in $out/build.log" >&2; exit 1; }
}
[ $built -eq 1 ] || build_programs

echo "Training over two ranks ..."
"$build/impl/tools/gangrun" -n 2 --no-prefix "$build/examples/llama_trainer" --text "$text" --out "$out"
