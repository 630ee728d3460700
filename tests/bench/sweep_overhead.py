#!/usr/bin/env python3
"""What a sweep costs beside its trials: a grid of learning rates by `holdfast sweep`, and the same runs by
`holdfast train`, as many at a time as the sweep has workers, each with as many threads as a worker of the sweep.

  tests/bench/sweep_overhead.py --data train.bin [--binary build/release/holdfast] [--trials 6] [--steps 400]
                                [--workers 2] [--rounds 5]

Both in turns, in directories of their own; prints the seconds of each round, and the median of their ratios. Losses
have to be equal. Needs Python alone.
"""

import argparse
import concurrent.futures
import csv
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)


def by_sweep(args, directory, config, rates):
    sweep = directory / "sweep.yaml"
    sweep.write_text(f"sweep: {{config: {config}, strategy: grid, metric: training_loss, workers: {args.workers}, "
                     f"parallel: {max(4, args.workers)}}}\n"
                     f"space: {{optimizer.lr: {{choices: {rates}}}}}\n")
    begin = time.monotonic()
    run([args.binary, "sweep", sweep, "--sweep-dir", directory / "sweep"])
    seconds = time.monotonic() - begin
    with open(directory / "sweep/results.csv") as table:
        return seconds, {float(row["optimizer.lr"]): float(row["training_loss"]) for row in csv.DictReader(table)}


def by_hand(args, directory, config, rates):
    threads = max(1, len(os.sched_getaffinity(0)) // args.workers)

    def train(rate):
        run([args.binary, "train", config, "--run-dir", directory / f"{rate:g}", "--set", f"optimizer.lr={rate}",
             "--set", f"train.threads={threads}"])

    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(args.workers) as pool:
        list(pool.map(train, rates))
    seconds = time.monotonic() - begin
    losses = {}
    for rate in rates:
        lines = [json.loads(line)["loss"] for line in open(directory / f"{rate:g}/metrics.jsonl")]
        last = lines[-max(10, len(lines) // 20):]
        losses[rate] = sum(last) / len(last)
    return seconds, losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="token file of bytes")
    parser.add_argument("--binary", default=str(ROOT / "build/release/holdfast"))
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    rates = [1e-3 * (i + 1) for i in range(args.trials)]
    ratios = []
    for number in range(args.rounds):
        with tempfile.TemporaryDirectory() as name:
            directory = pathlib.Path(name)
            config = directory / "config.yaml"
            config.write_text("model: {family: llama, vocab_size: 256, num_layers: 4, hidden_size: 128, num_heads: 4, "
                              "max_sequence_length: 128}\n"
                              f"data: {{train: [{pathlib.Path(args.data).resolve()}]}}\n"
                              "batch: {sequence_length: 128, microbatch_size: 8, microbatches: 2}\n"
                              f"train: {{steps: {args.steps}}}\nlog: {{sample_bytes: 0, every_steps: 100}}\n")
            ways = [by_hand, by_sweep] if number % 2 == 0 else [by_sweep, by_hand]
            seconds, losses = {}, {}
            for way in ways:
                (directory / way.__name__).mkdir()
                seconds[way], losses[way] = way(args, directory / way.__name__, config, rates)
        worst = max(abs(losses[by_hand][rate] - losses[by_sweep][rate]) for rate in rates)
        if worst > 1e-6:
            raise SystemExit(f"losses differ by {worst}")
        ratios.append(seconds[by_sweep] / seconds[by_hand])
        print(f"by hand {seconds[by_hand]:6.1f} s   sweep {seconds[by_sweep]:6.1f} s   {ratios[-1]:.3f}", flush=True)
    print(f"median of ratios {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}")


if __name__ == "__main__":
    main()
