# shellcheck shell=bash disable=SC2034 # the variables are for the scripts that source this
# Shared by the scripts of this folder; to be sourced. Sets ROOT and goes there.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT" || exit 1
JOBS=$(nproc)
export CCACHE_BASEDIR=$ROOT CCACHE_NOHASHDIR=1 # another clone finds what this one compiled

die() {
  echo "error: $*" >&2
  exit 1
}

# quietly LOG COMMAND...: runs the command with its output in LOG; shows ninja's counter on a terminal, and the end of
# the log if it fails.
quietly() {
  local log=$1
  shift
  mkdir -p "$(dirname "$log")"
  local status=0
  if [[ -t 1 ]]; then
    "$@" 2>&1 | tee "$log" | while IFS= read -r line; do
      if [[ $line == "["[0-9]*/*"]"* ]]; then printf '\r  %s \033[K' "${line%%]*}]"; fi
    done || status=$?
    printf '\r\033[K'
  else
    "$@" >"$log" 2>&1 || status=$?
  fi
  if ((status != 0)); then
    tail -n 40 "$log" >&2
    die "'$*' failed (exit code $status); its whole output is in $log"
  fi
}
