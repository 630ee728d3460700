#!/usr/bin/env python3
"""What saving and loading a checkpoint costs, beside the disk itself and beside PyTorch's distributed checkpoint.

  tests/bench/checkpoint_bench.py --source CHECKPOINTS [--rounds 5] [--directory DIR] [--workers 2]
      [--driver build/release/tests/checkpoint_io] [--torch PYTHON] [--only save,load,compression,torch]

save         a whole checkpoint, from memory to durable and committed (read back and compared, too), against dd of the
             same bytes with conv=fsync
load         the same checkpoint by 1, 2 and 3 workers into memory, digests checked, against dd of the same files to
             /dev/null; files in the page cache; --cores shared out as threads of the workers
compression  ratio and speed of zstd on the values of the source
torch        dcp.save, the call of dcp.async_save and its end, dcp.load on the same tensors as DTensors over --workers
             processes of gloo, and the load by one process more; each of as many threads as a worker of save or load

CHECKPOINTS is a directory of checkpoints or the one of a run (RUN_DIR/checkpoints): its newest one is the state that is
written. All measurements of a round follow each other; figures are medians with minimum and maximum over n rounds.
Needs Python; `torch` needs a Python with PyTorch (--torch).
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

TORCH_WORKER = r"""
import datetime, json, os, shutil, sys, time
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

dump, shapes, out, action, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=300))
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
total = os.path.getsize(dump) // 4
flat = torch.from_file(dump, size=total, dtype=torch.float32)

def state(empty):
    result, at = {}, 0
    for name, shape in json.load(open(shapes))["tensors"]:
        count = 1
        for d in shape: count *= d
        for kind in ("weight", "exp_avg", "exp_avg_sq"):
            whole = flat[at:at + count].view(shape)
            at += count
            part = torch.chunk(whole, dist.get_world_size(), dim=0)
            rank = dist.get_rank()
            local = part[rank].clone() if rank < len(part) else whole[:0].clone()
            if empty: local.fill_(1)
            result[f"{name}.{kind}"] = DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=whole.shape,
                                                          stride=whole.stride())
    return result

values = state(action == "load")
dist.barrier()
start = time.perf_counter()
report = {}
if action == "save":
    dcp.save(values, checkpoint_id=out)
elif action == "async":
    future = dcp.async_save(values, checkpoint_id=out)
    report["stall"] = time.perf_counter() - start
    future.result()
else:
    dcp.load(values, checkpoint_id=out)
dist.barrier()
report["seconds"] = time.perf_counter() - start
if action == "load":
    expected = state(False)
    assert all(torch.equal(values[k].to_local(), expected[k].to_local()) for k in values)
