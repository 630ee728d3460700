#!/usr/bin/env bash
# What is tuned on a small model, used for large ones, and a prediction that is tried: SCALING.md, "An example".
#   tools/scaling_example.sh [DIRECTORY]      default runs/scaling_example; goes on with what is there
#
# Six widths, each with rates of learning in a grid, in the standard parametrization and in muP; then three lengths of
# each width, with the rate that is best for the narrowest; a law of each; what it predicts of a seventh width, which is
# then trained. Prints a table in Markdown, which is also DIRECTORY/summary.md. Ten minutes on two cores.
# Needs build/release/holdfast and the corpus, which tools/quickstart.sh makes.
#   HOLDFAST, WIDTHS, SEVENTH, RATES, STEPS, LARGE_STEPS: other values than below, from the environment
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

directory=${1:-runs/scaling_example}
holdfast=${HOLDFAST:-build/release/holdfast}
read -ra widths <<<"${WIDTHS:-32 48 64 80 96 128}"
seventh=${SEVENTH:-192}
rates=${RATES:-low: 2e-3, high: 64e-3, scale: log, points: 6}
steps=${STEPS:-100, 200, 400}
large_steps=${LARGE_STEPS:-600}
config=configs/scaling_example.yaml
base=${widths[0]}

sizes() { echo "model.hidden_size=$1 model.num_heads=$(($1 / 16)) model.intermediate_size=$((3 * $1))"; }
parametrization() { # NAME: what it sets
  [[ $1 == standard ]] || echo "model.parametrization=$1 model.base_hidden_size=$base"
}
as_list() { local IFS=,; echo "[$*]"; }

# sweep NAME PARAMETRIZATION DIMENSION...: all combinations with all widths
sweep() {
  local name=$1 set choices=() width
  read -ra set <<<"$(parametrization "$2")"
  for width in "${widths[@]}"; do choices+=("\"$(sizes "$width")\""); done
  {
    echo "sweep: {name: $name, config: $config, strategy: grid, workers: $(nproc), runs: $directory/runs,"
    echo "        set: $(as_list "${set[@]}")}"
    echo "space:"
    printf '  %s\n' "${@:3}"
    echo "  width: {choices: $(as_list "${choices[@]}")}"
  } >"$directory/$name.yaml"
  echo "--- $name"
  "$holdfast" sweep "$directory/$name.yaml" --sweep-dir "$directory/$name"
}

# best_rate SWEEP WIDTH: of its results
best_rate() {
  awk -F, -v width="$(sizes "$2")" '
    NR == 1 { for (i = 1; i <= NF; ++i) column[$i] = i; next }
    $column["width"] == width && $column["outcome"] == "measured" && (best == "" || $column["validation_loss"] < best) {
      best = $column["validation_loss"]; rate = $column["optimizer.lr"]
    }
    END { print rate }' "$directory/$1/results.csv"
}

mkdir -p "$directory"
for p in standard mup; do sweep "rates_$p" "$p" "optimizer.lr: {$rates}" "train.steps: {choices: [${steps%%,*}]}"; done
rate=$(best_rate rates_mup "$base") # of the base width, where both are the same
for p in standard mup; do
  sweep "lengths_$p" "$p" "optimizer.lr: {choices: [$rate]}" "train.steps: {choices: [$steps]}"
  "$holdfast" scaling fit "$directory/lengths_$p" --out "$directory/law_$p"
  arguments=("$config")
  for set in $(sizes "$seventh") $(parametrization "$p") "optimizer.lr=$rate" "train.steps=$large_steps"; do
    arguments+=(--set "$set")
  done
  [[ -s $directory/prediction_$p.json ]] || # of before the run, if this goes on with one
    "$holdfast" scaling predict "$directory/law_$p/fit.json" "${arguments[@]}" --out "$directory/prediction_$p.json"
  echo "--- width $seventh, $p"
  grep -qs '"run_finished"' "$directory/seventh_$p/events.jsonl" || # a run that was stopped has a model, too
    "$holdfast" train "${arguments[@]}" --run-dir "$directory/seventh_$p"
  "$holdfast" scaling compare "$directory/prediction_$p.json" "$directory/seventh_$p" >"$directory/outcome_$p.txt" ||
    [[ $? == 1 ]] # outside of its interval: a result, too
done

{
  echo "| width | best rate, standard | best rate, muP |"
  echo "|---|---|---|"
  for width in "${widths[@]}"; do
    echo "| $width | $(best_rate rates_standard "$width") | $(best_rate rates_mup "$width") |"
  done
  echo
  for p in standard mup; do
    printf 'Width %s in %s with the rate of width %s, %s:\n\n' "$seventh" "$p" "$base" "$rate"
    sed 's/^/    /' "$directory/outcome_$p.txt"
    echo
  done
} | tee "$directory/summary.md"
