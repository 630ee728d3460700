#!/usr/bin/env bash
# A run over the machines of a host file, started by Open MPI; MPI itself is not used. One agent per machine:
#   HOSTFILE=hosts CONFIG=... RUN_DIR=... tools/launch/mpirun.sh [--set KEY=VALUE]...
# NODES agents on this one machine, to try it: MAP=slot NODES=2 HOST=127.0.0.1 CONFIG=... RUN_DIR=... mpirun.sh
set -euo pipefail

# --- to be edited ---------------------------------------------------------------------------------------------------
: "${CONFIG:?set it to the config file}" "${RUN_DIR:?set it to a directory that all machines share}"
: "${HOSTFILE:=${PBS_NODEFILE:-/dev/null}}" # machines, each on a line; without: those of a Slurm job, or this one
machines=$(awk '!/^[[:space:]]*(#|$)/ { print $1 }' "$HOSTFILE" | sort -u | wc -l)
((machines > 0)) || machines=${SLURM_JOB_NUM_NODES:-1}
: "${NODES:=$machines}"
: "${WORKERS_PER_NODE:=1}"
: "${HOLDFAST:=holdfast}"
: "${MAP:=ppr:1:node}"        # "one agent per machine"
# ---------------------------------------------------------------------------------------------------------------------

export EXIT_CODE_FILE=$RUN_DIR/launch.exit_code # mpirun's own is 0 where it does not end the others
export CONFIG RUN_DIR NODES WORKERS_PER_NODE HOLDFAST
variables=(-x CONFIG -x RUN_DIR -x NODES -x WORKERS_PER_NODE -x HOLDFAST -x EXIT_CODE_FILE)
for name in HOST PORT START_SECONDS DESERTED_SECONDS HOLDFAST_TEST_SLOWDOWN_MS; do
  [[ -z ${!name:-} ]] || variables+=(-x "$name")
done

arguments=(-n "$NODES" --map-by "$MAP" --bind-to none --enable-recovery --mca orte_abort_on_non_zero_status 0)
[[ $HOSTFILE == /dev/null ]] || arguments+=(--hostfile "$HOSTFILE")

# --enable-recovery: a machine that is lost does not end the others. On SIGTERM, or on Ctrl-C and the end of a terminal,
# mpirun would kill everything within a second. So it is in a session of its own, where a terminal does not reach it, and
# gets SIGUSR1, which it passes on: the model is saved, and the exit code is 138. A second Ctrl-C is not to wait for that.
mkdir -p "$RUN_DIR"
rm -f "$RUN_DIR/coordinator.address" "$EXIT_CODE_FILE"
stopped_at='' ended_at_once=''
# shellcheck disable=SC2317 # called by a trap
stop() {
  [[ -n ${!:-} ]] || exit $((128 + $(kill -l "$1"))) # nothing has been started
  local how=USR1 before=$stopped_at
  : "${stopped_at:=$SECONDS}" # before a word is said: the next Ctrl-C may come before this goes on
  if [[ $1 == INT && -z $before ]]; then
    echo "stopping: the model is saved; a second Ctrl-C ends all at once"
  elif [[ $1 == INT ]] && ((SECONDS > stopped_at + 1)); then # one that is told twice is one
    how=TERM ended_at_once=1
  fi
  kill -"$how" "$!" 2>/dev/null || true
}
for signal in TERM INT HUP USR1; do
  # shellcheck disable=SC2064 # the name of the signal is meant now
  trap "stop $signal" "$signal"
done
setsid mpirun "${arguments[@]}" "${variables[@]}" "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/node.sh" "$@" &
mpirun=$!
while kill -0 "$mpirun" 2>/dev/null; do wait "$mpirun" || true; done
status=$(cat "$EXIT_CODE_FILE" 2>/dev/null || echo 1)
rm -f "$EXIT_CODE_FILE"
[[ -z $ended_at_once ]] || status=130
exit "$status"
