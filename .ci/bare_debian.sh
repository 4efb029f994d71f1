#!/usr/bin/env bash
# A newcomer's first command, and README's three of a training, on a bare Debian 13.
set -euo pipefail
cd "$(dirname "$0")/.."
bash tests/fresh_machine.sh --or-skip . \
  'bash examples/quickstart.sh && bash tests/examples/three_commands_test.sh "$PWD" "$PWD/build-release"'
