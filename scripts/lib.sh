# shellcheck shell=bash
# Shared by the scripts beside it, which source it from the repository's root.

say() { printf '%s\n' "$*" >&2; }

die() {
  say "$0: $*"
  exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

target_dir() { echo "${CARGO_TARGET_DIR:-target}"; }
