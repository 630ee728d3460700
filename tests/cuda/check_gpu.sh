#!/usr/bin/env bash
# Everything that needs a GPU, from a folder made by `tools/bundle.sh --with-tests`, on a machine with one. It is cut into
# parts that take eight minutes at most, so that each fits a short loan of one:
#   tests/check_gpu.sh [--device=cpu] [--results=DIR] [--seconds=N] PART...     PART: 1 to 7, or all
# 1  device and libraries, AdamW's bits, kernels and losses beside the CPU's, ten steps of GPT-2 124M
# 2  the kernels' speed, the matrix products of three models tuned, GPT-2 124M twice with equal bits
# 3  Holdfast's speed in nine shapes, with the tables of part 2 if they are in DIR; if there is ncu, a profile of attention
#    and the times of all kernels of a step
# 4  PyTorch's speed, bf16 and compiled, in one shape of each model, beside that of part 3
# 5  whole runs: 300 steps twice, several workers on the one GPU, kills, resuming, checkpoints beside steps
# 6  memcheck, synccheck and racecheck over a selection of the kernels' tests
# 7  NCCL as far as one GPU goes: communicators of one rank, which sends to itself. Nothing is shown of data between
#    GPUs, of ranks that wait for each other, nor of a run by NCCL: a worker that is alone connects to nobody.
# DIR (default check_gpu_results) gets a folder for each part: summary.txt, and NAME.log and files of each check. What
# fails, or is not done in time, does not keep the rest from being run; the exit code is then 1. Where a profiler or
# sanitizer does not work on the machine, what it was to check is NOT RUN, which fails nothing.
# --device=cpu takes the same calls on a CPU, in small sizes, to try them. --seconds: of a part, default 470.
set -uo pipefail

die() {
  echo "error: $*; see the head of $0" >&2
  exit 2
}

device=cuda results=check_gpu_results part_seconds=470 parts=()
for argument in "$@"; do
  case $argument in
    --device=cuda | --device=cpu) device=${argument#*=} ;;
    --results=?*) results=${argument#*=} ;;
    --seconds=[1-9]*) part_seconds=${argument#*=} ;;
    [1-7]) parts+=("$argument") ;;
    all) parts=(1 2 3 4 5 6 7) ;;
    *) die "unknown argument '$argument'" ;;
  esac
