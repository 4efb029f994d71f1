#!/usr/bin/env bash
# Makes one archive of what first.sh runs on a machine that has a GPU and no network: stripped programs, the libraries that
# they need, and the benchmark's PyTorch side. The tests' data is not in it, since the clone travels, too.
#   usage: tests/gpu/pack.sh [--emulated] BUILD_DIR ARCHIVE.tar.xz        or .tar.gz, which is faster and a third larger
# BUILD_DIR is one of tests/cuda_build.sh. --emulated: one of tests/run.sh; the archive gets the software GPU, for a dry run.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/programs.sh"
emulated=0
if [ "${1:-}" = --emulated ]; then emulated=1; shift; fi
[ $# -eq 2 ] || { sed -n '2,6p' "$0" >&2; exit 2; }
build=$(realpath "$1") archive=$(realpath -m "$2")
most=$((64 << 20)) # what travels to the machine, the clone included

if [ $emulated -eq 0 ]; then
  cmake -S "$here/../.." -B "$build" -DGANGWAY_BENCH=ON >/dev/null
  ninja -C "$build" gangway gangway_cuda "${programs[@]}" "${bench_programs[@]}" | tail -n 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pack=$work/gpu-first
mkdir -p "$pack"/{bin,lib}
# Not in all of the build: the bindings' tests make and remove folders there at the same time.
find_built() { find "$build"/{impl,capi,tests} -path '*/bench/venv' -prune -o -name "$1" -type f -not -path '*/CMakeFiles/*' -print | head -n 1; }
for name in "${programs[@]}" "${bench_programs[@]}"; do
  program=$(find_built "$name")
  if [ -n "$program" ]; then
    cp "$program" "$pack/bin/"
  elif [[ " ${bench_programs[*]} " = *" $name "* ]]; then
    echo "left out: $name, which this build does not have"
  else
    echo "$name is not built in $build" >&2
    exit 1
  fi
done
mkdir "$pack/bin/peers"
cp "$here"/../bench/peers/torch_{gpu,train}.py "$pack/bin/peers/"

# The system's C and C++ libraries are the machine's own, and so are CUDA's, which need not be here.
there='(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libcuda|libcudart|libcublas|libcublasLt|libcudnn)\.so'
if [ $emulated -eq 1 ]; then
  folder=$(dirname "$(find "$build/tests/gpu_emulation" -maxdepth 1 -name libgangway_cuda.so)")
  cp "$folder"/libgangway_cuda.so "$folder"/libnccl.so.2 "$folder"/libgpu_emulation.so "$pack/lib/"
else
  folder=$build/capi
  cp "$folder/libgangway_cuda.so" "$pack/lib/"
fi
cp -L "$build/capi/$(readlink "$build/capi/libgangway.so")" "$pack/lib/"
loads=$(LD_LIBRARY_PATH=$folder:$build/capi${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} ldd "$pack"/bin/* "$pack"/lib/* 2>/dev/null || true)
missing=$(awk '/=> not found/ {print $1}' <<<"$loads" | sort -u | grep -Ev "^$there" | paste -sd ' ' || true)
[ -z "$missing" ] || { echo "ldd does not find what the programs need, so that the archive would lack it: $missing" >&2; exit 1; }
for library in $(awk '$2 == "=>" && $3 ~ /^\// {print $3}' <<<"$loads" | sort -u | grep -Ev "/$there" || true); do
  [ -e "$pack/lib/$(basename "$library")" ] || cp -L "$library" "$pack/lib/"
done
find "$pack/bin" "$pack/lib" -maxdepth 1 -type f -exec strip --strip-unneeded {} +
tar -C "$work" -caf "$archive" gpu-first

clone=$(git -C "$here" ls-files -z "$here/../.." | (cd "$here" && xargs -0 du -bc 2>/dev/null) | awk '$2 == "total" {sum += $1} END {print sum + 0}')
size=$(stat -c %s "$archive")
echo "$archive: $((size >> 20)) MiB; with the clone $(((size + clone) >> 20)) MiB"
[ $((size + clone)) -le $most ] || { echo "that is more than $((most >> 20)) MiB, which travel at most" >&2; exit 1; }