if dist.get_rank() == 0: print(json.dumps(report))
dist.destroy_process_group()
"""


def spread(values, unit="s", digits=2):
    return (f"{statistics.median(values):.{digits}f} {unit} [{min(values):.{digits}f}-{max(values):.{digits}f}], "
            f"n={len(values)}")


class Bench:
    def __init__(self, arguments):
        self.arguments = arguments
        self.directory = pathlib.Path(arguments.directory).resolve()
        self.results = {}

    def add(self, key, seconds, size=None):
        self.results.setdefault(key, []).append(seconds if size is None else size / seconds / 1e6)

    def drive(self, *arguments):
        command = [self.arguments.driver, *map(str, arguments)]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {result.stderr}")
        return json.loads(result.stdout)

    def fresh(self, name):
        path = self.directory / name
        shutil.rmtree(path, ignore_errors=True)
        os.sync()  # what others have written is not part of the next measurement
        return path

    def threads(self, action, workers):
        """Of a worker."""
        return max(1, self.arguments.cores // workers) if action == "load" else 1

    def files(self, path):
        return sorted(p for p in path.rglob("*") if p.is_file())

    def dd(self, files, target):
        start = time.perf_counter()
        for i, file in enumerate(files):
            out = "/dev/null" if target is None else str(target / str(i))
            subprocess.run(["dd", f"if={file}", f"of={out}", "bs=4M"] + (["conv=fsync"] if target else []), check=True,
                           capture_output=True)
        return time.perf_counter() - start

    def save(self, compression, key):
        out = self.fresh("holdfast")
        workers = self.arguments.workers
        result = self.drive("save", self.arguments.source, out, compression, workers, self.threads("save", workers))
        self.add(key, result["seconds"], result["raw_bytes"])
        return out, result

    def save_round(self):
        out, result = self.save("none", "save, MB/s of values")
        files = self.files(out)
        copies = self.fresh("dd")
        copies.mkdir()
        seconds = self.dd(files, copies)
        size = sum(f.stat().st_size for f in files)
        self.add("dd conv=fsync of the same files, MB/s", seconds, size)
        self.add("save / dd", (size / result["seconds"]) / (size / seconds))
        shutil.rmtree(copies)

    def load_round(self):
        out, _ = self.save("none", "save for load, MB/s")
        files = self.files(out)
        size = sum(f.stat().st_size for f in files)
        self.dd(files, None)  # into the page cache
        for workers in (1, 2, 3):
            disk = self.dd(files, None)
            self.add("dd to /dev/null, MB/s", disk, size)
            result = self.drive("load", out, workers, self.threads("load", workers))
            self.add(f"load by {workers}, MB/s", result["seconds"], result["raw_bytes"])
            self.add(f"load by {workers} / dd", disk / result["seconds"])

    def compression_round(self):
        out, result = self.save("zstd", "save with zstd, MB/s of values")
        self.add("zstd: stored / raw bytes", result["stored_bytes"] / result["raw_bytes"])
        self.add("zstd: MB/s of values per thread", result["compress_seconds"], result["raw_bytes"])
        workers = self.arguments.workers
        loaded = self.drive("load", out, workers, self.threads("load", workers))
        self.add("load with zstd, MB/s of values", loaded["seconds"], loaded["raw_bytes"])

    def torch(self, world, out, action):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        workers = []
        for rank in range(world):
            environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
                           "MASTER_PORT": str(port)}
            workers.append(subprocess.Popen(
                [self.arguments.torch, "-W", "ignore", "-c", TORCH_WORKER, self.directory / "dump", self.directory / "shapes",
                 out, action, str(self.threads(action, world))], env=environment, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True))
        outputs = [worker.communicate() for worker in workers]
        if any(worker.returncode for worker in workers):
            raise SystemExit("torch: " + outputs[0][1][-2000:])
        return json.loads(outputs[0][0].strip().splitlines()[-1])

    def torch_round(self):
        if not (self.directory / "shapes").exists():
            shapes = self.drive("dump", self.arguments.source, self.directory / "dump")
            (self.directory / "shapes").write_text(json.dumps(shapes))
        size = (self.directory / "dump").stat().st_size
        workers = self.arguments.workers
        out = self.fresh("torch")
        self.add("torch dcp.save, MB/s", self.torch(workers, out, "save")["seconds"], size)
        for world in (workers, workers + 1):
            self.add(f"torch dcp.load by {world}, MB/s", self.torch(world, out, "load")["seconds"], size)
        out = self.fresh("torch")
        report = self.torch(workers, out, "async")
        self.add("torch dcp.async_save: stall, s", report["stall"])
        self.add("torch dcp.async_save to its end, MB/s", report["seconds"], size)
        shutil.rmtree(out)

    def run(self):
        only = self.arguments.only.split(",")
        for number in range(self.arguments.rounds):
            for name in ("save", "load", "compression", "torch"):
                if name in only:
                    getattr(self, name + "_round")()
            print(f"round {number + 1} of {self.arguments.rounds}", file=sys.stderr)

    def print(self):
        width = max(map(len, self.results), default=0)
        for key, values in self.results.items():
            digits = 0 if "MB/s" in key else 2 if "/" in key and "MB" not in key else 3
            print(f"{key:{width}}  {spread(values, '', digits)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--directory", default=str(ROOT / "build" / "checkpoint_bench"))
    parser.add_argument("--driver", default=str(ROOT / "build" / "release" / "tests" / "checkpoint_io"))
    parser.add_argument("--torch", default=sys.executable)
    parser.add_argument("--only", default="save,load,compression,torch")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.directory, ignore_errors=True)
    os.makedirs(arguments.directory)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    bench = Bench(arguments)
    try:
        bench.run()
    except KeyboardInterrupt:
        print("stopped early", file=sys.stderr)
    finally:
        bench.print()
        shutil.rmtree(arguments.directory, ignore_errors=True)


if __name__ == "__main__":
    main()
