#!/usr/bin/env bash
# Makes a folder that runs on another Linux machine, without root and without Debian's packages: the binary (with CUDA,
# or --cpu), the shared libraries it needs, the configs and the quickstart's text. CUDA's own libraries (runtime, cuBLAS,
# NCCL) are the target's; so is glibc, which must be this machine's version or newer.
#   tools/bundle.sh [--cpu] [--with-tests] [--limit=MIB] [OUT]    default OUT: build/holdfast-bundle, and OUT.tar.gz beside it
# On the target: OUT/quickstart.sh trains the quickstart's model, in the current folder; OUT/holdfast train
# OUT/configs/... anything. CUDA_LIBRARIES names further directories of CUDA's libraries.
# --with-tests: what needs a GPU to be tested comes along; OUT/tests/check_gpu.sh runs it there.
# --limit: what a transfer holds, the repository's files among it; says whether OUT fits as it is or as OUT.tar.gz, which
# needs nothing on the target but tar and gzip, and fails if neither does.
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

preset=cuda with_tests=0 tests=() limit='' out=build/holdfast-bundle
for argument in "$@"; do
  case $argument in
    --cpu) preset=release ;;
    --with-tests) with_tests=1 ;;
    --limit=[1-9]*) limit=${argument#*=} ;;
    -*) die "unknown argument '$argument'; see the head of tools/bundle.sh" ;;
    *) out=$argument ;;
  esac
done
[[ $preset == cuda || $with_tests == 0 ]] || die "--with-tests is for a build with CUDA: there are no others that need the target"
[[ ! -e $out ]] || die "$out is there already; remove it or choose another folder"

[[ -s corpus/kjv.txt ]] || tools/make_corpus.sh
quietly "build/$preset.configure.log" cmake --preset "$preset"
if ((with_tests == 1)); then
  tests=(test_cuda test_kernels_gpu test_kernels_cuda test_framework_comm_cuda)
  ! ninja -C "build/$preset" -t query kernels_gpu_bench >/dev/null 2>&1 || tests+=(kernels_gpu_bench)
fi
quietly "build/$preset.build.log" cmake --build --preset "$preset" --target holdfast "${tests[@]}"

mkdir -p "$out/lib" "$out/bin"
from_target='^(linux-vdso|ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libcuda|libcudart|libcublas|libcublasLt|libnccl|libcudnn)([-.]|$)'
# take PROGRAM FOLDER: the program and the libraries it needs.
take() {
  strip -o "$2/$(basename "$1")" "$1"
  ldd "$1" | while read -r name arrow path _; do
    [[ $arrow == '=>' ]] || continue
    [[ $path != not ]] || die "this machine lacks $name itself"
    [[ $name =~ $from_target ]] || cp -L "$path" "$out/lib/"
  done
}
take "build/$preset/holdfast" "$out/bin"
if ((${#tests[@]} > 0)); then
  mkdir -p "$out/tests"
  for program in "${tests[@]}"; do take "build/$preset/tests/$program" "$out/tests"; done
  cp tests/cuda/check_gpu.sh tests/bench/train_vs_pytorch.py "$out/tests/"
fi
strip --strip-unneeded "$out"/lib/*.so*
cp -r configs "$out/configs"
cp LICENSE SCALING.md SWEEPS.md tools/train_quickstart.sh "$out/" # the pages that those of configs name
mkdir "$out/corpus"
cp corpus/kjv.txt "$out/corpus/" # in the public domain
cat >"$out/libraries.sh" <<'LIBRARIES'
# To be sourced with $here set: where programs of this folder find their libraries.
cuda=${CUDA_LIBRARIES:-/usr/local/cuda/lib64}
wheels=$(python3 -c 'import glob, nvidia; print(":".join(f for p in nvidia.__path__ for f in glob.glob(p + "/*/lib")))' 2>/dev/null)
cuda=$cuda${wheels:+:$wheels} # those that came with PyTorch
LD_LIBRARY_PATH=$here/lib:$cuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
LIBRARIES
cat >"$out/holdfast" <<'LAUNCHER'
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
. "$here/libraries.sh"
exec "$here/bin/holdfast" "$@"
LAUNCHER
cat >"$out/quickstart.sh" <<'QUICKSTART'
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
exec "$here/train_quickstart.sh" "$here/holdfast" "$here/corpus/kjv.txt" "$here/configs/quickstart.yaml" "$@"
QUICKSTART
chmod +x "$out/holdfast" "$out/quickstart.sh"
tar -C "$(dirname "$out")" -czf "$out.tar.gz" "$(basename "$out")"
mib() { echo $((($1 + (1 << 20) - 1) >> 20)); } # of bytes, rounded up
folder=$(du -sb "$out" | cut -f1) archive=$(stat -c %s "$out.tar.gz")
tree=$(git ls-files -z --cached --others --exclude-standard | xargs -0 stat -c %s | awk '{ sum += $1 } END { print sum }')
echo "$out: $(mib "$folder") MiB, $out.tar.gz: $(mib "$archive") MiB, the repository's files: $(mib "$tree") MiB; glibc" \
  "$(getconf GNU_LIBC_VERSION | cut -d' ' -f2) or newer on the target"
if [[ -n $limit ]]; then
  for form in "$out:$folder" "$out.tar.gz:$archive"; do # the first that fits
    together=$(mib $((${form##*:} + tree)))
    ((together > limit)) || break
  done
  ((together <= limit)) || die "${form%:*} and the repository's files are $together MiB, more than $limit"
  echo "to travel: ${form%:*}, with the repository's files $together of $limit MiB"
fi
