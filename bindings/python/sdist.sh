#!/usr/bin/env bash
# Makes the source distribution, which builds by itself: the binding, and the library's own sources in its folder library/.
#   usage: bash bindings/python/sdist.sh OUT_DIR        PYTHON names an interpreter with scikit-build-core
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
mkdir -p "${1:?usage: sdist.sh OUT_DIR}"
out=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
copy() { # FROM TO NAME...
  tar -C "$1" --exclude=__pycache__ -c "${@:3}" | tar -C "$2" -x
}
mkdir "$work/libgangway" "$work/libgangway/library"
copy "$here" "$work/libgangway" CMakeLists.txt README.md pyproject.toml gangway swig
copy "$top" "$work/libgangway/library" CMakeLists.txt LICENSE README.md pkgconfig/cmake capi impl
cp "$top/LICENSE" "$work/libgangway"
cd "$work/libgangway"
"${PYTHON:-python3}" -c 'import sys; from scikit_build_core.build import build_sdist; print(build_sdist(sys.argv[1]))' "$out"
