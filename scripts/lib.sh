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

# --- the local stack: what `make up` starts, each with a pid file ------------

UP_DATA=${MALOTE_DATA:-./data}/up
# The servers' ports; an environment variable of the same name changes one.
export UP_POSTGRES=${UP_POSTGRES:-15432} UP_REDIS=${UP_REDIS:-16379} UP_KAFKA=${UP_KAFKA:-19092}
export UP_PROMETHEUS=${UP_PROMETHEUS:-19090}

# When a process was started, by the kernel's count: a pid alone may have been
# given to another process since. Nothing for one that ended and is only not yet
# buried (Z).
started_at() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | awk '$1 != "Z" { print $20 }'; }

# is_up NAME: whether what `start NAME` started still runs.
is_up() {
  local pid when
  [ -e "$UP_DATA/$1.pid" ] && read -r pid when <"$UP_DATA/$1.pid" && [ "$(started_at "$pid")" = "$when" ]
}

# start NAME COMMAND…: in the background, log and pid file in $UP_DATA.
start() {
  local name=$1
  shift
  setsid "$@" </dev/null >>"$UP_DATA/$name.log" 2>&1 &
  echo "$! $(started_at $!)" >"$UP_DATA/$name.pid"
}

# stop NAME [SIGNAL]: asks it to end and waits; after 30 seconds it is killed.
stop() {
  local name=$1 signal=${2:-TERM} pid _
  if is_up "$name"; then
    read -r pid _ <"$UP_DATA/$name.pid"
    say "stopping $name"
    kill -s "$signal" "$pid" 2>/dev/null || true
    for _ in $(seq 300); do
      is_up "$name" || break
      sleep 0.1
    done
    ! is_up "$name" || kill -s KILL "$pid" || true
  fi
  rm -f "$UP_DATA/$name.pid"
}

# wait_for NAME COMMAND…: until COMMAND succeeds; fails when NAME ended or a
# minute has passed, with the end of its log.
wait_for() {
  local name=$1 _
  shift
  for _ in $(seq 300); do
    ! "$@" >/dev/null 2>&1 || return 0
    is_up "$name" || break
    sleep 0.2
  done
  say "$name is not ready; $UP_DATA/$name.log ends with:"
  tail -n 15 "$UP_DATA/$name.log" >&2
  return 1
}

# Whether something listens on a port of 127.0.0.1.
listens() { (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
