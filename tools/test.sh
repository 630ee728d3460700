#!/usr/bin/env bash
# Sets up, builds and runs the tests. Exit code 0 only if all of them pass.
#   tools/test.sh [--fast | --room=ROOM...] [--no-setup] [--no-asan] [--no-tsan] [--no-cuda] [--no-fuzz] [--minutes=N]
# Phases: release (all tests), asan (rooms that read what others wrote, and kernels), tsan (rooms with threads), cuda
# (the binary and the tests of CUDA code) where there is nvcc; its tests skip themselves without a GPU; fuzz (parsers,
# for a bounded time) where there is clang. --minutes: phases after the first that have not begun by then are left out
# and named, for where time is limited and the machine slow. --fast: the release build's tests of label "fast" only.
# --room=framework/s3 (may be repeated): the release build's tests of this room only.
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

asan_rooms=(kernels framework/config framework/tensor framework/data framework/jinja framework/chat framework/parallel checkpoint framework/storage checkpoint/sharded elastic/wire)
# Rooms that talk through gRPC are left out: it is not instrumented, so that what it orders looks like a race.
tsan_rooms=(framework/base framework/data framework/comm framework/comm/gloo framework/comm/cuda/emulation framework/storage elastic/agent elastic/alerts)

setup=1 asan=1 tsan=1 cuda=1 fuzz=1 minutes='' filter=() rooms=()
for argument in "$@"; do
  case $argument in
    --fast) asan=0 tsan=0 cuda=0 fuzz=0 filter=(-L fast) ;;
    --room=*) asan=0 tsan=0 cuda=0 fuzz=0 rooms+=("${argument#*=}") ;;
    --no-setup) setup=0 ;;
    --no-asan) asan=0 ;;
    --no-tsan) tsan=0 ;;
    --no-cuda) cuda=0 ;;
    --no-fuzz) fuzz=0 ;;
    --minutes=*) minutes=${argument#*=} ;;
    *) die "unknown argument '$argument'; see the head of tools/test.sh" ;;
  esac
done

for room in "${rooms[@]}"; do
  compgen -G "tests/$room/*_test.c*" >/dev/null || die "there are no tests in tests/$room"
done

summary=() failed=0 passed_tests=0 failed_tests=0 skipped_tests=0

# build PRESET [TARGET...]
build() {
  local preset=$1
  shift
  quietly "build/$preset.configure.log" cmake --preset "$preset"
  quietly "build/$preset.build.log" "${personality[@]}" cmake --build --preset "$preset" ${1:+--target "$@"}
}

# count PATTERN FILE
count() { grep -cE "$1" "$2" || true; }

