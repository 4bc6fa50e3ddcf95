#!/usr/bin/env bash
# Installs the model checkers of benchmarks/agreement.py from Debian's packages: spin, rumur, and gcc
# with the C library's headers. Exit code 0: they are there. 2: they cannot be installed here.
set -euo pipefail

readonly TOOLS=(spin rumur gcc)
readonly PACKAGES=(spin rumur gcc libc6-dev)

cannot() {
  echo "cannot install spin, rumur and gcc: $1" >&2
  exit 2
}

all_there() {
  local tool
  for tool in "${TOOLS[@]}"; do command -v "$tool" >/dev/null || return 1; done
}

if all_there; then
  echo "already installed: ${TOOLS[*]}"
  exit 0
fi

command -v apt-get >/dev/null || cannot "no apt-get here, this script knows Debian's packages only"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  sudo -n true 2>/dev/null || cannot "not root, and sudo is missing or asks for a password"
  as_root=(sudo -n)
fi

# An update that fails may leave older lists that are good enough: the installation decides.
"${as_root[@]}" apt-get update -q || echo "apt-get update failed, trying with what is known" >&2
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -q --no-install-recommends "${PACKAGES[@]}" ||
  cannot "apt-get install ${PACKAGES[*]} failed; its words are above (no network, or no such package)"

all_there || cannot "installed, but not all of ${TOOLS[*]} are in PATH"
echo "installed: ${TOOLS[*]}"
