#!/usr/bin/env python3
"""How long nobody steps when the coordinator that leads is killed (SIGKILL), frozen (SIGSTOP) or told to stop
(SIGTERM), and another one stands by.

  tests/bench/failover_bench.py --data train.bin [--binary build/release/holdfast] [--rounds 5] [--lease-ms 5000]
                                [--lease etcd://127.0.0.1:2379/bench]

A tiny model on two agents of one worker each, all on this machine. A round hurts the leader, waits until steps are
committed again, and starts (or thaws) it so that it stands by. Printed is the time from the signal to the next commit
that the new leader records, as metrics.jsonl has it, beside the usual time between commits. Needs Python alone.
"""

import argparse
import json
import pathlib
import signal
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = """
model: {{family: llama, vocab_size: 256, num_layers: 2, hidden_size: 32, num_heads: 2, max_sequence_length: 64}}
data: {{train: {data}}}
batch: {{sequence_length: 64, microbatch_size: 2, microbatches: 8}}
train: {{steps: 100000000}}
log: {{sample_bytes: 0}}
elastic: {{workers: 2, coordinator_lease_ms: {lease_ms}}}
"""


def lines(run):
    try:
        text = (run / "metrics.jsonl").read_text()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def wait(condition, what):
    end = time.monotonic() + 120
    while not (result := condition()):
        if time.monotonic() > end:
            raise SystemExit(f"waited in vain: {what}")
        time.sleep(0.02)
    return result


class Cluster:
    def __init__(self, args, directory):
        self.args, self.run, self.processes = args, directory / "run", []
        self.config = directory / "config.yaml"
        self.config.write_text(CONFIG.format(data=pathlib.Path(args.data).resolve(), lease_ms=args.lease_ms))
        self.first, self.second = self.coordinator(), None
        wait(lambda: (self.run / "coordinator.address").exists(), "a coordinator that listens")
        for node in "ab":
            self.start("agent", "--coordinator", (self.run / "coordinator.address").read_text().strip(), "--node", node,
                       "--token-file", self.run / "coordinator.token")
        self.second = self.coordinator()
        self.steps(10)
        self.generation = lines(self.run)[-1]["generation"]

    def start(self, command, *more):
        log = open(self.run.parent / f"{command}.log", "a")
        lease = ("--lease", self.args.lease) if self.args.lease else ()
        process = subprocess.Popen([str(part) for part in (self.args.binary, command, self.config, "--run-dir",
                                                           self.run, *lease, *more)], stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def coordinator(self):
        return self.start("coordinator", "--standby", "--listen", "127.0.0.1:0")

    def steps(self, count):
        start = len(lines(self.run))
        wait(lambda: len(lines(self.run)) >= start + count, f"{count} steps")

    def owner(self):
        return int((self.run / ".lock").read_text().split()[1])

    def hurt(self, by):
        """Seconds until the next commit by another coordinator."""
        leader, other = (self.first, self.second) if self.owner() == self.first.pid else (self.second, self.first)
        wait(lambda: any((self.run / ".standbys").iterdir()), "somebody who stands by")
        time.sleep(1)
        then = time.time()
        leader.send_signal(by)
        wait(lambda: self.owner() == other.pid, "another leader")
        # Generations of a new coordinator are higher than all before.
        first = wait(lambda: next((line for line in lines(self.run) if line["generation"] > self.generation), None),
                     "a commit by the new leader")
        self.generation = first["generation"]
        if by == signal.SIGSTOP:
            leader.send_signal(signal.SIGCONT)
            time.sleep(2)
        else:
            leader.wait()
            again = self.coordinator()
            self.first, self.second = other, again
        self.steps(10)
        return first["time"] - then

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--binary", default=ROOT / "build/release/holdfast")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lease-ms", type=int, default=5000, help="elastic.coordinator_lease_ms")
    parser.add_argument("--lease", default="", help="as holdfast has it: etcd://..., s3://...; default: the lock of the run directory")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        cluster = Cluster(args, pathlib.Path(place))
        try:
            seconds = {"SIGKILL": [], "SIGSTOP": [], "SIGTERM": []}
            for round_number in range(args.rounds):
                for name, values in seconds.items():
                    values.append(cluster.hurt(getattr(signal, name)))
                print(f"round {round_number + 1}: " + ", ".join(f"{n} {v[-1]:.2f} s" for n, v in seconds.items()),
                      flush=True)
            usual = [line["step_seconds"] for line in lines(cluster.run)[-200:]]
        finally:
            cluster.close()
    print(f"a step usually takes {statistics.median(usual):.3f} s")
    for name, values in seconds.items():
        print(f"{name}: median {statistics.median(values):.2f} s, {min(values):.2f} to {max(values):.2f}")


if __name__ == "__main__":
    main()
