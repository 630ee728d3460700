#!/usr/bin/env bash
# Makes a folder that runs on another Linux machine, without root and without Debian's packages: the binary with CUDA,
# the shared libraries it needs, and the configs. CUDA's own libraries (runtime, cuBLAS, NCCL) are the target's; so is
# glibc, which must be this machine's version or newer.
#   tools/bundle.sh [--cpu] [OUT]     default OUT: build/holdfast-bundle, and OUT.tar.zst beside it
# On the target: OUT/holdfast train OUT/configs/...; CUDA_LIBRARIES names further directories of CUDA's libraries.
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

preset=cuda
if [[ ${1:-} == --cpu ]]; then
  preset=release
  shift
fi
out=${1:-build/holdfast-bundle}
[[ ! -e $out ]] || die "$out is there already; remove it or choose another folder"

quietly "build/$preset.configure.log" cmake --preset "$preset"
quietly "build/$preset.build.log" cmake --build --preset "$preset" --target holdfast

mkdir -p "$out/lib" "$out/bin"
strip -o "$out/bin/holdfast" "build/$preset/holdfast"
from_target='^(linux-vdso|ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libcuda|libcudart|libcublas|libcublasLt|libnccl|libcudnn)([-.]|$)'
ldd "build/$preset/holdfast" | while read -r name arrow path _; do
  [[ $arrow == '=>' ]] || continue
  [[ $path != not ]] || die "this machine lacks $name itself"
  [[ $name =~ $from_target ]] || cp -L "$path" "$out/lib/"
done
strip --strip-unneeded "$out"/lib/*.so*
cp -r configs "$out/configs"
cp LICENSE "$out/"
cat >"$out/holdfast" <<'LAUNCHER'
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
cuda=${CUDA_LIBRARIES:-/usr/local/cuda/lib64}
for folder in /usr/local/lib/python3*/dist-packages/nvidia/*/lib /usr/lib/python3*/site-packages/nvidia/*/lib; do
  [ -d "$folder" ] && cuda=$cuda:$folder
done
LD_LIBRARY_PATH=$here/lib:$cuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec "$here/bin/holdfast" "$@"
LAUNCHER
chmod +x "$out/holdfast"
tar -C "$(dirname "$out")" -I 'zstd -19 -T0' -cf "$out.tar.zst" "$(basename "$out")"
echo "$out: $(du -sh "$out" | cut -f1), compressed $(du -h "$out.tar.zst" | cut -f1); glibc $(getconf GNU_LIBC_VERSION | cut -d' ' -f2) or newer on the target"
