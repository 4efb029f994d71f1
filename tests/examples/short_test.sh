#!/usr/bin/env bash
# Each C example is read in one go: less than 120 lines, of at most 110 columns.
#   usage: short_test.sh EXAMPLES-FOLDER
set -euo pipefail
cd "$1"
programs=([0-9][0-9]_*.c)
[ ${#programs[@]} -eq 11 ] || { echo "FAILED: the examples are ${programs[*]}" >&2; exit 1; }
awk '
  length > 110 { print FILENAME ":" FNR " has " length " columns"; bad = 1 }
  FNR == 120 { print FILENAME " has 120 lines or more"; bad = 1 }
  END { exit bad }' "${programs[@]}" example.h settings.h
