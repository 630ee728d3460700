#!/bin/sh
# Everything that needs a GPU, from a folder made by `tools/bundle.sh --with-tests`, on a machine with one:
#   tests/check_gpu.sh [quick|sanitizer|figures]...     default: all three
# quick: kernels against the CPU, NCCL, runs (a thousand steps twice, worlds, kills, resumes). sanitizer: memcheck and
# racecheck over the kernels' tests. figures: tokens/s beside PyTorch. Goes on after a failure; exit code 1 if any failed.
here=$(dirname "$(dirname "$(readlink -f "$0")")")
# shellcheck source=/dev/null # made by bundle.sh
. "$here/libraries.sh"
export HOLDFAST_BINARY="$here/holdfast"
failed=0

# check NAME COMMAND...
check() {
  name=$1
  shift
  echo "== $name"
  if "$@"; then echo "== $name: ok"; else echo "== $name: FAILED" && failed=1; fi
}

quick() {
  for program in test_kernels_cuda test_kernels_gpu test_framework_comm_cuda test_cuda; do
    check "$program" "$here/tests/$program" --gtest_brief=1
  done
}

sanitizer() {
  if ! command -v compute-sanitizer >/dev/null; then
    echo "== sanitizer: NOT RUN, there is no compute-sanitizer here"
    return
  fi
  for tool in memcheck racecheck; do
    check "$tool" compute-sanitizer --tool "$tool" --error-exitcode 1 "$here/tests/test_kernels_gpu" --gtest_brief=1
  done
}

figures() {
  for model in gpt2_124m gpt2_1558m llama_1b; do
    check "$model" python3 "$here/tests/train_vs_pytorch.py" --device cuda --model "$model" --binary "$here/holdfast" \
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
