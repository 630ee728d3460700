#!/usr/bin/env bash
# One machine's part of a run: an agent and, on the first COORDINATORS machines, a coordinator, of which one leads.
# Started once per machine by a launcher (slurm_job.sh, mpirun.sh), with the same environment and arguments everywhere:
#   CONFIG=... RUN_DIR=... NODES=... WORKERS_PER_NODE=... node.sh [--set KEY=VALUE]...
# RUN_DIR is on a file system that all machines share: there the agents find the coordinator's address and its token.
# The launcher removes an address that an earlier coordinator has left.
# SIGTERM or SIGUSR1, to all machines or to the only one with a coordinator, ends the run with a saved model; SIGTERM to
# another one takes that machine out of the run.
set -euo pipefail

: "${CONFIG:?the config file}" "${RUN_DIR:?a directory that all machines share}" "${NODES:?how many machines}"
: "${WORKERS_PER_NODE:=1}" "${COORDINATORS:=1}" "${HOLDFAST:=holdfast}" "${PORT:=29400}"
: "${START_SECONDS:=120}"                     # for a coordinator to come up
: "${DESERTED_SECONDS:=120}"                  # that nobody works for the coordinator, since the agent here has ended
: "${EXIT_CODE_FILE:=/dev/null}"              # how the run has ended, for launchers that lose exit codes

# HOST: where the others reach this machine; choose the fast network. Launchers take the environment everywhere, in which
# some shells and conda have a HOST of their own.
is_here() {
  local address
  [[ $1 != localhost && $1 != 127.* && $1 != ::1 ]] || return 0
  for address in $(getent ahosts "$1" | awk '{ print $1 }'); do
    [[ " $(hostname -I) " != *" $address "* ]] || return 0
  done
  return 1
}
if [[ -n ${HOST:-} ]] && ! is_here "$HOST"; then
  echo "warning: HOST=$HOST is no address of this machine, and is passed over" >&2
  HOST=''
fi
: "${HOST:=$(hostname -I | cut -d ' ' -f 1)}"
listen=$HOST:$PORT
[[ $HOST != *:* ]] || listen="[$HOST]:$PORT" # IPv6

rank=${SLURM_PROCID:-${OMPI_COMM_WORLD_RANK:-0}}
: "${NODE:=node-$rank}" # its name in the run
common=("$CONFIG" --run-dir "$RUN_DIR" --set "elastic.workers=$((NODES * WORKERS_PER_NODE))" "$@")
address_file=$RUN_DIR/coordinator.address
coordinator='' agent='' code='' restarts=10

# The coordinator, where it is here, has the run saved, and the agents end with the run. What is started with & ignores
# SIGINT, so it is told by SIGTERM.
# shellcheck disable=SC2317 # called by a trap, as below
pass_on() {
  [[ -n $coordinator$agent ]] || exit $((128 + $(kill -l "$1")))
  kill -"${1/INT/TERM}" "${coordinator:-$agent}" 2>/dev/null || true
}
for signal in TERM INT USR1; do
  # shellcheck disable=SC2064 # the name of the signal is meant now
  trap "pass_on $signal" "$signal"
done

# A wrong config, here or elsewhere, is what the launcher is to be told; else what the last coordinator to end says.
is_config_wrong() { [[ $(cat "$EXIT_CODE_FILE" 2>/dev/null) == 2 ]]; }
# shellcheck disable=SC2317
finish_up() {
  local status=$?
  if ((status == 2)) || { [[ -n $code ]] && ! is_config_wrong; }; then echo "$status" >"$EXIT_CODE_FILE" || true; fi
  # shellcheck disable=SC2046 # words; also of what was started a moment ago and has no name yet
  kill -TERM $(jobs -p) 2>/dev/null || true
  wait
}
trap finish_up EXIT

start_coordinator() {
  code=''
  "$HOLDFAST" coordinator "${common[@]}" --listen "$listen" --standby --no-handover "$@" &
  coordinator=$!
}

start_agent() {
  "$HOLDFAST" agent "${common[@]}" --coordinator "$(<"$address_file")" --token-file "$RUN_DIR/coordinator.token" \
    --node "$NODE" --host "$HOST" --workers "$WORKERS_PER_NODE" &
  agent=$!
}

has_ended() { [[ -n $1 ]] && ! kill -0 "$1" 2>/dev/null; }

# A moment; a signal is passed on at once.
pause() { sleep "$1" & wait $! || true; }

# A coordinator that crashed, or was killed for its memory, is started again; it does not begin a run anew that one of
# this launch has led and that has ended meanwhile.
look_after_coordinator() {
  has_ended "$coordinator" || return 0
  wait "$coordinator" && code=0 || code=$?
  coordinator=''
  case $code in
    2 | 126 | 127) exit 2 ;; # 127: there is no such binary
    130 | 138 | 143) ;;
    13? | 14?)
      if ((restarts-- > 0)); then
        pause 1
        if [[ -s $address_file ]]; then start_coordinator --has-led; else start_coordinator; fi
      fi
      ;;
  esac
}

# Whether it is known that nobody works for the run, not even an agent whose workers are still starting. Nobody has to
# once it has ended, of which its coordinator is about to tell.
is_deserted() {
  local run
  run=$(timeout 20 "$HOLDFAST" status "$RUN_DIR" --json 2>/dev/null) || return 1
  [[ $run == *'"workers": []'* && $run == *'"nodes": []'* && $run != *'"state": "ended"'* ]]
}

if ((rank < COORDINATORS)); then start_coordinator; fi

deadline=$((SECONDS + START_SECONDS))
until [[ -s $address_file ]]; do
  look_after_coordinator
  [[ -z $code ]] || exit "$code"
  ! is_config_wrong || exit 2
  if ((SECONDS > deadline)); then
    echo "error: no coordinator within $START_SECONDS s: $address_file is not there" >&2
    exit 75
  fi
  pause 0.2
done

start_agent
until has_ended "$agent"; do
  look_after_coordinator
  pause 0.5
done
wait "$agent" && status=0 || status=$?
agent=''
case $status in 2 | 126 | 127) exit 2 ;; esac
deserted_at=''
while [[ -n $coordinator ]]; do # it may lead the run for others
  # One that was told to leave has done so; the others, whose network may have failed, are expected back.
  if ((status == 130 || status == 143)) || ! is_deserted; then
    deserted_at=''
  elif ((SECONDS >= ${deserted_at:=$SECONDS} + DESERTED_SECONDS)); then
    echo "error: the agent here has ended with $status, and nobody works for the run: its coordinator is killed" >&2
    # Told to stop it would wait for those who hold the state, and end the run for all that stand by.
    kill -KILL "$coordinator" 2>/dev/null || true
    code=75
    exit "$code"
  fi
  pause 2
  look_after_coordinator
done
exit "${code:-$status}"
