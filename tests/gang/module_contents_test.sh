#!/usr/bin/env bash
# A loadable module has of the core only the few functions that it calls: with an object of more it would carry a second
# copy of the library, whose threads, settings and handlers nobody expects.
#   usage: module_contents_test.sh MODULE...
set -euo pipefail
status=0
for module; do
  [ -e "$module" ] || { echo "skipped: $module was not built"; continue; }
  names=$(nm -C --defined-only "$module")
  found=$(grep -oE 'gangway::(network|host|cpu|data)::[A-Za-z_]+' <<<"$names" | sort -u | head -n 5 || true)
  [ -z "$found" ] || { echo "FAILED: $module has code of the core: $found"; status=1; }
done
exit $status