done
((${#parts[@]} > 0)) || die "no part is named"

here=$(dirname "$(dirname "$(readlink -f "$0")")")
# shellcheck source=/dev/null # made by bundle.sh
. "$here/libraries.sh"
export HOLDFAST_BINARY=$here/holdfast HOLDFAST_TEST_STEPS=300
if [[ $device == cuda ]]; then
  export HOLDFAST_REQUIRE_GPU=1 # tests that find none fail, instead of skipping
  gpt2=gpt2_124m gpt2_shape=32x1024 tuned=(gpt2_124m:32x1024 gpt2_1558m:8x1024 llama_1b:8x1024)
  shapes=(gpt2_124m:32x1024 gpt2_124m:8x4096 gpt2_1558m:8x1024 gpt2_1558m:16x1024 gpt2_1558m:2x4096 llama_1b:8x1024
    llama_1b:16x1024 llama_1b:2x4096 moe_76m:32x1024)
  by_kernel=(llama_1b:8x1024 moe_1b:8x2048 gpt_oss_20b:1x4096)
  compared=(gpt2_124m:32x1024 llama_1b:8x1024 gpt2_1558m:8x1024) # the last takes longest to compile
else
  export HOLDFAST_TEST_DEVICE=cpu
  gpt2=tiny_gpt2 gpt2_shape=4x64 tuned=(tiny_gpt2:4x64) shapes=(tiny_gpt2:4x64 tiny_llama:2x64) compared=(tiny_gpt2:4x64) by_kernel=()
fi
# What a GPU does not promise of a product (gemm.h): cuBLASLt's algorithm follows sizes, strides and alignment.
left_out=GemmTest.ARowDoesNotDependOnTheNumberOfRows:GemmTest.AlignedWeightGradientsHaveTheBitsOfOthers
left_out+=:GemmTest.BitsDoNotDependOnHowFarRowsAreApart
broken='GemmTuning.ATableOfBrokenAlgorithmsIsAnError' # is run by itself
tried='Axpby.*'                                       # one short test, to see whether a tool works
# What is wide, unaligned or shared between the threads of a block; products are cuBLASLt's own.
checked='Both/Shapes.*:Vectors.*:AttentionTest.MatchesTheDefinitionInWholeChunks*:CachedAttention.Matches*:ExpertRowsTest.*'
checked+=':ExpertBias.*:Router.ChoosesAndWeighs*:RouterReport.*:NormForward.*:NormBackward.*:ColumnSum.*:Clip.*:Jitter.Equals*'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# note TEXT: on the console and in the part's summary.
note() { echo "$*" | tee -a "$folder/summary.txt"; }

# check LIMIT NAME COMMAND...: runs it for LIMIT seconds at most, and no longer than the part may take.
check() {
  local limit=$1 name=$2 status=0 left=$((deadline - SECONDS)) start=$SECONDS result=ok
  shift 2
  ((limit <= left)) || limit=$left
  if ((limit <= 0)); then
    note "$name: NOT RUN, the $part_seconds s of the part are over" && failed=1
    return 1
  fi
  timeout --kill-after=10 "$limit" "$@" >"$folder/$name.log" 2>&1 </dev/null || status=$?
  case $status in
    0) ;;
    124 | 137) result="FAILED, not done after $limit s" ;;
    *) result="FAILED, exit code $status" ;;
  esac
  tail -n $((status == 0 ? 3 : 25)) "$folder/$name.log" | sed 's/^/    /'
  note "$name: $result ($((SECONDS - start)) s)"
  ((status == 0)) || failed=1
  return "$status"
}

# works NAME SIGN TOOL ARGUMENT...: whether TOOL runs a short test and SIGN is in what it says; else NAME is NOT RUN.
works() {
  local name=$1 sign=$2 status=0 log=$folder/$1.trial.log limit=$((deadline - SECONDS))
  shift 2
  ((limit <= 60)) || limit=60
  if ! command -v "$1" >/dev/null; then
    note "$name: NOT RUN, there is no $1 here" && not_run=1
    return 1
  fi
  ((limit > 0)) || return 0 # check says that the time is over
  timeout --kill-after=10 "$limit" "$@" "$here/tests/test_kernels_gpu" --gtest_filter="$tried" >"$log" 2>&1 </dev/null ||
    status=$?
  ((status != 0)) || ! grep -q "$sign" "$log" || return 0
  note "$name: NOT RUN, $1 does not work here, exit code $status: $(grep -i -m 1 error "$log" || tail -n 1 "$log")"
  not_run=1
  return 1
}