# show_failures LOG: of each test that failed its name and, of the first ten, the part of the output that says why: what
# follows the first failure, and the end; 40 lines.
show_failures() {
  awk '
    function flush(  i, first) {
      if (lines > 0 && line[lines] == "") lines--
      if (++shown > 10) lines = 0
      for (first = 1; first <= lines && line[first] !~ /: Failure$|ERROR: AddressSanitizer|WARNING: ThreadSanitizer|runtime error:/;) first++
      if (lines <= 40) first = lines + 1
      for (i = 1; i <= lines; i++) {
        if (lines <= 40 || i > lines - 25 || (i >= first && i < first + 15)) print "  " substr(line[i], 1, 300)
        else if (i == 1 || i == first + 15) print "  [...]"
      }
      lines = 0
    }
    /^ *[0-9]+\/[0-9]+ Test +#/ || /^[0-9]+% tests passed/ {
      if (failing) flush()
      failing = /\*\*\*/ && !/\*\*\*Skipped|Not Run \(Disabled\)/
      if (failing) { sub(/^.*Test +#[0-9]+: /, ""); print "FAILED " $0 }
      next
    }
    /^ +Start +[0-9]+: / { next }
    failing { line[++lines] = $0 }
  ' "$1"
}

# run_ctest PRESET CTEST_ARGUMENT...: shows the tests that failed and adds all to the counts and the summary.
run_ctest() {
  local preset=$1 log=build/$1.ctest.log status=0 passed skipped failures
  shift
  # Most tests count as two (PROCESSORS in tests/CMakeLists.txt), so that on two processors three of them are run at once,
  # or six of those that wait for processes and for time.
  "${personality[@]}" ctest --preset "$preset" -j "$((3 * JOBS))" --no-tests=error "$@" 2>&1 | tee "$log" | progress || status=$?
  passed=$(count '^ *[0-9]+/[0-9]+ Test .* Passed ' "$log")
  skipped=$(count '^ *[0-9]+/[0-9]+ Test .*\*\*\*Skipped ' "$log")
  failures=$(($(count '^ *[0-9]+/[0-9]+ Test ' "$log") - passed - skipped - $(count 'Not Run \(Disabled\)' "$log")))
  if ((status != 0)); then
    failed=1
    if ((failures > 0)); then show_failures "$log"; else failures=1 && tail -n 40 "$log"; fi # else ctest itself failed
    echo "the whole output is in $log"
  fi
  passed_tests=$((passed_tests + passed)) skipped_tests=$((skipped_tests + skipped)) failed_tests=$((failed_tests + failures))
  summary+=("$preset: $passed passed, $failures failed, $skipped skipped; built in $build_seconds s, tested in $((SECONDS - phase_start - build_seconds)) s")
}

# phase PRESET [ROOM...]: builds and tests everything, or some rooms only. A build that fails ends the script.
phase() {
  local preset=$1 room targets=() names=() select=()
  shift
  for room in "$@"; do
    compgen -G "tests/$room/*_test.c*" >/dev/null || continue
    targets+=("test_${room//\//_}")
    names+=("${room//\//_}")
  done
  if (($# > 0)); then
    ((${#targets[@]} > 0)) || return 0
    select=(-R "^($(IFS='|' && echo "${names[*]}"))\\.")
  fi
  echo "== $preset"
  phase_start=$SECONDS
  build "$preset" "${targets[@]}"
  build_seconds=$((SECONDS - phase_start))
  run_ctest "$preset" "${select[@]}" "${filter[@]}"
}

has_cuda() { command -v nvcc >/dev/null; }

# has_time PHASE: else says so in the summary.
has_time() {
  [[ -z $minutes ]] || ((SECONDS < 60 * minutes)) || { summary+=("$1: LEFT OUT, not begun within $minutes minutes") && return 1; }
}

((setup == 0)) || tools/setup.sh --with-test
tools/test_peers.sh || summary+=("peers: not installed (no package index?): tests that compare with them skip themselves")
personality=()
export UBSAN_OPTIONS=print_stacktrace=1
export ASAN_OPTIONS=allocator_may_return_null=1 # a test asks for more memory than there is
phase release "${rooms[@]}"
if ((asan == 1)) && has_time asan; then phase asan "${asan_rooms[@]}"; fi
if ((tsan == 1)) && has_time tsan; then
  # The thread sanitizer of GCC 12 does not start where addresses are randomised by more than 28 bits.
  if setarch "$(uname -m)" -R true 2>/dev/null; then personality=(setarch "$(uname -m)" -R); fi
  phase tsan "${tsan_rooms[@]}"
  personality=()
fi
if ((cuda == 1)) && has_cuda && has_time cuda; then
  echo "== cuda"
  phase_start=$SECONDS
  build cuda holdfast test_cuda test_kernels_cuda test_kernels_gpu test_framework_comm_cuda kernels_gpu_bench
  build_seconds=$((SECONDS - phase_start))
  run_ctest cuda -L cuda "${filter[@]}"
fi

if ((fuzz == 1)) && command -v clang++-14 >/dev/null && has_time fuzz; then
  echo "== fuzz"
  if tests/fuzz/run.sh 10; then summary+=("fuzz: nothing found"); else summary+=("fuzz: FAILED") failed=1 failed_tests=$((failed_tests + 1)); fi
fi

echo "== summary"
printf '%s\n' "${summary[@]}"
echo "$passed_tests passed, $failed_tests failed, $skipped_tests skipped"
exit "$failed"
