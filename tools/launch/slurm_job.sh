#!/usr/bin/env bash
# What slurm.sbatch and slurm_join.sbatch do once their settings are made. Slurm owns nodes, time and requeues; the run
# says by its exit code which of them it needs.
#   slurm_job.sh batch [--set KEY=VALUE]...   the batch script: starts the tasks, and ends or requeues the job
#   slurm_job.sh join                         the batch script of a job that joins the run of another one
#   slurm_job.sh task ...                     one per node: node.sh
set -euo pipefail

mode=$1
shift
script=$(realpath "${BASH_SOURCE[0]}")
node_script=$(dirname "$script")/node.sh
settings=$RUN_DIR/launch.settings # of the run, for jobs that join
ended=75 # how the run has ended, if nobody that has led it can say so
retries=$RUN_DIR/launch.retries   # how many without a new step, and the last step that was ever made

# job FIELD: of `scontrol show job`.
job() { scontrol show job --oneliner "$SLURM_JOB_ID" | tr ' ' '\n' | sed -n "s/^$1=//p"; }

# Since a node was lost the job has asked for fewer.
requeue() {
  trap '' TERM USR1 # Slurm ends what runs
  echo "requeue: $1"
  scontrol requeue "$SLURM_JOB_ID" && scontrol update JobId="$SLURM_JOB_ID" NumNodes="$NODES"
}

# Whether Slurm ends the job by itself: scancel, the time limit, or a requeue that another has asked for.
is_ending() { [[ $(job JobState) != RUNNING ]]; }

# pass_on SIGNAL: scancel --batch tells this script only. Other forms, and Slurm, tell the tasks by themselves.
pass_on() {
  [[ $1 == USR1 ]] || ended=143 # unless the run says more
  is_ending || scancel --signal="$1" "$SLURM_JOB_ID" || true
}

# The node of the batch script is lost with it, and nobody ends the job.
is_alone() {
  local host
  host=$(job BatchHost)
  [[ $host != "$SLURMD_NODENAME" ]] || return 1
  ! timeout 60 srun --jobid="$SLURM_JOB_ID" --overlap --nodes=1 --ntasks=1 --nodelist="$host" --mem=0 true &>/dev/null
}

# Counts the failures in a row without a new step; those that are made again after a rewind are not new.
may_retry() {
  local count=0 last=0 now
  now=$(tail -n 2 "$RUN_DIR/metrics.jsonl" 2>/dev/null | sed -n 's/^{"step": *\([0-9]*\).*/\1/p' | tail -n 1)
  : "${now:=0}"
  [[ ! -s $retries ]] || read -r count last <"$retries"
  ((now <= last)) || count=0
  echo "$((count + 1)) $((now > last ? now : last))" >"$retries"
  ((count < MAX_RETRIES))
}

# conclude CODE: ends the job or has it requeued, by how the run has ended.
conclude() {
  case $1 in
    0) exit 0 ;;
    1 | 2) exit "$1" ;;
    138) is_ending || requeue "stopped by signal, with a saved model" || exit 75 ;; # USR1: the time limit
    130 | 143)
      if ! is_ending; then
        if [[ $(job PreemptTime) == [0-9]* ]]; then
          requeue "preempted, with a saved model" || exit 75
        else
          scancel "$SLURM_JOB_ID" # somebody has stopped the run, who cancels the job, too
        fi
      fi
      ;;
    *)
      if ! may_retry; then
        echo "error: $MAX_RETRIES retries without a new step" >&2
        exit "$1"
      fi
      is_ending || requeue "exit code $1" || exit 75
      ;;
  esac
  exit "$1"
}

start_tasks() {
  for signal in TERM INT USR1; do
    # shellcheck disable=SC2064 # the name of the signal is meant now
    trap "pass_on $signal" "$signal"
  done
  # Without a node that is lost, and with those whose task has failed, the others go on.
  srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --kill-on-bad-exit=0 --no-kill --wait=0 \
    "$script" task "$@" &
  srun=$!
  status=0
  while kill -0 "$srun" 2>/dev/null; do
    status=0
    wait "$srun" || status=$?
  done
}

case $mode in
  batch)
    mkdir -p "$RUN_DIR"
    # What the job has asked for, before nodes were lost.
    export NODES=$SLURM_JOB_NUM_NODES EXIT_CODE_FILE=$RUN_DIR/launch.exit_code
    arguments=("$@")
    declare -p CONFIG HOLDFAST WORKERS_PER_NODE NODES arguments >"$settings"
    rm -f "$RUN_DIR/coordinator.address" "$EXIT_CODE_FILE"
    start_tasks "$@"
    conclude "$(cat "$EXIT_CODE_FILE" 2>/dev/null || echo "$ended")"
    ;;
  join)
    # shellcheck source=/dev/null # written above
    source "$settings"
    export COORDINATORS=0
    start_tasks "${arguments[@]}"
    ((status <= 128)) || status=0 # the run was stopped, or the node was told to leave
    exit "$status"
    ;;
  task)
    trap : TERM INT USR1 # which node.sh gets as well
    status=0
    NODE=$SLURMD_NODENAME "$node_script" "$@" || status=$?
    # A wrong config or a wrong node is no reason to train on without it: all end.
    ((status != 2)) || scancel --signal=TERM "$SLURM_JOB_ID.$SLURM_STEP_ID" || true
    if { ((SLURM_PROCID < COORDINATORS)) || ((status == 75)); } && is_alone; then
      ended=$(cat "$EXIT_CODE_FILE" 2>/dev/null || echo "$ended")
      case $ended in
        130 | 143) conclude "$ended" ;;
        *) is_ending || requeue "the node of the batch script is lost; the next one finds how the run has ended" ;;
      esac
    fi
    exit "$status"
    ;;
esac
