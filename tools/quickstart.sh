#!/usr/bin/env bash
# From a fresh clone to a trained model: installs packages, builds, makes a corpus and trains configs/quickstart.yaml.
#   tools/quickstart.sh [ARGUMENT...]      arguments go to `holdfast train`, such as --set train.steps=100
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

echo "1/4 packages"
tools/setup.sh --with-corpus

echo "2/4 build (the first time takes some minutes)"
quietly build/configure.log cmake --preset release
quietly build/build.log cmake --build --preset release --target holdfast

echo "3/4 corpus"
[[ -s corpus/kjv.txt ]] || tools/make_corpus.sh corpus/kjv.txt

echo "4/4 training"
exec tools/train_quickstart.sh build/release/holdfast corpus/kjv.txt configs/quickstart.yaml "$@"
