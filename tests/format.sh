#!/usr/bin/env bash
# Holds every C and C++ file to .clang-format, but those that a generator writes. Versions of clang-format differ in what
# they write; 14 decides.
#   usage: bash tests/format.sh [--write]      1: a file differs; 77: no clang-format 14 here
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
tool=$(command -v clang-format-14 || command -v clang-format) || { echo "skipped: no clang-format"; exit 77; }
case $("$tool" --version) in
  *" version 14."*) ;;
  *) echo "skipped: $("$tool" --version), not 14"; exit 77 ;;
esac
mode=(--dry-run -Werror)
[ "${1:-}" != --write ] || mode=(-i)
find capi impl tests bindings/python/swig -type f \( -name '*.h' -o -name '*.c' -o -name '*.cpp' \) \
  ! -path capi/api.cpp ! -path capi/include/gangway/api.h ! -path capi/optimizers.cpp \
  ! -path capi/include/gangway/optimizers.h ! -path tests/capi/optimizer_rows.h -print0 | xargs -0 -r "$tool" "${mode[@]}"
