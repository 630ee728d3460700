#!/usr/bin/env bash
# Installs what is needed to build Holdfast from Debian 12's packages: only what is missing, as root or with sudo.
#   tools/setup.sh [--with-test] [--with-corpus]
# --with-test adds what tools/lint.sh and tests need (fuzzers, networks, Slurm, peers to compare with, a bare machine),
# --with-corpus the text that tools/quickstart.sh trains on.
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

packages=(
  g++ cmake ninja-build ccache pkg-config
  libabsl-dev libcli11-dev libcurl4-openssl-dev libeigen3-dev libexpat1-dev libgloo-dev libgrpc++-dev libhdf5-dev libhwy-dev
  libopenmpi-dev libpcre2-dev libprotobuf-dev libspdlog-dev libssl-dev libutf8proc-dev libxxhash-dev libyaml-cpp-dev libzstd-dev nlohmann-json3-dev zlib1g-dev
  openmpi-bin protobuf-compiler protobuf-compiler-grpc
  libbenchmark-dev libboost-context-dev libgmock-dev libgtest-dev
)
for argument in "$@"; do
  case $argument in
    --with-test)
      packages+=(clang-14 clang-format clang-tidy etcd-server git hdf5-tools iproute2 libclang-rt-14-dev mmdebstrap munge python3-venv shellcheck slurm-wlm)
      ;;
    --with-corpus) packages+=(bible-kjv bible-kjv-text) ;;
    *) die "unknown argument '$argument'; see the head of tools/setup.sh" ;;
  esac
done

command -v dpkg-query >/dev/null ||
  die "this is not a Debian system: install the counterparts of these packages yourself: ${packages[*]}"

missing=()
for package in "${packages[@]}"; do
  # shellcheck disable=SC2016 # a format of dpkg-query, not a variable
  [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null ||
    die "these packages are missing, and this is neither root nor is there sudo; have them installed: ${missing[*]}"
  as_root=(sudo)
fi
echo "installing ${missing[*]}"
quietly build/setup.log "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update
quietly build/setup.log "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install --yes --no-install-recommends "${missing[@]}"
