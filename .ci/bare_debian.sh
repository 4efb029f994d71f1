#!/usr/bin/env bash
# A newcomer's first command, and README's three of a training, on a bare Debian 13. They take minutes and
# can break only where build files or package lists change, so they are skipped while those are the ones with
# which they passed last: bare_debian.sum has their checksum, comments left out.
#   usage: .ci/bare_debian.sh             runs where the files differ from the recorded ones
#          .ci/bare_debian.sh --record    always runs, and records the files when it passes; commit bare_debian.sum then
set -euo pipefail
cd "$(dirname "$0")/.."
record=.ci/bare_debian.sum
now=$({ git ls-files -- '*CMakeLists.txt' '*.cmake' '*.in' 'examples/*.sh' ':!tests'; echo tests/fresh_machine.sh; } |
  sort | xargs sed '/^[[:space:]]*#/d' | sha256sum | cut -d ' ' -f 1)
if [ "${1:-}" != --record ] && [ "$now" = "$(cat "$record" 2>/dev/null)" ]; then
  echo "skipped: the build files and package lists are those with which the quickstart passed last on a bare Debian"
  echo "0 passed, 0 failed, 1 skipped"
  exit
fi
bash tests/fresh_machine.sh --or-skip . \
  'bash examples/quickstart.sh && bash tests/examples/three_commands_test.sh "$PWD" "$PWD/build-release"'
[ "${1:-}" != --record ] || echo "$now" >"$record"
