#!/usr/bin/env python3
"""What a checkpoint at every step costs training, with the real binary: GPT-2 124M by 2 workers of 1 thread.

  tests/bench/checkpoint_stall.py [--steps 8] [--rounds 2] [--sequence 512] [--binary build/release/holdfast]

stall      how long an update was held up by the snapshot of the step before (metrics.jsonl), as a share of the step, and
           against one copy of as many bytes as a worker's part has
step       seconds of a step with a checkpoint at every step against the same run without, in turn, every other round in
           the opposite order
skipped    checkpoints that were due while the one before was still being written

Every figure is a median with its minimum and maximum over n samples. The first two steps of a run are not counted. Needs
Python alone and 12 GiB of memory.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
WARM_UP = 2


def spread(values, digits=3):
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f}-{max(values):.{digits}f}], n={len(values)}"


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(arguments, directory, name, settings):
    out = directory / name
    command = [arguments.binary, "train", ROOT / "configs/gpt2_124m.yaml", "--workers", "2", "--run-dir", out]
    settings = [f"data.train=[{directory}/train.bin]", "data.validation=[]", "data.tokenizer=bytes",
                f"batch.sequence_length={arguments.sequence}", "batch.microbatch_size=1", "batch.microbatches=2",
                f"train.steps={arguments.steps}", "train.threads=1", "train.validate_every_steps=0", "schedule.warmup_steps=1", "parallel.mirrors=0", "log.digest_every_steps=0",
                "log.sample_bytes=0", "checkpoint.keep_last=1", *settings]
    for setting in settings:
        command += ["--set", setting]
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
    return lines(out / "metrics.jsonl")[WARM_UP:], lines(out / "events.jsonl")


def copy_seconds(count):
    source, target = bytearray(count), bytearray(count)
    target[:] = source
    times = []
    for _ in range(3):
        start = time.perf_counter()
        target[:] = source
        times.append(time.perf_counter() - start)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--binary", default=ROOT / "build/release/holdfast")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        (directory / "text.txt").write_text("\n".join(f"line {i * i % 1009} of the story" for i in range(20000)))
        subprocess.run([arguments.binary, "data", "pack", directory / "text.txt", "--out", directory / "train.bin"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ways = {"with": "checkpoint.every_steps=1", "without": "checkpoint.every=never"}
        steps, stalls, done = {way: [] for way in ways}, [], []
        for r in range(arguments.rounds):
            for way in list(ways)[::1 if r % 2 == 0 else -1]:
                metrics, events = run(arguments, directory, f"{way}{r}", [ways[way]])
                steps[way] += [m["step_seconds"] for m in metrics]
                if way == "with":
                    stalls += [m["checkpoint_stall_seconds"] for m in metrics]
                    done += [e for e in events if e["event"] == "checkpoint"]
        part = max(e["bytes"] for e in done) // 2
        step = statistics.median(steps["with"])
        print(f"step with a checkpoint at every step, s  {spread(steps['with'])}")
        print(f"step without, s                          {spread(steps['without'])}")
        print(f"ratio of medians                         {step / statistics.median(steps['without']):.3f}")
        print(f"stall of a step, s                       {spread(stalls, 6)}")
        print(f"stall, share of a step                   {100 * max(stalls) / step:.3f} % at most")
        print(f"one copy of a worker's part, s           {spread(copy_seconds(part))}; {part / 2**20:.0f} MiB")
        print(f"a checkpoint in the background, s        {spread([e['seconds'] for e in done], 2)}; "
              f"{sum(e['skipped'] for e in done)} skipped")


if __name__ == "__main__":
    main()
