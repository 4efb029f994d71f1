# Sourced by test.sh and sanitize.sh, which set `here`.
. "$here/../../examples/packages.sh"

# need_packages PACKAGE...: Debian's, and those that both scripts need; GANGWAY_NO_INSTALL=1: none are installed.
need_packages() {
  [ "${GANGWAY_NO_INSTALL:-0}" = 1 ] ||
    install_packages python3 python3-venv python3-dev cmake ninja-build build-essential "$@"
}

# What is imported is compiled then.
pip_install() { "$1/bin/pip" install -q --no-compile --disable-pip-version-check "${@:2}"; }

# install_from VENV FILE PIP-OPTION...: the packages of a list. uv takes a sixth of pip's time (8 s in place of 46 for all
# lists); where it cannot be had or cannot install them, pip does.
install_from() {
  if [ -x "$1/bin/uv" ] || pip_install "$1" --retries 2 uv==0.13.9 2>/dev/null; then
    SSL_CERT_FILE=${SSL_CERT_FILE:-${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}} UV_CACHE_DIR=${UV_CACHE_DIR:-$1/cache} \
      "$1/bin/uv" pip install -q --python "$1/bin/python" ${PIP_INDEX_URL:+--default-index "$PIP_INDEX_URL"} -r "$2" \
      2>/dev/null && return
  fi
  pip_install "$1" "${@:3}" -r "$2"
}

# make_venv VENV: with what the tests run with.
make_venv() {
  [ -x "$1/bin/python" ] || python3 -m venv "$1" || return 1
  install_from "$1" "$here/tests/requirements.txt"
}

# lend VENV LENDER: packages of another venv come last, so that the venv's own NumPy and pytest stay in charge.
lend() {
  local folder own
  for folder in "$2"/lib/python3*/site-packages; do
    [ -d "$folder" ] || continue
    for own in "$1"/lib/python3*/site-packages; do echo "$folder" >"$own/lender.pth"; done
  done
}

# install_wheel VENV BUILD_DIR FOLDER SETTING...: builds the wheel around a built library, in FOLDER, and installs it. The
# compiler's cache is that of the library's build.
install_wheel() {
  local settings=("cmake.define.GANGWAY_BUILD_DIR=$2" "build-dir=$3/wheel" "${@:4}") top
  top=$(cd "$here/../.." && pwd)
  ! command -v ccache >/dev/null ||
    settings+=("cmake.define.CMAKE_C_COMPILER_LAUNCHER=$top/pkgconfig/cmake/ccache.sh;$top;ccache")
  rm -f "$3"/wheels/{,lib}gangway-*.whl
  PATH=$(cd "$1" && pwd)/bin:$PATH "$1/bin/pip" wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w "$3/wheels" \
    "${settings[@]/#/--config-settings=}" "$here" || return 1
  pip_install "$1" --force-reinstall --no-deps --no-index "$3"/wheels/libgangway-*.whl
}

# run_tests VENV FOLDER TEST...: runs in FOLDER, so that the installed package and not the source folder is what the tests
# see, and with temporary files there, as elsewhere nothing might be executable; the last line counts.
run_tests() {
  local report=$2/results.xml status
  rm -f "$report"
  (cd "$2" && env -u PYTHONPATH -u LD_LIBRARY_PATH "$1/bin/python" -P -m pytest "${@:3}" -q -rfEs --rootdir "$here/tests" \
    -p no:cacheprovider --basetemp "$2/tmp" -o tmp_path_retention_policy=failed \
    --junitxml "$report")
  status=$?
  if [ $status -ne 0 ] && [ -e "$report" ]; then # how what failed is run again alone
    env -u LD_PRELOAD python3 "$here/../../tests/failed.py" pytest "$report" "$2" env -u PYTHONPATH -u LD_LIBRARY_PATH \
      "$1/bin/python" -P -m pytest -q "--rootdir=$here/tests" -p no:cacheprovider --basetemp "$2/tmp"
  fi
  env -u LD_PRELOAD python3 - "$report" <<'PY' || { echo "python: 0 passed, 1 failed, 0 skipped (no results)"; return 1; }
import sys, xml.etree.ElementTree as tree
suite = tree.parse(sys.argv[1]).getroot().find("testsuite")
n = {k: int(suite.get(k)) for k in ("tests", "failures", "errors", "skipped")}
bad = n["failures"] + n["errors"]
print(f"python: {n['tests'] - bad - n['skipped']} passed, {bad} failed, {n['skipped']} skipped")
PY
  return $status
}
