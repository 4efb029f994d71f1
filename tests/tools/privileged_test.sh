#!/usr/bin/env bash
# A program with rights that its user does not have ignores the variables that name code and files.
#   usage: privileged_test.sh GW_INFO
# gw-info prints the configuration. A copy of it that is setuid to nobody has foreign rights when root runs
# it.
set -uo pipefail
if [ "$(id -u)" -ne 0 ]; then echo "needs root, to make a setuid program"; exit 77; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
bad=0

# copy FILE NAME: a setuid copy.
copy() { cp "$1" "$work/$2" && chown nobody "$work/$2" && chmod 4755 "$work/$2"; }
copy "$(command -v id)" id
if [ "$("$work/id" -u)" = 0 ]; then echo "$work is on a file system without setuid"; exit 77; fi
copy "$1" setuid-info
cp "$1" "$work/info"

names=(GANGWAY_MODULES GANGWAY_TRACE GANGWAY_SECRET_FILE)
for name in "${names[@]}"; do export "$name=/foreign"; done
export GANGWAY_SECRET_FD=7 GANGWAY_ARENA_BYTES=4096
for name in "${names[@]}" GANGWAY_SECRET_FD GANGWAY_ARENA_BYTES; do
  "$work/info" | grep -q "^$name = .* (set)$" || { echo "$name is not read by a plain program"; bad=1; }
done
(cd / && "$work/setuid-info") >"$work/out" 2>&1 || { echo "the setuid program fails: $(tail -n 3 "$work/out")"; bad=1; }
grep -q '^GANGWAY_MODULES = ' "$work/out" || { echo "it does not print its configuration"; bad=1; }
if grep -e foreign -e '(set)' "$work/out"; then echo "a setuid program reads these variables"; bad=1; fi
exit $bad
