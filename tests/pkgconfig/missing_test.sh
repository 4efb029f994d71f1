#!/usr/bin/env bash
# missing_test.sh SOURCE-FOLDER: checks whose tool is not installed fail, or with GANGWAY_ALLOW_MISSING=1 are skipped by 77.
set -uo pipefail
source=$1 bad=0
export soname=libgangway.so.any release=0.0.0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for tool in bash chmod mktemp rm true; do ln -s "$(command -v $tool)" "$work/$tool"; done
python=$(python3 -c 'import sys; print(sys.executable)')  # the one in PATH may be a script that needs more than these

ends() { # STATUS TEXT ALLOWED COMMAND...
  local said status
  said=$(PATH=$work GANGWAY_ALLOW_MISSING=$3 "${@:4}" 2>&1)
  status=$?
  case $said in *"$2"*) [ $status -eq "$1" ] && return ;; esac
  echo "${*:4} ended with $status, not $1: $said"
  bad=1
}
each() { # TEXT COMMAND...
  ends 1 "$1" 0 "${@:2}"
  ends 77 "$1" 1 "${@:2}"
}
each clang "$python" "$source/tests/capi/header_test.py" "$source/capi/include"
each mandoc "$python" "$source/tests/pkgconfig/man_test.py"
each cpack bash "$source/tests/pkgconfig/package_test.sh" "$work" "$source" lib

# A build without the archive: what is asked of the shared library goes well.
each libgangway.a bash -euo pipefail -c '
  . "$0"
  prefix=$1 cc=true
  pkg-config() { echo "-I$prefix"; }
  needs() { echo "[$soname]"; }
  grep() { while read -r _; do :; done; }
  printf "#!/bin/sh\n" >"$1/user" && chmod +x "$1/user"
  by_pkg_config "$1" "$1" lib
  whole "the rest was used"' "$source/tests/pkgconfig/consumers.sh" "$work"
echo "missing tools are said"
exit $bad
