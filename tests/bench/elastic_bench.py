#!/usr/bin/env python3
"""What elasticity costs and how fast a run recovers, with the real binary on this machine.

  tests/bench/elastic_bench.py [--rounds 5] [--binary build/release/holdfast] [--only recovery,moved,...]

recovery   kill -9 of one of 4 workers: from the signal to the first new step started, by phase
moved      what moves for GPT-2 124M on SIZES workers (3,4,8), when one is killed and when it is back: bytes, seconds
           until the next step begins, seconds until all mirrors are there, and the rate of that beside what one plain
           TCP connection over loopback gives at the same time of day
link       the same with each worker on a host of its own (network namespaces, as root), whose link carries LINK (400)
           Mbit/s each way: the share of it, and of what one TCP connection over it gives, that the transfer keeps busy
experts    a mixture of 16 experts, 4 a token, and a shared one, on two hosts of two workers each, with links of LINK
           (400) Mbit/s: bytes from host to host in a step and its seconds, where tokens go to the experts and nodes are
           named (a row goes to a host once), where each worker says that it is a node of its own (once to each worker),
           and where the experts' weights go to the tokens; and with two microbatches a worker, one after the other and
           in turns (parallel.overlap_microbatches). With OTHER, another binary, both take turns
detect     from kill -9, kill -STOP and a slowdown to the event that names the worker
overhead   steady-state seconds of a step with heartbeats and mirrors, and how much longer that is than with mirrors off
           and heartbeats ten times rarer (votes are in both)
scaling    tokens/s of 2 workers of 1 thread against 1 worker of 2 threads, same global batch, full_shard
memory     peak resident bytes of each of 2, 4 and 8 workers, once: mean, minimum and maximum over the workers

Every other figure is a median with its minimum and maximum over n samples; a sample of overhead and scaling is the
median step of a run of 12 s. What is compared takes turns, every other round in the opposite order. Needs Python alone.
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
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def spread(values, unit="s", digits=3):
    return (f"{statistics.median(values):.{digits}f} {unit} [{min(values):.{digits}f}-{max(values):.{digits}f}, "
            f"n={len(values)}]")


def in_turn(rounds, ways):
    for number in range(rounds):
        yield from ways if number % 2 == 0 else ways[::-1]


class Bench:
    def __init__(self, binary, directory):
        self.binary, self.directory = str(pathlib.Path(binary).resolve()), pathlib.Path(directory)
        self.count = 0
        text = "\n".join(f"line {i * i % 1009} of the story" for i in range(60000))
        (self.directory / "text.txt").write_text(text)
        subprocess.run([self.binary, "data", "pack", self.directory / "text.txt", "--out", self.directory / "train.bin"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def config(self, hidden=192, layers=6, sequence=256, microbatch=4, microbatches=4, vocab=256, family="llama"):
        heads, inner = (hidden // 32, hidden * 8 // 3 // 32 * 32) if family == "llama" else (hidden // 64, 4 * hidden)
        path = self.directory / f"config{family}{hidden}_{layers}_{sequence}_{microbatch}_{microbatches}.yaml"
        path.write_text(
            f"model: {{family: {family}, vocab_size: {vocab}, num_layers: {layers}, hidden_size: {hidden}, num_heads: "
            f"{heads}, intermediate_size: {inner}, max_sequence_length: {sequence}, "
            f"tie_embeddings: true}}\n"
            f"data: {{train: [{self.directory}/train.bin]}}\n"
            f"batch: {{sequence_length: {sequence}, microbatch_size: {microbatch}, microbatches: {microbatches}}}\n"
            "train: {steps: 1000000}\nlog: {digest_every_steps: 0, sample_bytes: 0, every_steps: 1000000}\n")
        return path

    def start(self, config, workers, *settings, env=None):
        self.count += 1
        run = self.directory / f"run{self.count}"
        return run, self.launch(["train", config, "--workers", str(workers), "--run-dir", run], settings, env=env)

    def launch(self, arguments, settings, prefix=(), env=None):
        command = [*prefix, self.binary, *arguments]
        for setting in settings:
            command += ["--set", setting]
        with open(self.directory / f"run{self.count}.log", "a") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **(env or {})})

    def status(self, run):
        result = subprocess.run([self.binary, "status", run, "--json"], capture_output=True, text=True)
        return json.loads(result.stdout) if result.returncode == 0 else None

    def wait(self, run, condition, seconds=60):
        end = time.time() + seconds
        while time.time() < end:
            status = self.status(run)
            if status and condition(status):
                return status
            time.sleep(0.02)
        raise SystemExit(f"{run}: no such state within {seconds} s")

    def wait_for(self, condition, processes):
        """Ends with an error if one of the processes does."""
        while not condition():
            if any(process.poll() is not None for process in processes):
                raise SystemExit((self.directory / f"run{self.count}.log").read_text())
            time.sleep(0.02)

    def stop(self, process):
        process.send_signal(signal.SIGTERM)
        process.wait(60)

    @staticmethod
    def lines(path):
        with open(path) as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    def event(self, run, names, after, seconds=60, **fields):
        end = time.time() + seconds
        while time.time() < end:
            for event in self.lines(run / "events.jsonl"):
                if event["time"] >= after and event["event"] in names and all(event.get(k) == v for k, v in fields.items()):
                    return event
            time.sleep(0.01)
        raise SystemExit(f"{run}: no event {names} within {seconds} s")

    def speed(self, run, process, seconds):
        """Median step seconds over a window, after warm-up."""
        end = time.time() + seconds
        while time.time() < end or not (run / "metrics.jsonl").exists():
            time.sleep(0.1)
        self.stop(process)
        return statistics.median(s["step_seconds"] for s in self.lines(run / "metrics.jsonl")[4:])


def victim(status):
    return max((w for w in status["workers"] if w["rank"] >= 0), key=lambda w: w["rank"])


def recovery(bench, rounds):
    config = bench.config()
    run, process = bench.start(config, 4)
    phases = {"total": [], "detect": [], "rendezvous": [], "transfer": [], "first_step": []}
    for _ in range(rounds):
        time.sleep(1)
        status = bench.wait(run, lambda s: s["world_size"] == 4 and s["state"] == "training", 120)
        target, killed = victim(status), time.time()
        os.kill(target["pid"], signal.SIGKILL)
        published = bench.event(run, ["world_published"], killed)
        recovered = bench.event(run, ["recovered"], published["time"], generation=published["generation"])
        step = recovered["first_step_seconds"]
        phases["total"].append(recovered["time"] - killed - step)
        phases["detect"].append(published["time"] - killed)
        phases["rendezvous"].append(recovered["rendezvous_seconds"])
        phases["transfer"].append(recovered["transfer_seconds"])
        phases["first_step"].append(step)
    bench.stop(process)
    print("recovery from kill -9, 4 workers, 2.7 M parameters: signal to first new step started")
    for name, values in phases.items():
        print(f"  {name:12s} {spread(values)}")


def moved(bench, rounds):
    """What moves when one of N workers of GPT-2 124M is killed, and when it is back."""
    print("GPT-2 124M, 1424 MiB of state, one worker killed and back")
    for size in (int(n) for n in os.environ.get("SIZES", "3,4,8").split(",")):
        config = bench.config(hidden=768, layers=12, sequence=64, microbatch=1, microbatches=size, family="gpt2",
                              vocab=50257)
        run, process = bench.start(config, size, "elastic.heartbeat_timeout_ms=30000")
        found = {"killed": [], "back": []}
        links = []
        for _ in range(rounds):
            status = bench.wait(run, lambda s: s["world_size"] == size and s["state"] == "training", 600)
            bench.wait(run, lambda s: s["committed_step"] >= status["committed_step"] + 2, 600)
            links.append(tcp_rate())
            begin = time.time()
            os.kill(victim(status)["pid"], signal.SIGKILL)
            for name, world_size in (("killed", size - 1), ("back", size)):
                event = bench.event(run, ["recovered"], begin, 600, size=world_size)
                mirrors = [e for e in bench.lines(run / "events.jsonl")
                           if e["event"] == "mirrors_complete" and e["generation"] == event["generation"]]
                found[name].append((event, mirrors[0] if mirrors else None))
                begin = event["time"]
        bench.stop(process)
        for name, pairs in found.items():
            mirrors = [m for _, m in pairs if m]
            print(f"  {size} workers, {name}: {spread([e['bytes'] / 2**20 for e, _ in pairs], 'MiB', 0)}; step begins after "
                  f"a transfer of {spread([e['transfer_seconds'] for e, _ in pairs], digits=2)}"
                  + (f"; of it {spread([m['bytes'] / 2**20 for m in mirrors], 'MiB', 0)} beside the step, mirrors are there "
                     f"{spread([m['seconds'] for m in mirrors], digits=2)} later, "
                     f"{spread([m['bytes'] / m['seconds'] / 1e9 for m in mirrors], 'GB/s', 2)}" if mirrors else ""))
        print(f"  one TCP connection before each kill: {spread(links, 'GB/s', 2)}")


class Hosts:
    """Network namespaces on one switch. `traffic` is counted there: bytes of each host, out and in."""

    SEND = ("import socket,sys; c = socket.create_connection((sys.argv[1], 29500))\n"
            "for _ in range({blocks}): c.sendall(bytes(1 << 20))")
    RECEIVE = ("import socket,sys,time; c = socket.create_server((sys.argv[1], 29500)).accept()[0]; start = time.time(); n = 0\n"
               "while data := c.recv(1 << 20): n += len(data)\nprint(n / (time.time() - start))")

    def __init__(self, names):
        self.prefix = f"hfb{os.getpid()}"
        self.addresses = {name: f"10.78.0.{i + 1}" for i, name in enumerate(names)}
        self.hub = self.prefix + "hub"
        self.ip(f"netns add {self.hub}", f"-n {self.hub} link add br0 type bridge forward_delay 0",
                f"-n {self.hub} link set br0 up")
        for name, address in self.addresses.items():
            space = self.prefix + name
            self.ip(f"netns add {space}", f"-n {self.hub} link add name {name} type veth peer name eth0 netns {space}",
                    f"-n {self.hub} link set {name} master br0 up", f"-n {space} addr add {address}/24 dev eth0",
                    f"-n {space} link set eth0 up", f"-n {space} link set lo up")

    @staticmethod
    def ip(*commands, tool="ip"):
        for command in commands:
            subprocess.run([tool, *command.split()], check=True, stdout=subprocess.DEVNULL)

    def on(self, name):
        return ["ip", "netns", "exec", self.prefix + name]

    def limit(self, megabits):
        """What a host sends and what it receives; 0 = no limit."""
        for name in self.addresses:
            for space, device in ((self.prefix + name, "eth0"), (self.hub, name)):
                if megabits:
                    self.ip(f"-n {space} qdisc replace dev {device} root tbf rate {megabits}mbit burst 256kb latency 50ms",
                            tool="tc")
                else:
                    subprocess.run(["tc", "-n", space, "qdisc", "del", "dev", device, "root"], check=False,
                                   stderr=subprocess.DEVNULL)

    def traffic(self):
        """(time, {(host, direction): bytes})"""
        text = subprocess.run(["ip", "-n", self.hub, "-s", "-j", "link"], capture_output=True, check=True, text=True).stdout
        found = {}
        for device in json.loads(text):
            if device["ifname"] in self.addresses:
                found[device["ifname"], "out"] = device["stats64"]["rx"]["bytes"]
                found[device["ifname"], "in"] = device["stats64"]["tx"]["bytes"]
        return time.time(), found

    def tcp_rate(self, sender, receiver, blocks=64):
        """Bytes a second of payload that one connection carries."""
        address = self.addresses[receiver]
        server = subprocess.Popen([*self.on(receiver), "python3", "-c", self.RECEIVE, address], stdout=subprocess.PIPE, text=True)
        while subprocess.run([*self.on(sender), "python3", "-c", self.SEND.format(blocks=blocks), address],
                             stderr=subprocess.DEVNULL, check=False).returncode:
            time.sleep(0.05)
        return float(server.communicate()[0])

    def remove(self):
        for name in [*self.addresses, "hub"]:
            subprocess.run(["ip", "netns", "del", self.prefix + name], check=False)


def busiest(samples, begin, end):
    """Bytes a second through the link and direction that carried most between two times."""
    inside = [s for s in samples if begin <= s[0] <= end]
    if len(inside) < 2:
        return None
    (first, before), (last, after) = inside[0], inside[-1]
    return max(after[key] - before[key] for key in after) / (last - first)


def link(bench, rounds):
    megabits = float(os.environ.get("LINK", "400"))
    wire = 1514 / 1448  # bytes that a link carries for one of payload
    print(f"GPT-2 124M, 1424 MiB of state, each worker on a host with a link of {megabits:.0f} Mbit/s, one killed and back")
    for size in (int(n) for n in os.environ.get("SIZES", "3,4,8").split(",")):
        names = [f"w{i}" for i in range(size)]
        hosts = Hosts(["lead", *names])
        try:
            link_of(bench, rounds, hosts, names, megabits, wire)
        finally:
            hosts.remove()


def link_of(bench, rounds, hosts, names, megabits, wire):
    size = len(names)
    config = bench.config(hidden=768, layers=12, sequence=64, microbatch=1, microbatches=size, family="gpt2", vocab=50257)
    bench.count += 1
    run = bench.directory / f"run{bench.count}"
    settings = [f"elastic.workers={size}", "elastic.heartbeat_timeout_ms=30000", "train.threads=1",
                "checkpoint.every=never"]
    hosts.limit(megabits)
    rates = [hosts.tcp_rate(names[0], names[1]) for _ in range(3)]
    hosts.limit(0)
    address = hosts.addresses["lead"] + ":29400"
    coordinator = bench.launch(["coordinator", config, "--run-dir", run, "--listen", address], settings, hosts.on("lead"))
    while not (run / "coordinator.address").exists():
        time.sleep(0.05)
    agents = [bench.launch(["agent", config, "--run-dir", run, "--coordinator", address, "--node", name, "--workers", "1",
                            "--token-file", run / "coordinator.token", "--host", hosts.addresses[name]], settings,
                           hosts.on(name)) for name in names]
    found = {"killed": [], "back": []}
    begin = 0
    for _ in range(rounds):
        bench.event(run, ["recovered"], begin, 600, size=size)
        steps = len(bench.lines(run / "metrics.jsonl"))
        while len(bench.lines(run / "metrics.jsonl")) < steps + 2:
            time.sleep(0.1)
        hosts.limit(megabits)
        joined = [e for e in bench.lines(run / "events.jsonl") if e["event"] == "worker_joined"]
        begin = time.time()
        os.kill(joined[-1]["pid"], signal.SIGKILL)
        samples = []
        for name, world_size in (("killed", size - 1), ("back", size)):
            over = None
            while not over:
                samples.append(hosts.traffic())
                events = [e for e in bench.lines(run / "events.jsonl") if e["time"] >= begin]
                over = next((e for e in events if e["event"] == "recovered" and e["size"] == world_size), None)
                time.sleep(0.05)
            world = [e for e in events if e.get("generation") == over["generation"]]
            times = {e["event"]: e for e in world}
            started = over["time"] - over["first_step_seconds"]
            found[name].append((over, times.get("mirrors_complete"),
                                busiest(samples, started - over["transfer_seconds"], started),
                                "mirrors_complete" in times and
                                busiest(samples, times["mirrors_missing"]["time"], times["mirrors_complete"]["time"])))
            begin = over["time"]
        hosts.limit(0)
    coordinator.send_signal(signal.SIGTERM)
    for process in [coordinator, *agents]:
        process.wait(120)
    print(f"  {size} workers: one TCP connection {spread([r * 8e-6 * wire for r in rates], 'Mbit/s', 0)} on the wire")
    rate = statistics.median(rates) * wire
    for name, rows in found.items():
        early = [over["bytes"] - (mirrors["bytes"] if mirrors else 0) for over, mirrors, _, _ in rows]
        late = [(mirrors, busy) for _, mirrors, _, busy in rows if mirrors]
        text = f"    {name}: before the step {spread([b / 2**20 for b in early], 'MiB', 0)}"
        if max(early) > 0:
            text += (f" in {spread([over['transfer_seconds'] for over, _, _, _ in rows], digits=2)}, the busiest link at "
                     f"{spread([100 * busy / rate for _, _, busy, _ in rows if busy], '%', 0)}")
        if late:
            text += (f"; beside it {spread([m['bytes'] / 2**20 for m, _ in late], 'MiB', 0)} in "
                     f"{spread([m['seconds'] for m, _ in late], digits=2)}, the busiest link, with the step's own bytes, at "
                     f"{spread([100 * busy / rate for _, busy in late if busy], '%', 0)}")
        print(text, flush=True)


def experts(bench, rounds, workers=2, steps=6):
    megabits = float(os.environ.get("LINK", "400"))
    config = bench.directory / "experts.yaml"
    config.write_text(
        "model: {family: qwen2_moe, vocab_size: 256, num_layers: 4, hidden_size: 256, num_heads: 4, num_experts: 16, "
        "experts_per_token: 4, expert_intermediate_size: 192, shared_expert_intermediate_size: 768, "
        "max_sequence_length: 256}\n"
        f"data: {{train: [{bench.directory}/train.bin]}}\n"
        "batch: {sequence_length: 256, microbatch_size: 4, microbatches: 4}\n"
        "train: {steps: 1000000, threads: 1}\ncheckpoint: {every: never}\nelastic: {heartbeat_timeout_ms: 30000}\n"
        "log: {digest_every_steps: 0, sample_bytes: 0, every_steps: 1000000}\n")
    print(f"16 experts, 4 a token, and a shared one, two hosts of {workers} workers, links of {megabits:.0f} Mbit/s:")
    found = {}
    binaries = {"": bench.binary} | ({", OTHER": os.environ["OTHER"]} if "OTHER" in os.environ else {})
    ways = [(title + which, binary, by_host, settings) for title, by_host, *settings in (
                ("move, a node is a host", True, "parallel.experts=move"),
                ("move, a node is a worker", False, "parallel.experts=move"),
                ("gather", True, "parallel.experts=gather"),
                ("move, two microbatches", True, "parallel.experts=move", "batch.microbatches=8"),
                ("move, two in turns", True, "parallel.experts=move", "batch.microbatches=8", "parallel.overlap_microbatches=true"))
            for which, binary in binaries.items()]
    for title, bench.binary, by_host, settings in in_turn(rounds, ways):
        hosts = Hosts(["lead", "one", "two"])
        try:
            found.setdefault(title, []).append(experts_of(bench, hosts, config, by_host, workers, steps, megabits, settings))
        finally:
            hosts.remove()
    bench.binary = binaries[""]
    for title, rows in found.items():
        print(f"  {title:31s} {spread([through / 2**20 for through, _, _ in rows], 'MiB', 1)} and "
              f"{spread([seconds for _, _, seconds in rows], digits=2)} a step; {spread([rows_ / 2**20 for _, rows_, _ in rows], 'MiB', 1)} "
              "of rows between nodes")


def experts_of(bench, hosts, config, by_host, workers, steps, megabits, settings):
    bench.count += 1
    run = bench.directory / f"run{bench.count}"
    settings = [f"elastic.workers={2 * workers}", *settings]
    address = hosts.addresses["lead"] + ":29400"
    processes = [bench.launch(["coordinator", config, "--run-dir", run, "--listen", address], settings, hosts.on("lead"))]
    bench.wait_for(lambda: (run / "coordinator.address").exists(), processes)
    for host in ("one", "two"):
        nodes = [(host, workers)] if by_host else [(f"{host}{i}", 1) for i in range(workers)]
        processes += [bench.launch(["agent", config, "--run-dir", run, "--coordinator", address, "--node", node, "--workers",
                                    str(count), "--token-file", run / "coordinator.token", "--host", hosts.addresses[host]],
                                   settings, hosts.on(host)) for node, count in nodes]
    def past(step):
        bench.wait_for(lambda: (run / "metrics.jsonl").exists() and len(bench.lines(run / "metrics.jsonl")) >= step, processes)
        return hosts.traffic()[1]
    past(3)
    hosts.limit(megabits)
    first = past(len(bench.lines(run / "metrics.jsonl")) + 1)
    begin = len(bench.lines(run / "metrics.jsonl"))
    last = past(begin + steps)
    lines = bench.lines(run / "metrics.jsonl")[begin:]
    hosts.limit(0)
    processes[0].send_signal(signal.SIGTERM)
    for process in processes:
        process.wait(120)
    through = sum(last[host, "out"] - first[host, "out"] for host in ("one", "two"))
    told = [line.get("exchanged_bytes", {}).get("between_nodes", 0) for line in lines]
    return through / len(lines), statistics.median(told), statistics.median(line["step_seconds"] for line in lines)


def tcp_rate(total=2**30, block=2**20):
    """GB/s that one connection over loopback carries, both ends processes of their own, beside whatever runs."""
    listener = socket.create_server(("127.0.0.1", 0))
    child = os.fork()
    if child == 0:
        sender = socket.create_connection(listener.getsockname())
        data = bytes(block)
        for _ in range(total // block):
            sender.sendall(data)
        os._exit(0)
    connection, _ = listener.accept()
    buffer, left, start = bytearray(block), total, time.time()
    while left > 0:
        left -= connection.recv_into(buffer)
    seconds = time.time() - start
    os.waitpid(child, 0)
    return total / seconds / 1e9


def detect(bench, rounds):
    killed, hung, slow = [], [], []
    config = bench.config(hidden=64, layers=2, sequence=64)
    for _ in range(rounds):
        run, process = bench.start(config, 3)
        status = bench.wait(run, lambda s: s["world_size"] == 3 and s["committed_step"] > 20)
        start = time.time()
        os.kill(victim(status)["pid"], signal.SIGKILL)
        killed.append(bench.event(run, ["worker_lost"], start)["time"] - start)
        status = bench.wait(run, lambda s: s["world_size"] == 3 and s["state"] == "training", 120)
        start = time.time()
        os.kill(victim(status)["pid"], signal.SIGSTOP)
        hung.append(bench.event(run, ["worker_hung"], start)["time"] - start)
        bench.stop(process)
        run, process = bench.start(config, 3, "train.threads=1")
        status = bench.wait(run, lambda s: s["world_size"] == 3 and s["committed_step"] > 50)
        start = time.time()
        subprocess.run(["renice", "-n", "19", "-p", str(victim(status)["pid"])], stdout=subprocess.DEVNULL)
        for task in os.listdir(f"/proc/{victim(status)['pid']}/task"):
            subprocess.run(["renice", "-n", "19", "-p", task], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            slow.append(bench.event(run, ["straggler"], start, 20)["time"] - start)
        except SystemExit:
            pass
        bench.stop(process)
    print("time to detect (heartbeat_timeout_ms 3000, straggler_steps 10)")
    print(f"  killed       {spread(killed)}")
    print(f"  hung         {spread(hung)}")
    print(f"  straggler    {spread(slow) if slow else 'not named'} ({len(slow)} of {rounds}; reniced to 19)")


def overhead(bench, rounds):
    config = bench.config()
    with_all, without = [], []
    ways = [(with_all, ["parallel.mirrors=1"]),
            (without, ["parallel.mirrors=0", "elastic.heartbeat_interval_ms=2000"])]
    for steps, settings in in_turn(rounds, ways):
        run, process = bench.start(config, 2, "train.threads=1", *settings)
        steps.append(bench.speed(run, process, 12))
    ratios = [100 * (ours / least - 1) for ours, least in zip(with_all, without)]
    print("steady state, 2 workers of 1 thread, full_shard: mirrors and heartbeats against no mirrors and a tenth of the heartbeats")
    print(f"  cost         {spread(ratios, '%', 2)}, in a step of {spread(with_all)}")


def scaling(bench, rounds):
    config = bench.config()
    two_speeds, one_speeds = [], []
    tokens = 256 * 4 * 4
    for speeds, workers, threads in in_turn(rounds, [(two_speeds, 2, 1), (one_speeds, 1, 2)]):
        run, process = bench.start(config, workers, f"train.threads={threads}")
        speeds.append(tokens / bench.speed(run, process, 12))
    ratios = [two / one for two, one in zip(two_speeds, one_speeds)]
    print("2 workers of 1 thread against 1 worker of 2 threads, full_shard, 2.7 M parameters")
    print(f"  2 x 1        {spread(two_speeds, 'tokens/s', 0)}")
    print(f"  1 x 2        {spread(one_speeds, 'tokens/s', 0)}")
    print(f"  ratio        {spread(ratios, '', 2)}")


def memory(bench, _):
    # Much state and little else: what falls as 1/N is seen.
    config = bench.config(hidden=512, layers=16, sequence=32, microbatch=1, microbatches=8)
    print("peak resident MiB of a worker, mean [min-max] over the workers, 50 M parameters (state: 14 bytes a parameter, twice "
          "with a mirror)")
    for strategy, mirrors in (("full_shard", 0), ("full_shard", 1)):
        row = []
        for workers in (2, 4, 8):
            run, process = bench.start(config, workers, "train.threads=1", f"parallel.sharding={strategy}",
                                       f"parallel.mirrors={mirrors}")
            status = bench.wait(run, lambda s: s["committed_step"] >= 3, 120)
            peaks = []
            for worker in status["workers"]:
                text = pathlib.Path(f"/proc/{worker['pid']}/status").read_text()
                peaks.append(int(text.split("VmHWM:")[1].split()[0]) / 1024)
            bench.stop(process)
            row.append(f"N={workers}: {statistics.mean(peaks):.0f} [{min(peaks):.0f}-{max(peaks):.0f}]")
        print(f"  {strategy}, mirrors {mirrors}:  " + "   ".join(row))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--binary", default=ROOT / "build/release/holdfast")
    parser.add_argument("--only", default="recovery,detect,overhead,scaling,memory")
    arguments = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="elastic_bench_")
    try:
        bench = Bench(arguments.binary, directory)
        for name in arguments.only.split(","):
            globals()[name](bench, arguments.rounds)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
