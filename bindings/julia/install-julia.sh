#!/bin/bash
# install-julia.sh [PREFIX]: Debian bullseye's julia 1.5.3 under a private prefix (default $HOME/.local/julia-1.5) of a newer
# Debian, without touching the system's packages. Result: PREFIX/bin/julia. The mirror is the one of the machine's own apt
# sources.
set -euo pipefail
PREFIX=${1:-$HOME/.local/julia-1.5}
SUITE=${JULIA_SUITE:-bullseye}
W=$(mktemp -d); trap 'rm -rf "$W"' EXIT

# 1. mirror of the running suite (deb822 first, then one-line sources).
uri=$({ cat /etc/apt/sources.list.d/*.sources 2>/dev/null || true; } |
      awk '/^URIs:/ && $2 !~ /security/ {print $2; exit}')
[ -n "$uri" ] || uri=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null || true; } |
      awk '$1=="deb" {for(i=2;i<=NF;i++) if($i ~ /^https?:/ && $i !~ /security/){print $i; exit}}')
[ -n "$uri" ] || { echo "no apt mirror found" >&2; exit 1; }

# 2. a private apt tree that knows only that suite; empty dpkg status, so that
#    the whole dependency closure is resolved inside the suite.
mkdir -p "$W"/{etc,lists/partial,cache/archives/partial,dpkg}
: > "$W/dpkg/status"
key=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [arch=amd64 signed-by=$key check-valid-until=no] $uri $SUITE main" > "$W/etc/sources.list"
A=(-o Dir::Etc::sourcelist="$W/etc/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null
   -o Dir::State::lists="$W/lists" -o Dir::State::status="$W/dpkg/status"
   -o Dir::Cache="$W/cache" -o Dir::Cache::archives="$W/cache/archives"
   -o APT::Install-Recommends=0 -o APT::Sandbox::User=root -o Acquire::Languages=none
   -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o Debug::NoLocking=1
   -o APT::Update::Post-Invoke-Success::= )
apt-get "${A[@]}" -qq update

# 3. closure of julia, less what the host has in a compatible or newer version
#    (libc, libstdc++, libgcc, zlib ...: sonames unchanged since bullseye).
want=$(apt-get "${A[@]}" -s install --no-install-recommends julia |
       awk '$1=="Inst"{print $2}')
host='^(libc6|libc-bin|libgcc-s1|gcc-.*-base|libstdc\+\+6|libcrypt1|zlib1g|dpkg|tar|perl.*|libgomp1|libquadmath0|debconf|fontconfig.*|fonts-.*|ucf|sensible-utils|libjs-.*|install-info|libacl1|libattr1|libselinux1|libbz2-1.0|liblzma5|libzstd1|libtinfo6|libgpm2|libdb5.3|libgdbm.*|init-system-helpers|lsb-base|passwd|adduser)$'
mkdir -p "$W/debs"; cd "$W/debs"
pk=$(printf '%s\n' $want | grep -Ev "$host" || true)
apt-get "${A[@]}" -qq download $pk

# 4. unpack side by side.
rm -rf "$PREFIX/root"; mkdir -p "$PREFIX/root" "$PREFIX/bin"
for d in *.deb; do dpkg-deb -x "$d" "$PREFIX/root"; done
L=$PREFIX/root/usr/lib/x86_64-linux-gnu
# BLAS/LAPACK are alternatives in Debian: point plain names at the unpacked ones.
for so in libblas.so.3 liblapack.so.3; do
  for v in openblas-pthread blas lapack; do
    [ -e "$L/$so" ] || { [ -e "$L/$v/$so" ] && ln -s "$v/$so" "$L/$so"; }
  done
done
[ -e "$L/libopenblas.so.0" ] || { f=$(ls "$L"/openblas-*/libopenblas.so.0 2>/dev/null | head -1); [ -n "$f" ] && ln -s "${f#$L/}" "$L/libopenblas.so.0"; } || true

# 5. wrapper.
cat > "$PREFIX/bin/julia" <<W
#!/bin/sh
R=$PREFIX/root
LD_LIBRARY_PATH=\$R/usr/lib/x86_64-linux-gnu/julia:\$R/usr/lib/x86_64-linux-gnu:\$R/lib/x86_64-linux-gnu\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec \$R/usr/bin/julia "\$@"
W
chmod +x "$PREFIX/bin/julia"
printf '%s\n' $pk > "$PREFIX/packages.txt"
du -sh "$PREFIX" | cut -f1
"$PREFIX/bin/julia" --version
