#!/usr/bin/env bash
# Builds the wheel against a built library, installs it into a venv of its own and runs every test of the binding.
#   usage: bash bindings/python/test.sh BUILD_DIR
# BUILD_DIR has capi/libgangway.so.1 and impl/tools/gangrun. GANGWAY_TEST_PACKAGES names more packages to install ("jax
# matplotlib"); GANGWAY_TEST_VENV a venv to borrow PyTorch from (default: that of the benchmarks in BUILD_DIR).
# GANGWAY_NO_INSTALL=1: no Debian packages are installed.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 1 ] || { echo "usage: bash bindings/python/test.sh BUILD_DIR" >&2; exit 2; }
build=$(cd "$1" && pwd) || exit 2
. "$here/../../examples/packages.sh"
if [ "${GANGWAY_NO_INSTALL:-0}" != 1 ]; then
  install_packages swig python3 python3-venv python3-dev cmake ninja-build build-essential || exit 1
fi

venv=$build/python/venv
lender=${GANGWAY_TEST_VENV:-$build/tests/bench/venv}
mkdir -p "$build/python"
[ -x "$venv/bin/python" ] || python3 -m venv "$venv" || exit 1
# A lender's packages come last, so that the venv's own NumPy and pytest stay in charge.
for folder in "$lender"/lib/python3*/site-packages; do
  [ -d "$folder" ] || continue
  for own in "$venv"/lib/python3*/site-packages; do echo "$folder" >"$own/lender.pth"; done
done
# shellcheck disable=SC2086
"$venv/bin/pip" install -q --disable-pip-version-check "numpy>=2.1" pytest mypy tqdm "scikit-build-core>=0.10" \
  ${GANGWAY_TEST_PACKAGES:-} || exit 1
"$venv/bin/pip" install -q --disable-pip-version-check --force-reinstall --no-deps --no-build-isolation \
  --config-settings="cmake.define.GANGWAY_BUILD_DIR=$build" --config-settings="build-dir=$build/python/wheel" "$here" || exit 1

# The installed package, not the source folder, is what the tests see.
cd "$build/python" || exit 1
report=$build/python/results.xml
rm -f "$report"
env -u PYTHONPATH "$venv/bin/python" -P -m pytest "$here/tests" -q -rs --rootdir "$here/tests" -p no:cacheprovider \
  --junitxml "$report"
status=$?
counts=$(python3 - "$report" <<'PY'
import sys, xml.etree.ElementTree as tree
suite = tree.parse(sys.argv[1]).getroot().find("testsuite")
n = {k: int(suite.get(k)) for k in ("tests", "failures", "errors", "skipped")}
bad = n["failures"] + n["errors"]
print(f"{n['tests'] - bad - n['skipped']} passed, {bad} failed, {n['skipped']} skipped")
PY
) || { echo "python: no results"; exit 1; }
echo "python: $counts"
exit "$status"
