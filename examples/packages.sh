# Sourced by quickstart.sh and tests/run.sh: installs Debian packages that are missing, after listing them.
# install_packages PACKAGE... ; needs root or sudo only when something lacks.

install_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then return 0; fi
  echo "These Debian packages are missing and will be installed: ${missing[*]}"
  local root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "run this as root once, or install them by hand" >&2; return 1; }
    root=(sudo)
  fi
  "${root[@]}" apt-get update -qq
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

build_packages=(build-essential cmake ninja-build pkg-config libdnnl-dev libssl-dev nlohmann-json3-dev libxxhash-dev
                libcli11-dev libtomlplusplus-dev)
