#!/usr/bin/env bash
# The promise, tried: a run that nobody touches beside one whose workers are killed and frozen, and which is killed as a
# whole and started again with fewer workers. Ends with the comparison of the two, step by step and bit by bit.
#   tools/failure_demo.sh [DIRECTORY]         default runs/failure_demo
#
# The quickstart's model; four minutes on two cores. DIRECTORY/disturbed/loss.svg shows how many workers there were.
# Needs build/release/holdfast and the corpus, which tools/quickstart.sh makes.
#   HOLDFAST, CONFIG, STEPS, SEED: other values than below, from the environment
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

directory=${1:-runs/failure_demo}
holdfast=${HOLDFAST:-build/release/holdfast}
config=${CONFIG:-configs/quickstart.yaml}
steps=${STEPS:-150}
RANDOM=${SEED:-1}
disturbed=$directory/disturbed
what=("$config" --set "train.steps=$steps" --set log.sample_bytes=0 --set train.validate_every_steps=50 --set "checkpoint.every_steps=$((steps / 8))")

step() { "$holdfast" status "$disturbed" --json 2>/dev/null | sed -n 's/.*"committed_step": \([0-9]*\).*/\1/p'; }
a_worker() { "$holdfast" status "$disturbed" --json 2>/dev/null | sed -n 's/.*"pid": \([0-9]*\).*/\1/p' | shuf -n 1 --random-source=<(yes "$RANDOM"); }
say() { echo "step $(step): $*"; }

# after STEP: waits for it, and says whether the run is still alive
after() {
  while kill -0 "$run" 2>/dev/null; do
    (($(step || true) + 0 < $1)) || return 0
    sleep 0.2
  done
  return 1
}

# saved: waits for a checkpoint, without which the run could not be started again, and says the same
saved() {
  until compgen -G "$disturbed/checkpoints/*/manifest.json" >/dev/null; do
    kill -0 "$run" 2>/dev/null || return 1
    sleep 0.2
  done
}

# start WORKERS [OPTION...]
start() {
  setsid "$holdfast" train "${what[@]}" --run-dir "$disturbed" --workers "$@" >>"$directory/disturbed.log" 2>&1 &
  run=$!
}
trap 'kill -KILL -- "-${run:-}" 2>/dev/null || true' EXIT

mkdir -p "$directory"
: >"$directory/disturbed.log"
echo "== $steps steps by one worker that nobody touches"
"$holdfast" train "${what[@]}" --run-dir "$directory/undisturbed" --overwrite >"$directory/undisturbed.log" 2>&1

echo "== the same by four workers, with trouble"
start 4 --overwrite
if after $((steps / 8)) && pid=$(a_worker) && kill -KILL "$pid"; then say "kill -9 of a worker"; fi
if after $((steps / 4)) && pid=$(a_worker) && kill -STOP "$pid"; then
  say "a worker is frozen for 8 s"
  sleep 8
  kill -CONT "$pid" 2>/dev/null || true # or it has been replaced meanwhile
fi
if after $((steps / 2)) && saved; then
  say "kill -9 of everything; started again with two workers"
  kill -KILL -- "-$run"
  wait "$run" 2>/dev/null || true
  start 2
fi
if after $((steps * 5 / 8)) && pid=$(a_worker) && kill -KILL "$pid"; then say "kill -9 of a worker"; fi
wait "$run"
run=

echo "== compared"
"$holdfast" compare "$directory/undisturbed" "$disturbed"
echo "loss and number of workers: $disturbed/loss.svg"
