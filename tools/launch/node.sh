#!/usr/bin/env bash
# One machine's part of a run: an agent and, on the first machine, the coordinator. Started once per machine by a
# launcher (slurm.sbatch, mpirun.sh), with the same environment and arguments everywhere:
#   CONFIG=... RUN_DIR=... NODES=... WORKERS_PER_NODE=... node.sh [--set KEY=VALUE]...
# RUN_DIR is on a file system that all machines share: there the agents find the coordinator's address and its token.
# The launcher removes an address that an earlier coordinator has left.
# SIGTERM or SIGUSR1, to all machines or to the first one, ends the run with a saved model; SIGTERM to another one
# takes that machine out of the run.
set -euo pipefail

: "${CONFIG:?the config file}" "${RUN_DIR:?a directory that all machines share}" "${NODES:?how many machines}"
: "${WORKERS_PER_NODE:=1}" "${HOLDFAST:=holdfast}" "${PORT:=29400}"
: "${HOST:=$(hostname -I | cut -d ' ' -f 1)}" # where the others reach this machine; choose the fast network
: "${START_SECONDS:=120}"                     # for the coordinator to come up

rank=${SLURM_PROCID:-${OMPI_COMM_WORLD_RANK:-0}}
common=("$CONFIG" --run-dir "$RUN_DIR" --set "elastic.workers=$((NODES * WORKERS_PER_NODE))" "$@")
address_file=$RUN_DIR/coordinator.address
coordinator='' agent=''

# The coordinator, where it is here, has the run saved, and the agents end with the run.
for signal in TERM INT USR1; do
  # shellcheck disable=SC2064 # the name of the signal is meant now
  trap "kill -$signal \${coordinator:-\$agent} 2>/dev/null || true" "$signal"
done

# finish PID: its exit code. A trapped signal interrupts `wait`, which is then asked again.
finish() {
  local status=0
  while :; do
    status=0
    wait "$1" || status=$?
    kill -0 "$1" 2>/dev/null || break
  done
  return "$status"
}

if ((rank == 0)); then
  # For launchers that lose exit codes.
  [[ -z ${EXIT_CODE_FILE:-} ]] || trap 'echo $? >"$EXIT_CODE_FILE"' EXIT
  "$HOLDFAST" coordinator "${common[@]}" --listen "$HOST:$PORT" &
  coordinator=$!
fi

deadline=$((SECONDS + START_SECONDS))
until [[ -s $address_file ]]; do
  if [[ -n $coordinator ]] && ! kill -0 "$coordinator" 2>/dev/null; then finish "$coordinator" || exit; fi
  if ((SECONDS > deadline)); then
    echo "error: no coordinator within $START_SECONDS s: $address_file is not there" >&2
    exit 1
  fi
  sleep 0.2
done

"$HOLDFAST" agent "${common[@]}" --coordinator "$(<"$address_file")" --token-file "$RUN_DIR/coordinator.token" \
  --node "node-$rank" --host "$HOST" --workers "$WORKERS_PER_NODE" &
agent=$!

status=0
finish "$agent" || status=$?
if [[ -n $coordinator ]]; then
  status=0
  finish "$coordinator" || status=$?
fi
exit "$status"
