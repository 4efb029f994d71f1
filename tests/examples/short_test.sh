#!/usr/bin/env bash
# The four C examples have less than 60 lines each, what they include of example.h counted, of at most 110 columns.
#   usage: short_test.sh EXAMPLES-FOLDER
set -euo pipefail
cd "$1"
programs=(0?_*.c)
[ ${#programs[@]} -eq 4 ] || { echo "FAILED: the examples are ${programs[*]}" >&2; exit 1; }
awk -v shared="$(wc -l <example.h)" '
  length > 110 { print FILENAME ":" FNR " has " length " columns"; bad = 1 }
  FNR + shared == 60 && FILENAME != "example.h" { print FILENAME " has 60 lines or more, with example.h"; bad = 1 }
  END { exit bad }' "${programs[@]}" example.h
