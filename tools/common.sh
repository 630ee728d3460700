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

# duration SECONDS: 125 is 2:05.
duration() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# progress: reads the output of ninja, ctest, apt and the like, and says every 15 s (on a terminal, every second) how far
# it is: by the last counter ("[12/80]", "12/80 Test"), or by the last line where there is none.
progress() {
  local line='' state='' start=$SECONDS interval=15 before='' after='\n' elapsed next
  if [[ -t 1 ]]; then interval=1 before='\r' after='\033[K'; fi
  next=$((SECONDS + (interval + 2) / 3)) # the first soon
  local counter='^ *\[?([0-9]+)/([0-9]+)(\]| Test )' done_steps=0 all_steps=0
  while true; do
    if IFS= read -r -t 1 line; then
      if [[ $line =~ $counter ]]; then done_steps=${BASH_REMATCH[1]} all_steps=${BASH_REMATCH[2]}; fi
      state=${line:0:90}
    elif (($? <= 128)); then # not a second without a line, but the end
      break
    fi
    ((SECONDS >= next)) || continue
    elapsed=$((SECONDS - start)) next=$((SECONDS + interval))
    if ((all_steps > 0)); then
      state="$done_steps of $all_steps"
      ((done_steps == 0)) || state+=", about $(duration $((elapsed * (all_steps - done_steps) / done_steps))) to go"
    fi
    printf "$before"'  %s  %s'"$after" "$(duration "$elapsed")" "$state"
  done
  [[ ! -t 1 ]] || printf '\r\033[K'
}

# quietly LOG COMMAND...: runs the command with its output in LOG; shows its progress, and the end of the log if it fails.
quietly() {
  local log=$1 status=0
  shift
  mkdir -p "$(dirname "$log")"
  "$@" 2>&1 | tee "$log" | progress || status=$?
  if ((status != 0)); then
    tail -n 40 "$log" >&2
    die "'$*' failed (exit code $status); its whole output is in $log"
  fi
}