# settings MODEL BATCHxLENGTH STEPS: the lines of --set of a run on the bundle's text, in $set.
settings() {
  local batch=${2%x*} length=${2#*x}
  [[ -s $work/train.bin ]] || "$here/holdfast" data pack "$here/corpus/kjv.txt" --out "$work/train.bin" >"$work/pack.log" 2>&1 ||
    cat "$work/pack.log"
  set=()
  for setting in "train.device=$device" train.recompute=none "train.steps=$3" train.validate_every_steps=0 batch.microbatches=1 \
    "batch.microbatch_size=$batch" "batch.sequence_length=$length" "data.train=[$work/train.bin]" 'data.validation=[]' \
    data.tokenizer=bytes schedule.warmup_steps=0 checkpoint.every=never log.sample_bytes=0 log.digest_every_steps=0; do
    set+=(--set "$setting")
  done
}

# train LIMIT NAME MODEL BATCHxLENGTH STEPS ARGUMENT...
train() {
  local limit=$1 name=$2 model=$3 ended
  settings "$3" "$4" "$5"
  check "$limit" "$name" "$here/holdfast" train "$here/configs/$model.yaml" --run-dir "$work/$name" --overwrite "${set[@]}" "${@:6}"
  ended=$?
  cp "$work/$name/metrics.jsonl" "$folder/$name.metrics.jsonl" 2>/dev/null
  return "$ended"
}

# kernels LIMIT NAME FILTER [COMMAND...]: the kernels' tests that FILTER names, run by COMMAND.
kernels() { check "$1" "$2" "${@:4}" "$here/tests/test_kernels_gpu" --gtest_filter="$3"; }

# runs LIMIT NAME FILTER: tests of whole runs.
runs() { check "$1" "$2" "$here/tests/test_cuda" --gtest_filter="CudaRun.$3"; }

# speed LIMIT NAME MODEL:BATCHxLENGTH ARGUMENT...: of one side of train_vs_pytorch.py, into NAME.json. PyTorch takes its
# own libraries; the launcher of holdfast finds ours.
speed() {
  check "$1" "$2" env -u LD_LIBRARY_PATH python3 "$here/tests/train_vs_pytorch.py" --device "$device" --model "${3%:*}" \
    --shapes "${3#*:}" --recompute none --steps 10 --warmup 3 --rounds 0 --binary "$here/holdfast" --configs "$here/configs" \
    --out "$folder/$2.json" "${@:4}"
}

name_of() { echo "$1" | tr : _; }

machine() {
  if [[ $device == cuda ]]; then check 30 device nvidia-smi; else check 30 device uname -a; fi
  check 30 version "$here/holdfast" --version
  # shellcheck disable=SC2016 # for the shell that is started
  check 30 libraries bash -c '! ldd "$1" "$2" | tee /dev/stderr | grep "not found"' - "$here/bin/holdfast" "$here/tests/test_kernels_gpu"
}

part_1() {
  machine
  check 60 adamw_bits "$here/tests/test_kernels_cuda"
  kernels 200 kernels "-$left_out:$broken"
  runs 90 losses LossesAreThoseOfTheCpu
  train 60 ten_steps "$gpt2" "$gpt2_shape" 10
  kernels 30 broken_algorithms "$broken"
}

part_2() {
  local shape name quick=()
  if [[ -x $here/tests/kernels_gpu_bench ]]; then
    [[ $device == cuda ]] || quick=(--quick)
    check 150 kernels_gpu_bench "$here/tests/kernels_gpu_bench" --out "$folder/kernels_gpu_bench.json" "${quick[@]}"
  else
    note "kernels_gpu_bench: NOT RUN, it is not in this bundle"
  fi
  for shape in "${tuned[@]}"; do
    name=${shape%:*}
    settings "$name" "${shape#*:}" 10
    if [[ $device == cuda ]]; then
      check 90 "tune_$name" "$here/holdfast" tune "$here/configs/$name.yaml" "${set[@]}" --out "$folder/$name.gemm"
    else # only a GPU's products are tuned: the same config, looked at
      check 90 "tune_$name" "$here/holdfast" validate "$here/configs/$name.yaml" "${set[@]}"
    fi
  done
  runs 150 same_bits_twice ThirtyStepsOfGpt2TwiceAreEqual
}

part_3() {
  local shape table=()
  for shape in "${shapes[@]}"; do
    table=()
    [[ ! -s $results/2/${shape%:*}.gemm ]] || table=(--gemm-table "$results/2/${shape%:*}.gemm")
    speed 75 "holdfast_$(name_of "$shape")" "$shape" --only holdfast "${table[@]}"
  done
  works profile 'Speed Of Light' ncu --launch-count 1 --section SpeedOfLight || return
  settings "$gpt2" "$gpt2_shape" 2
  # Attention's kernels, of two layers in two steps.
  check 90 profile ncu --target-processes all --clock-control none \
    --kernel-name 'regex:^(Hopper)?(Forward|Queries|Keys)Kernel$' --launch-count 12 \
    --section SpeedOfLight --section MemoryWorkloadAnalysis --section Occupancy --section WarpStateStats \
    "$here/holdfast" train "$here/configs/$gpt2.yaml" --run-dir "$work/profile" --overwrite "${set[@]}" \
    --set model.num_layers=2
  # Every kernel of a step, with fewer layers; before it, one for each matrix that begins random, of which experts have
  # hundreds. ncu takes some 15 ms for each, so it ends the run when it has them, which may end with any exit code.
  local model times
  for model in "${by_kernel[@]}"; do
    settings "${model%%:*}" "${model#*:}" 2
    times=$folder/step_by_kernel_${model%%:*}.csv
    # shellcheck disable=SC2016 # for the shell that is started
    check 60 "step_by_kernel_${model%%:*}" bash -c '"${@:2}"; (($(grep -c time_duration "$1") > 100))' - "$times" \
      ncu --target-processes all --clock-control none --launch-count 960 --kill yes --metrics gpu__time_duration.sum --csv \
      --log-file "$times" "$here/holdfast" train "$here/configs/${model%%:*}.yaml" --run-dir "$work/profile" --overwrite \
      "${set[@]}" --set model.num_layers=3
  done
}

part_4() {
  local shape name
  for shape in "${compared[@]}"; do
    name=$(name_of "$shape")
    speed 300 "pytorch_$name" "$shape" --only pytorch --variants bf16+compile --warmup-limit 200 || continue
    [[ -s $results/3/holdfast_$name.json ]] || continue
    check 30 "table_$name" python3 "$here/tests/train_vs_pytorch.py" --table "$results/3/holdfast_$name.json" \
      "$folder/pytorch_$name.json"
  done
}

part_5() {
  runs 100 steps_twice AThousandStepsTwiceAreEqual
  runs 150 worlds EveryWorldHasTheBitsOfTheWorldOfOne
  runs 110 kills AKilledWorkerChangesNoBit
  runs 110 resume ARunThatWasKilledGoesOnFromItsCheckpointInAnotherWorld
  # What snapshots hold up: checkpoint_stall_seconds of the steps after those of which checkpoints are made.
  train 100 checkpoints "$gpt2" "$gpt2_shape" 40 --set checkpoint.every=auto --set checkpoint.every_steps=10 --set checkpoint.keep_last=1
}

part_6() {
  local tool
  [[ $device == cpu ]] || works sanitizers 'ERROR SUMMARY' compute-sanitizer --tool memcheck || return
  export HOLDFAST_TEST_MEMORY=exact
  for tool in memcheck synccheck racecheck; do
    # There two warps meet at a named barrier, at which one does not wait; racecheck reports hazards, which the emulation
    # that knows such barriers does not find.
    [[ $tool != racecheck ]] || checked+='-AttentionTest.MatchesTheDefinitionInWholeChunksOfOtherHeads'
    if [[ $device == cpu ]]; then # which the tools do not know
      kernels 150 "$tool" "$checked"
    else
      kernels 150 "$tool" "$checked" compute-sanitizer --tool "$tool" --error-exitcode 1
    fi
  done
  unset HOLDFAST_TEST_MEMORY
}

part_7() {
  check 150 nccl "$here/tests/test_framework_comm_cuda"
}

any_failed=0
for part in "${parts[@]}"; do
  folder=$results/$part failed=0 not_run=0 deadline=$((SECONDS + part_seconds))
  rm -rf "$folder"
  mkdir -p "$folder" || die "cannot make $folder"
  echo "== part $part"
  case $part in
    1) part_1 ;;
    2) part_2 ;;
    3) part_3 ;;
    4) part_4 ;;
    5) part_5 ;;
    6) part_6 ;;
    7) part_7 ;;
  esac
  ended=ok
  ((not_run == 0)) || ended='ok, but for what was NOT RUN'
  ((failed == 0)) || ended=FAILED
  note "part $part: $ended"
  ((failed == 0)) || any_failed=1
done
echo "== summary"
for part in "${parts[@]}"; do cat "$results/$part/summary.txt"; done
exit $any_failed
