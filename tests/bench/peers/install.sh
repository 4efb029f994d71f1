#!/usr/bin/env bash
# Installs what the benchmarks are compared with: install.sh collectives|train FOLDER
set -euo pipefail
what=$1 folder=$2
case $what in
  collectives)
    sudo=""
    [ "$(id -u)" = 0 ] || sudo=sudo
    $sudo apt-get update -q
    $sudo apt-get install -y -q --no-install-recommends libopenmpi-dev openmpi-bin libmpich-dev mpich
    $sudo apt-get install -y -q --no-install-recommends libgloo-dev || echo "no package libgloo-dev here" ;;
  train)
    [ -x "$folder/venv/bin/python" ] || python3 -m venv "$folder/venv"
    "$folder/venv/bin/python" -c 'import torch, transformers' 2>/dev/null ||
      "$folder/venv/bin/python" -m pip install --no-cache-dir torch numpy transformers ;;
  *) echo "usage: install.sh collectives|train FOLDER" >&2; exit 2 ;;
esac
