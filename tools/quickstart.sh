#!/usr/bin/env bash
# From a fresh clone to a trained model: installs packages, builds, makes a corpus and trains configs/quickstart.yaml.
#   tools/quickstart.sh [ARGUMENT...]      arguments go to `holdfast train`, such as --set train.steps=100
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_dir=runs/quickstart
holdfast=build/release/holdfast

echo "1/4 packages"
tools/setup.sh --with-corpus

echo "2/4 build (the first time takes some minutes)"
quietly build/configure.log cmake --preset release
quietly build/build.log cmake --build --preset release --target holdfast

echo "3/4 corpus"
[[ -s corpus/kjv.txt ]] || tools/make_corpus.sh corpus/kjv.txt
"$holdfast" data pack corpus/kjv.txt --out corpus/kjv_train.bin \
  --validation-fraction 0.05 --validation-out corpus/kjv_validation.bin

echo "4/4 training"
"$holdfast" train configs/quickstart.yaml --run-dir "$run_dir" --overwrite "$@"

cat <<END

Where everything lies, in $ROOT:
  $run_dir/model/         the trained model (safetensors, readable by Hugging Face transformers)
  $run_dir/loss.svg       the loss curve
  $run_dir/metrics.jsonl  one line for each step
  $run_dir/events.jsonl   validation losses and the like
  $run_dir/config.yaml    the config with every default filled in
  corpus/                   the text and its token files
Try:
  $holdfast sample $run_dir --prompt "In the beginning"
  $holdfast eval $run_dir corpus/kjv_validation.bin
END
