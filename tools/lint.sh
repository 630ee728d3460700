#!/usr/bin/env bash
# Checks the form of the sources: clang-format, headers that compile by themselves, clang-tidy, shellcheck; that the
# patches of tests/mutation apply; that clang-format was not let at a page of documentation; no conflict markers.
#   tools/lint.sh [--fix] [--no-tidy] [--recent] [FILE...]
# --fix formats in place instead of complaining. --recent: what takes long, compiling headers and clang-tidy, looks only
# at what the last 20 commits changed. With files, only those.
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

fix=0 tidy=1 recent=0 files=()
for argument in "$@"; do
  case $argument in
    --fix) fix=1 ;;
    --no-tidy) tidy=0 ;;
    --recent) recent=1 ;;
    -*) die "unknown argument '$argument'; see the head of tools/lint.sh" ;;
    *) files+=("$argument") ;;
  esac
done
for program in clang-format clang-tidy ccache shellcheck cmake g++ python3; do
  command -v "$program" >/dev/null || die "$program is missing: run tools/setup.sh --with-test"
done

everything=0
if ((${#files[@]} == 0)); then
  everything=1
  mapfile -t files < <(git ls-files --cached --others --exclude-standard -- '*.h' '*.cc' '*.cu' '*.cuh' '*.sh' .ci/run)
fi
# A header that its own source includes before anything else is compiled alone by every build.
is_first_of_its_source() {
  [[ -f ${1%.h}.cc ]] && [[ $(grep -m1 '^#include' "${1%.h}.cc") == "#include \"$1\"" ]]
}

sources=() headers=() products=() scripts=()
for file in "${files[@]}"; do
  [[ -f $file ]] || continue # deleted, but not yet in a commit
  case $file in
    *.sh | .ci/run) scripts+=("$file") && continue ;;
  esac
  sources+=("$file")
  case $file in
    */cuda/* | *.cu | *.cuh) ;;                   # need the CUDA toolkit
    *-inl.h | */foreach_target.h) ;;              # compiled once for each instruction set, by Highway
    *.h) is_first_of_its_source "$file" || headers+=("$file") ;;
    tests/*) ;;
    *.cc) products+=("$file") ;;
  esac
done

if ((recent == 1)); then
  mapfile -t commits < <(git rev-list --max-count=21 HEAD)
  if ((${#commits[@]} > 1)); then # else this clone has no history: everything
    changed=$(git diff --name-only "${commits[-1]}" -- '*.cc' '*.h')
    mapfile -t products < <(printf '%s\n' "${products[@]}" | grep -Fx -- "$changed" || true)
    mapfile -t headers < <(printf '%s\n' "${headers[@]}" | grep -Fx -- "$changed" || true)
  fi
fi

failed=0
# check NAME COMMAND FILE...: runs the command, a string of words, on the files by xargs; says how long it took.
check() {
  local name=$1 start=$SECONDS status=ok words
  read -ra words <<<"$2"
  shift 2
  (($# > 0)) || return 0 # printf would make one empty name of none
  printf '%s\0' "$@" | xargs -0 "${words[@]}" || { status=FAILED && failed=1; }
  echo "$name, $# files: $status ($((SECONDS - start)) s)"
}

format="--dry-run -Werror"
((fix == 0)) || format=-i
check clang-format "clang-format $format" "${sources[@]}"
check shellcheck "shellcheck --external-sources" "${scripts[@]}"
((everything == 0)) || tests/mutation/run.py --check || failed=1
if ((everything == 1)); then
  mapfile -t pages < <(git ls-files --cached --others --exclude-standard -- '*.md' | xargs grep -L -m1 '^# ')
  ((${#pages[@]} == 0)) || { echo "without a headline, as clang-format leaves them: ${pages[*]}" && failed=1; }
  ! git grep -nE '^(<<<<<<<|>>>>>>>) ' || failed=1
fi
quietly build/release.configure.log cmake --preset release
quietly build/release.protocol.log cmake --build --preset release --target protocol
others="-isystem build/release/protocol $(pkg-config --cflags-only-I ompi-cxx hdf5-serial | sed 's/-I/-isystem /g') -DOMPI_SKIP_MPICXX"
check "headers alone" "-P $JOBS -I {} g++ -std=c++20 -march=x86-64-v3 -Wall -Wextra -I . $others -fsyntax-only -include {} -x c++ /dev/null" \
  "${headers[@]}"
# clang-tidy looks at all of each header that a source includes, so that one source costs nearly as much as the ten that
# the build compiles together: it is given those.
units=()
if ((tidy == 1 && ${#products[@]} > 0)); then
  mapfile -t compiled < <(sed -n 's/^ *"file": "\(.*\)",\?$/\1/p' build/release/compile_commands.json)
  for unit in "${compiled[@]}"; do
    if [[ $unit == */Unity/* ]]; then
      grep -qFx -f <(printf "#include \"$ROOT/%s\"\n" "${products[@]}") "$unit" && units+=("$unit")
    else
      printf "$ROOT/%s\n" "${products[@]}" | grep -qFx -- "$unit" && units+=("$unit")
    fi
  done
fi
check clang-tidy "tools/tidy.py $JOBS" "${units[@]}"
exit "$failed"
