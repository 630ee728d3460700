#!/bin/sh
# Everything that needs a GPU, from a folder made by `tools/bundle.sh --with-tests`, on a machine with one:
#   tests/check_gpu.sh [quick|sanitizer|figures]...     default: all three
# quick: kernels against the CPU, NCCL, runs (a thousand steps twice, worlds, kills, resumes). sanitizer: memcheck and
# racecheck over the kernels' tests. figures: tokens/s beside PyTorch. Goes on after a failure; exit code 1 if any failed.
here=$(dirname "$(dirname "$(readlink -f "$0")")")
# shellcheck source=/dev/null # made by bundle.sh
. "$here/libraries.sh"
export HOLDFAST_BINARY="$here/holdfast"
export HOLDFAST_REQUIRE_GPU=1 # tests that find none fail, instead of skipping
# A row of a product may depend on a GPU on how many there are: cuBLASLt's algorithm follows the sizes.
kernels_filter=-GemmTest.ARowDoesNotDependOnTheNumberOfRows
failed=0

# check NAME COMMAND...
check() {
  name=$1
  shift
  echo "== $name"
  if "$@"; then echo "== $name: ok"; else echo "== $name: FAILED" && failed=1; fi
}

quick() {
  check test_kernels_gpu "$here/tests/test_kernels_gpu" --gtest_brief=1 --gtest_filter="$kernels_filter"
  for program in test_kernels_cuda test_framework_comm_cuda test_cuda; do
    check "$program" "$here/tests/$program" --gtest_brief=1
  done
}

sanitizer() {
  if ! command -v compute-sanitizer >/dev/null; then
    echo "== sanitizer: NOT RUN, there is no compute-sanitizer here"
    return
  fi
  for tool in memcheck racecheck; do
    check "$tool" compute-sanitizer --tool "$tool" --error-exitcode 1 "$here/tests/test_kernels_gpu" --gtest_brief=1 \
      --gtest_filter="$kernels_filter"
  done
}

figures() {
  for model in gpt2_124m gpt2_1558m llama_1b; do
    # PyTorch with its own libraries; the launcher of holdfast finds ours.
    check "$model" env -u LD_LIBRARY_PATH python3 "$here/tests/train_vs_pytorch.py" --device cuda --model "$model" --binary "$here/holdfast" \
      --configs "$here/configs"
  done
}

[ $# -gt 0 ] || set -- quick sanitizer figures
for part in "$@"; do
  case $part in
    quick) quick ;;
    sanitizer) sanitizer ;;
    figures) figures ;;
    *) echo "error: unknown part '$part'; see the head of this file" >&2 && exit 2 ;;
  esac
done
exit $failed
