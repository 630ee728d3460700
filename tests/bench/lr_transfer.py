#!/usr/bin/env python3
"""Where the best learning rate of a small model goes when the model grows, for each parametrization.

  tests/bench/lr_transfer.py --data train.bin [--binary build/release/holdfast] [--steps 100] [--rates 8] [--both]
                             [--width 64] [--init-std 0.125] [--seeds 1]

Trains a byte-level Llama-like model of 64 x 2 (hidden_size x layers), one of 8 times the width, one of 4 times the
depth and, with --both, one of both, each by AdamW with rates a factor of 2 apart, cosine after a tenth of the steps,
and prints the loss of each (the mean over the last tenth of the steps, and over seeds) and by how many grid steps the
best rate has moved from that of the small model. mup is compared with standard on the width, where completep is the
same, and completep on the depth. A best rate at the end of the grid is marked: the true one may lie beyond it. Needs
Python alone.
"""

import argparse
import json
import math
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPTH = 2


def config(args, parametrization, size, rate, seed):
    width, depth = size
    base = "" if parametrization == "standard" else f", base_hidden_size: {args.width}"
    if parametrization == "completep":
        base += f", base_num_layers: {DEPTH}"
    return (f"run: {{seed: {seed}}}\n"
            f"model: {{family: llama, vocab_size: 256, num_layers: {depth}, hidden_size: {width}, "
            f"num_heads: {width // 16}, intermediate_size: {width * 4}, max_sequence_length: {args.sequence}, "
            f"init_std: {args.init_std}, "
            f"parametrization: {parametrization}{base}}}\n"
            f"data: {{train: [{pathlib.Path(args.data).resolve()}]}}\n"
            f"batch: {{sequence_length: {args.sequence}, microbatch_size: {args.batch}}}\n"
            f"train: {{steps: {args.steps}}}\n"
            f"optimizer: {{lr: {rate}}}\n"
            f"schedule: {{warmup_steps: {args.steps // 10}}}\n"
            "checkpoint: {every: never}\nlog: {sample_bytes: 0, every_steps: 1000, digest_every_steps: 0}\n")


def final_loss(args, directory, parametrization, size, rate, seed):
    run = directory / f"{parametrization}_{size[0]}x{size[1]}_{rate:g}_{seed}"
    path = directory / f"{run.name}.yaml"
    path.write_text(config(args, parametrization, size, rate, seed))
    done = subprocess.run([args.binary, "train", path, "--run-dir", run], capture_output=True, text=True)
    if done.returncode != 0:
        if "not finite" in done.stdout + done.stderr:
            return math.inf
        raise SystemExit(done.stdout + done.stderr)
    losses = [json.loads(line)["loss"] for line in open(run / "metrics.jsonl")]
    last = losses[-max(1, args.steps // 10):]
    return sum(last) / len(last)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="token file of bytes")
    parser.add_argument("--binary", default=str(ROOT / "build/release/holdfast"))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--highest", type=float, default=2.0 ** -4, help="rate; the others are 1/2, 1/4, ... of it")
    parser.add_argument("--rates", type=int, default=8)
    parser.add_argument("--width", type=int, default=64, help="of the small model")
    parser.add_argument("--init-std", type=float, help="of the small model; default width^-0.5")
    parser.add_argument("--both", action="store_true", help="try also what is wider and deeper")
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    args.init_std = args.init_std or args.width ** -0.5
    rates = [args.highest / 2 ** i for i in reversed(range(args.rates))]
    print("loss by learning rate, 2^" + ", ".join(f"{math.log2(r):g}" for r in rates))
    with tempfile.TemporaryDirectory() as directory:

        def best(parametrization, size):
            losses = []
            for rate in rates:
                of_seeds = [final_loss(args, pathlib.Path(directory), parametrization, size, rate, seed + 1)
                            for seed in range(args.seeds)]
                losses.append(sum(of_seeds) / args.seeds)
            at = min(range(len(rates)), key=losses.__getitem__)
            print(f"{parametrization:10} {size[0]:4} x {size[1]:2} " + " ".join(f"{loss:6.3f}" for loss in losses) +
                  f"   best 2^{math.log2(rates[at]):g}" + (" (end of the grid)" if at in (0, len(rates) - 1) else ""),
                  flush=True)
            return at

        base = best("standard", (args.width, DEPTH))  # the same in all of them
        wide, deep, both = (args.width * 8, DEPTH), (args.width, DEPTH * 4), (args.width * 8, DEPTH * 4)
        larger = [("standard", wide), ("mup", wide), ("standard", deep), ("completep", deep)]
        for parametrization, size in larger + [("standard", both), ("completep", both)] * args.both:
            print(f"    moves by {best(parametrization, size) - base:+d}", flush=True)


if __name__ == "__main__":
    main()
