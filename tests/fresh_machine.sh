#!/usr/bin/env bash
# Runs a command in a clean clone of a repository on a bare Debian, where nothing is installed but the essential packages:
# what a newcomer has. Mirror, proxies and certificates are this machine's. Needs root.
#   usage: tests/fresh_machine.sh [--suite bookworm|trixie] [--or-skip] REPOSITORY COMMAND
#   for instance: tests/fresh_machine.sh --suite bookworm . 'bash examples/quickstart.sh'
# trixie (Debian 13) is the default. Ends with the command's status; a file that the command leaves in the clone and that
# git does not ignore is a failure, too. FRESH names a folder that keeps the bare systems for the next time.
# --or-skip: a machine that cannot make a bare system (no root, no name spaces, no mirror) is a skipped test, not a failure.
set -euo pipefail

suite=trixie or_skip=0
while [[ ${1:-} = --* ]]; do
  case $1 in
    --suite) suite=${2:?--suite needs a value}; shift 2 ;;
    --or-skip) or_skip=1; shift ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
done
case $suite in bookworm|trixie) ;; *) echo "--suite takes bookworm or trixie, not $suite" >&2; exit 2 ;; esac
[ $# -eq 2 ] || { sed -n '2,9p' "$0" >&2; exit 2; }
repository=$1 command=$2

cannot() { # WHY
  echo "no bare Debian here: $1" >&2
  [ $or_skip -eq 1 ] || exit 1
  echo "0 passed, 0 failed, 1 skipped"
  exit 0
}

export certificates=/etc/network-certificates.crt
# What this machine needs to reach packages, given to the bare one.
share_network_settings() { # SYSTEM
  cp -L /etc/resolv.conf /etc/hosts "$1/etc/"
  apt-config dump --format '%F "%v";%n' Acquire::http Acquire::https Acquire::Retries >"$1/etc/apt/apt.conf.d/90network"
  [ ! -e /etc/pip.conf ] || sed '/^cert *=/d' /etc/pip.conf >"$1/etc/pip.conf"
  # Under a name of its own: the package ca-certificates writes its own file anew.
  [ ! -e /etc/ssl/certs/ca-certificates.crt ] || cp -L /etc/ssl/certs/ca-certificates.crt "$1$certificates"
}

# The bare system, made once in each folder.
make_system() { # FOLDER
  if [ -e "$1.made" ]; then share_network_settings "$1"; return; fi
  command -v debootstrap >/dev/null || { apt-get update -qq; apt-get install -y -qq debootstrap >/dev/null; }
  local mirror
  mirror=$({ cat /etc/apt/sources.list.d/* /etc/apt/sources.list 2>/dev/null || true; } |
    awk '/^URIs:/ && $2 ~ /debian\/?$/ {print $2; exit} /^deb / && $0 ~ /debian\/? / {sub(/\[.*\] /, ""); print $2; exit}')
  rm -rf "$1"
  debootstrap --variant=minbase "$suite" "$1" ${mirror:+"$mirror"} >"$1.log" 2>&1 ||
    { tail -n 5 "$1.log" >&2; return 1; }
  share_network_settings "$1"
  touch "$1.made"
}

# Runs in name spaces of its own, so that mounts and processes end with it. The system itself stays as it is.
run_inside() { # SYSTEM WORK REPOSITORY COMMAND
  local system=$1 work=$2 root=$2/root repository=$3 command=$4
  mkdir -p "$work"/{changes,overlay,root}
  mount -t overlay overlay -o "lowerdir=$system,upperdir=$work/changes,workdir=$work/overlay" "$root" 2>/dev/null ||
    cp -a "$system/." "$root/"
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs tmpfs "$root/dev/shm"
  mount --rbind /sys "$root/sys"
  git -c safe.directory='*' clone -q "$repository" "$root/root/project"
  local status=0 left
  local trusted=()
  [ ! -e "$root$certificates" ] ||
    trusted=({SSL_CERT_FILE,PIP_CERT,REQUESTS_CA_BUNDLE,CURL_CA_BUNDLE,GIT_SSL_CAINFO,CARGO_HTTP_CAINFO}="$certificates")
  env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "${trusted[@]}" \
    chroot "$root" bash -c "cd /root/project && $command" || status=$?
  left=$(git -C "$root/root/project" status --porcelain)
  [ -z "$left" ] || { echo "left in the clone, and not ignored:"; echo "$left"; [ $status -ne 0 ] || status=1; }
  return $status
}

[ "$(id -u)" -eq 0 ] || cannot "debootstrap and chroot need root"
unshare --mount --pid --fork mount -t proc proc /proc || cannot "name spaces and mounts are not allowed"
temporary=$(mktemp -d "${FRESH:-${TMPDIR:-/var/tmp}}/fresh.XXXXXX")
trap 'rm -rf "$temporary"' EXIT
system=${FRESH:-$temporary}/$suite
make_system "$system" || cannot "debootstrap failed"
export -f run_inside
unshare --mount --pid --fork --kill-child \
  bash -euo pipefail -c 'run_inside "$@"' fresh_machine "$system" "$temporary/work" "$(realpath "$repository")" "$command"
