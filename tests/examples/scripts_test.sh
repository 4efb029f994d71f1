#!/usr/bin/env bash
# What the scripts that newcomers run say before they do anything, and how a long build shows that it goes on.
#   usage: scripts_test.sh SOURCE_FOLDER
set -uo pipefail
source=$1
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
bad=0
wrong() { echo "$*"; bad=1; }

says() { # STATUS WORDS SCRIPT ARGUMENTS...
  local status=$1 words=$2; shift 2
  (cd "$work" && timeout 20 bash "$@") >"$work/out" 2>&1; local got=$?
  [ $got -eq "$status" ] || wrong "$*: status $got, not $status"
  grep -qF -e "$words" "$work/out" || wrong "$*: \"$(cat "$work/out")\" does not say \"$words\""
}
for script in examples/quickstart.sh tests/run.sh; do
  for help in --help -h; do says 0 "usage: bash $script [--help]" "$source/$script" $help; done
  says 2 'unknown option --nonsense' "$source/$script" --nonsense
done
for option in --text --out --mesh --build-dir --built; do
  says 2 "$option needs a value" "$source/examples/quickstart.sh" --no-install $option
done
for option in -L --build-dir --sanitize; do says 2 "$option needs a value" "$source/tests/run.sh" $option; done
says 2 '--text /no/such: no such file' "$source/examples/quickstart.sh" --no-install --text /no/such
[ ! -e "$work/quickstart-out" ] || wrong "a refused option leaves a folder"

# A build of 13 seconds shows its steps, hands on its status, and leaves no process that holds the output.
cat >"$work/build" <<'BUILD'
echo '[1/3] first'; sleep 6; echo '[2/3] second'; sleep 6; echo '[3/3] third'; exit "$1"
BUILD
. "$source/examples/script.sh"
started=$SECONDS
shown=$(with_progress "$work/log" bash "$work/build" 3); got=$?
[ $got -eq 3 ] || wrong "the build's status 3 came as $got"
case $shown in *'[2/3] after '*) ;; *) wrong "the progress is \"$shown\"" ;; esac
[ $((SECONDS - started)) -lt 20 ] || wrong "with_progress returned late"
grep -q third "$work/log" || wrong "the log lacks lines of the build"
exit $bad
