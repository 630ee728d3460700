#!/bin/sh
# The quickstart's training, in the current folder: packs the text into token files and trains on them. Called by
# tools/quickstart.sh and, in a bundle, by quickstart.sh.
#   tools/train_quickstart.sh HOLDFAST TEXT CONFIG [ARGUMENT...]      arguments go to `holdfast train`
set -eu
holdfast=$1 text=$2 config=$3
shift 3
run_dir=runs/quickstart

mkdir -p corpus
"$holdfast" data pack "$text" --out corpus/kjv_train.bin --validation-fraction 0.05 --validation-out corpus/kjv_validation.bin \
  --overwrite
"$holdfast" train "$config" --run-dir "$run_dir" --overwrite "$@"

cat <<END

Where everything lies, in $PWD:
  $run_dir/model/         the trained model (safetensors, readable by Hugging Face transformers)
  $run_dir/loss.svg       the loss curve
  $run_dir/metrics.jsonl  one line for each step
  $run_dir/events.jsonl   validation losses and the like
  $run_dir/config.yaml    the config with every default filled in
  corpus/                   the token files
Try:
  $holdfast sample $run_dir --prompt "In the beginning"
  $holdfast eval $run_dir corpus/kjv_validation.bin
END
