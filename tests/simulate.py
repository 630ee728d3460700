#!/usr/bin/env python3
"""Simulates many runs (tests/elastic/control), each drawn from a seed, on all processors.

    tests/simulate.py 10000                      # of each kind, from seed 1 on
    tests/simulate.py 10000 --first 10001        # others
    tests/simulate.py 500 --kind TwoCoordinators --kind Stops
    tests/simulate.py 1000 --digests before.txt  # a digest of each run's decisions, to compare with another build's

Says how far it is, and for each seed that breaks a rule the rule and how to run it again. Exit code 1 if one does.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
KINDS = ["AnyFaults", "TwoCoordinators", "Leases", "GoesBack", "Stops", "OneFaultAtATime", "ManyCrashes",
         "NodesThatAreCutOffFromEachOtherForGood"]
BLOCK = 25  # seeds of one process


def run_block(binary, kind, first, count, with_digests):
    """The output's lines that say what is wrong, none if all is well; and the lines with digests."""
    environment = dict(os.environ, HOLDFAST_SIM_FIRST=str(first), HOLDFAST_SIM_SEEDS=str(count))
    if with_digests:
        environment["HOLDFAST_SIM_DIGESTS"] = "1"
    done = subprocess.run([binary, f"--gtest_filter=Simulation.{kind}"], env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    wrong = re.findall(r"^(seed \d+: .*|replay: .*)$", done.stdout, re.M)
    digests = re.findall(r"^digest (.*)$", done.stdout, re.M)
    if done.returncode == 0:
        return [], digests
    if not wrong:
        wrong = [f"{kind}, seeds {first} to {first + count - 1}: exit code {done.returncode}", *done.stdout.split("\n")[-12:]]
    return wrong, digests


def duration(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", type=int, help="of each kind")
    parser.add_argument("--first", type=int, default=1, help="seed (1)")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only these")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--binary", default=str(ROOT / "build/release/tests/test_elastic_control"))
    parser.add_argument("--digests", type=pathlib.Path, help="file to write: kind, seed, digest of all decisions")
    options = parser.parse_args()
    if not pathlib.Path(options.binary).exists():
        sys.exit(f"error: {options.binary} is not there: cmake --build --preset release --target test_elastic_control")
    last = options.first + options.seeds
    blocks = [(kind, first, min(BLOCK, last - first)) for first in range(options.first, last, BLOCK)
              for kind in options.kind or KINDS]
    digests = []
    total, done, failed, begun, said = sum(b[2] for b in blocks), 0, 0, time.monotonic(), 0.0
    interval = 1 if sys.stdout.isatty() else 15
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = {pool.submit(run_block, options.binary, *block, options.digests is not None): block for block in blocks}
        for future in concurrent.futures.as_completed(running):
            done += running[future][2]
            wrong, some_digests = future.result()
            digests += some_digests
            failed += sum(line.startswith("replay") for line in wrong) or len(wrong[:1])
            for line in wrong:
                print(line, flush=True)
            elapsed = time.monotonic() - begun
            if elapsed - said >= interval or done == total:
                said = elapsed
                to_go = elapsed / done * (total - done)
                print(f"{done} of {total} runs in {duration(elapsed)}, about {duration(to_go)} to go, {failed} failed",
                      flush=True)
    if options.digests is not None:
        options.digests.write_text("".join(line + "\n" for line in sorted(digests)))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
