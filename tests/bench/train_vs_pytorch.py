#!/usr/bin/env python3
"""Trains a model in Holdfast and in PyTorch side by side and prints a Markdown table.

Needs a release build (for --device cuda one with CUDA), and a Python with PyTorch and NumPy (pip install torch numpy);
neither is needed to build or run Holdfast.

    tests/bench/train_vs_pytorch.py                          # GPT-2 124M on the CPU: all shapes, all processors
    tests/bench/train_vs_pytorch.py --shapes 4x64 --threads 2 --rounds 3 --out results.json
    tests/bench/train_vs_pytorch.py --device cuda --model llama_1b --shapes 8x1024 --gemm-table llama_1b.gemm
    tests/bench/train_vs_pytorch.py --table ours.json theirs.json   # of what was measured in several calls

What is compared: the same model without dropout, the same batch shape and token file, on a CPU the same number of
threads, the same --recompute (none, or blocks whose activations are computed again in the backward pass, by
torch.utils.checkpoint in PyTorch); a step is forward, backward, clipping the gradient's norm and AdamW, with the loss
read at its end. The PyTorch model is the plain one below (of a mixture of experts transformers' own, whose experts are computed one by one, eager, or
as grouped products), in every variant of --variants (bf16 = autocast; +compile = torch.compile; AdamW is fused,
attention is scaled_dot_product_attention); a variant that fails is listed as failed, one whose warm-up (which compiles)
takes longer than --warmup-limit as not warm, and neither has a figure. First every variant of both sides runs once
(screening), then the fastest of each side take turns for --rounds rounds, every other round in the opposite order; the
table shows those two, and below it the screening of all. --out receives every measurement as JSON as soon as it is made.
The exit code is 1 if a side has no figure.

Each measurement is a process of its own. Step times are taken after --warmup steps: by a clock around the step for
PyTorch, from metrics.jsonl for Holdfast, whose run is ended by a signal when it has them. Peak memory on a CPU is the
resident high-water mark: for PyTorch of the measured steps alone, so that compilation is not held against it; for
Holdfast of the whole process. On a GPU it is what nvidia-smi shows of the process, for both after the last step, for
Holdfast also until the warm-up is over. MFU is Holdfast's own (metrics.jsonl); PyTorch's follows from the ratio.
"""

import argparse
import array
import datetime
import itertools
import json
import os
import platform
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GPT2, LLAMA, MIXTURE = "gpt2", "llama", "qwen3_moe"
MODELS = {  # as configs/NAME.yaml has them
    "gpt2_124m": dict(family=GPT2, vocab=50257, layers=12, hidden=768, heads=12, kv_heads=12, mlp=3072),
    "gpt2_1558m": dict(family=GPT2, vocab=50257, layers=48, hidden=1600, heads=25, kv_heads=25, mlp=6400),
    "llama_1b": dict(family=LLAMA, vocab=128256, layers=16, hidden=2048, heads=32, kv_heads=8, mlp=8192),
    # Of the family of configs/moe_1b.yaml, small enough for a processor; beside it transformers' own model.
    "moe_76m": dict(family=MIXTURE, config="moe_1b", vocab=50304, layers=4, hidden=512, heads=8, kv_heads=4, head_dim=64,
                    experts=32, chosen=4, width=256),
    # To try this program.
    "tiny_gpt2": dict(family=GPT2, vocab=256, layers=2, hidden=64, heads=4, kv_heads=4, mlp=256),
    "tiny_llama": dict(family=LLAMA, vocab=256, layers=2, hidden=64, heads=4, kv_heads=2, mlp=128),
}
CPU_SHAPES, CUDA_SHAPES = "4x64,1x1024,4x1024", {"gpt2_124m": "32x1024,8x4096", "gpt2_1558m": "8x1024,2x4096",
                                                 "llama_1b": "8x1024,2x4096", "moe_76m": "32x1024",
                                                 "tiny_gpt2": "4x64", "tiny_llama": "4x64"}
TOKEN_FILE_MAGIC, HEADER_BYTES = 20240520, 1024  # llm.c: 256 x int32, then uint16 tokens


# ---------------------------------------------------------------------------------------------- the PyTorch side

def make_torch_model(shape, length, recompute):
    """GPT-2 or Llama as one would write it by hand; its forward returns the mean loss."""
    import torch
    from torch import nn
    import torch.nn.functional as F
    from torch.utils.checkpoint import checkpoint

    hidden, heads, kv_heads = shape["hidden"], shape["heads"], shape["kv_heads"]
    size, llama = hidden // heads, shape["family"] == LLAMA
    bias = not llama

    def norm():
        return nn.RMSNorm(hidden, eps=1e-5) if llama else nn.LayerNorm(hidden)

    def rope_table():
        angles = torch.outer(torch.arange(length), 500000.0 ** (-torch.arange(0, size, 2) / size))
        return torch.cat([angles.cos(), angles.cos()], -1), torch.cat([angles.sin(), angles.sin()], -1)

    def rotate(x, cos, sin):  # (B, H, T, D)
        left, right = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-right, left], -1) * sin

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = norm(), norm()
            self.qkv, self.out = nn.Linear(hidden, hidden + 2 * kv_heads * size, bias), nn.Linear(hidden, hidden, bias)
            self.up = nn.Linear(hidden, shape["mlp"] * (2 if llama else 1), bias)
            self.down = nn.Linear(shape["mlp"], hidden, bias)

        def forward(self, x, cos, sin):  # (B, T, C)
            b, t, c = x.shape
            q, k, v = (h.view(b, t, -1, size).transpose(1, 2)  # (B, H, T, D)
                       for h in self.qkv(self.norm1(x)).split([c, kv_heads * size, kv_heads * size], dim=2))
            if llama:
                q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
            grouped = {"enable_gqa": True} if kv_heads != heads else {}
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, **grouped)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
            up = self.up(self.norm2(x))
            if llama:
                gate, up = up.chunk(2, dim=-1)
                return x + self.down(F.silu(gate) * up)
            return x + self.down(F.gelu(up, approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(shape["vocab"], hidden)
            self.positions = None if llama else nn.Embedding(length, hidden)
            self.blocks = nn.ModuleList(Block() for _ in range(shape["layers"]))
            self.norm = norm()
            self.head = nn.Linear(hidden, shape["vocab"], bias=False)
            self.head.weight = self.tokens.weight
            for parameter in self.parameters():
                if parameter.dim() == 2:
                    nn.init.normal_(parameter, std=0.02)
            cos, sin = rope_table() if llama else (torch.empty(0), torch.empty(0))
            self.register_buffer("cos", cos)
            self.register_buffer("sin", sin)

        def forward(self, inputs, targets):  # (B, T) each
            x = self.tokens(inputs)
            if self.positions is not None:
                x = x + self.positions(torch.arange(inputs.shape[1], device=inputs.device))
            for block in self.blocks:
                if recompute == "block":
                    x = checkpoint(block, x, self.cos, self.sin, use_reentrant=False)
                else:
                    x = block(x, self.cos, self.sin)
            logits = self.head(self.norm(x))  # (B, T, V)
            return F.cross_entropy(logits.view(-1, shape["vocab"]), targets.view(-1))

    return Model()


def make_transformers_model(shape, experts, recompute):
    """transformers' Qwen3-MoE with its experts computed as `experts` says; its forward returns the mean loss."""
    from torch import nn
    import torch.nn.functional as F
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(
        vocab_size=shape["vocab"], num_hidden_layers=shape["layers"], hidden_size=shape["hidden"],
        num_attention_heads=shape["heads"], num_key_value_heads=shape["kv_heads"], head_dim=shape["head_dim"],
        num_experts=shape["experts"], num_experts_per_tok=shape["chosen"], moe_intermediate_size=shape["width"],
        norm_topk_prob=True, tie_word_embeddings=False, use_cache=False, experts_implementation=experts,
        attn_implementation="sdpa")

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = Qwen3MoeForCausalLM(config)
            if recompute == "block":
                self.model.gradient_checkpointing_enable({"use_reentrant": False})

        def forward(self, inputs, targets):
            logits = self.model(input_ids=inputs).logits
            return F.cross_entropy(logits.view(-1, shape["vocab"]), targets.view(-1))

    return Model()


def make_torch_optimizer(model):
    import torch

    decayed = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    try:
        return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)
    except RuntimeError:  # before PyTorch 2.4 there is no fused AdamW on the CPU
        return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), foreach=True)


def reset_peak_memory():
    try:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
    except OSError:
        pass  # the peak then includes the warm-up


def peak_memory_mib():
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


def gpu_memory_mib(pid):
    """What nvidia-smi shows of a process; 0 where it does not say."""
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(query, capture_output=True, text=True, timeout=30).stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return 0
    rows = [[field.strip() for field in line.split(",")] for line in lines]
    mine = [float(row[1]) for row in rows if len(row) == 2 and row[0] == str(pid) and row[1].isdigit()]
    # In a container the numbers of processes may be another's: then the only process is ours.
    every = [float(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()]
    return mine[0] if mine else every[0] if len(every) == 1 else 0


def run_torch_child(variant, batch, length, args):
    """Trains and prints one JSON line: seconds of each step, losses, peak memory."""
    import numpy as np
    import torch

    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    dtype, *modes = variant.split("+")
    tokens = np.memmap(args.tokens, dtype=np.uint16, mode="r", offset=HEADER_BYTES)
    shape = MODELS[args.model]
    if shape["family"] == MIXTURE:
        model = make_transformers_model(shape, "grouped_mm" if "grouped" in modes else "eager", args.recompute)
    else:
        model = make_torch_model(shape, length, args.recompute)
    model.to(args.device)
    optimizer = make_torch_optimizer(model)
    forward = torch.compile(model) if "compile" in modes else model

    seconds, losses = [], []
    deadline = time.perf_counter() + args.warmup_limit
    for step in range(args.warmup + args.steps):
        if step and time.perf_counter() > deadline:
            break
        if step == args.warmup:
            reset_peak_memory()
            deadline = time.perf_counter() + args.limit
        start = time.perf_counter()
        at = (step * batch * (length + 1)) % (len(tokens) - batch * (length + 1))
        window = torch.from_numpy(tokens[at:at + batch * (length + 1)].astype(np.int64)).view(batch, length + 1)
        window = window.to(args.device)
        with torch.autocast(args.device, torch.bfloat16, enabled=dtype == "bf16"):
            loss = forward(window[:, :-1].contiguous(), window[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds[args.warmup:], "warm": len(seconds) > args.warmup, "losses": losses,
                      "peak_mib": peak_memory_mib() if args.device == "cpu" else gpu_memory_mib(os.getpid()),
                      "version": torch.__version__}))


def measure_torch(variant, batch, length, args):
    command = [sys.executable, os.path.abspath(__file__), "--child", variant, "--shapes", f"{batch}x{length}",
               "--threads", str(args.threads), "--steps", str(args.steps), "--warmup", str(args.warmup),
               "--tokens", args.tokens, "--limit", str(args.limit), "--warmup-limit", str(args.warmup_limit),
               "--model", args.model, "--device", args.device, "--recompute", args.recompute]
    environment = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=args.timeout)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
    return json.loads(done.stdout.splitlines()[-1])


# --------------------------------------------------------------------------------------------- the Holdfast side

def await_steps(process, metrics, args):
    """Until the run has the steps to be measured, or has ended; the most GPU memory that nvidia-smi shows, which is not
    asked beside measured steps."""
    most, total = 0, args.warmup + args.steps
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        done = count_lines(metrics)
        if args.device == "cuda" and (done < args.warmup or done >= total):
            most = max(most, gpu_memory_mib(process.pid))
        if done >= total:
            break
        time.sleep(0.1)
    return most


def count_lines(path):
    try:
        with open(path) as f:
            return sum(1 for _ in f)
    except FileNotFoundError:
        return 0


def measure_holdfast(variant, batch, length, args):
    run_dir = os.path.join(args.work, "run")
    metrics = os.path.join(run_dir, "metrics.jsonl")
    shutil.rmtree(run_dir, ignore_errors=True)
    settings = {
        "batch.sequence_length": length, "batch.microbatch_size": batch, "batch.microbatches": 1,
        "train.steps": args.warmup + args.steps + 1000,  # more than it is given time for
        "train.threads": args.threads, "train.compute_dtype": variant,
        "train.validate_every_steps": 0, "data.train": f"[{args.tokens}]", "data.validation": "[]",
        "data.tokenizer": "bytes", "log.digest_every_steps": 0, "log.sample_bytes": 0, "schedule.warmup_steps": 0,
        "train.device": args.device, "train.recompute": args.recompute, "checkpoint.every": "never",
    }
    if args.gemm_table:
        settings["train.gemm_table"] = os.path.abspath(args.gemm_table)
    if MODELS[args.model]["family"] == GPT2:
        settings["model.max_sequence_length"] = max(length, 1024)
    shape = MODELS[args.model]
    if shape["family"] == MIXTURE:
        settings.update({
            "model.num_layers": shape["layers"], "model.hidden_size": shape["hidden"], "model.num_heads": shape["heads"],
            "model.num_kv_heads": shape["kv_heads"], "model.head_dim": shape["head_dim"],
            "model.num_experts": shape["experts"], "model.experts_per_token": shape["chosen"],
            "model.expert_intermediate_size": shape["width"], "model.vocab_size": shape["vocab"],
            "model.router_balance_loss": 0, "model.router_z_loss": 0,
        })
    config = os.path.join(args.configs, f"{shape.get('config', args.model)}.yaml")
    command = [args.binary, "train", config, "--run-dir", run_dir]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    with open(os.path.join(args.work, "holdfast.log"), "w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        gpu_mib = await_steps(process, metrics, args)
        complete = count_lines(metrics) >= args.warmup + args.steps
        os.killpg(process.pid, signal.SIGKILL)  # what a run does at its end is not measured
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if not complete:
            log.seek(0)
            raise RuntimeError((log.read().strip().splitlines() or [f"exit code {process.returncode}"])[-1])
    with open(metrics) as f:
        steps = [json.loads(line) for line in itertools.islice(f, args.warmup + args.steps)]
    version = subprocess.run([args.binary, "--version"], capture_output=True, text=True).stdout.strip()
    return {"seconds": [s["step_seconds"] for s in steps[args.warmup:]], "losses": [s["loss"] for s in steps],
            "peak_mib": usage.ru_maxrss / 1024 if args.device == "cpu" else gpu_mib, "version": version,
            "mfu": [s["mfu"] for s in steps[args.warmup:] if s["mfu"]]}


# ------------------------------------------------------------------------------------------------------ measuring

SIDES = ("Holdfast", "PyTorch")


class Results:
    """What was measured, in a JSON file (if there is to be one) as soon as it is there."""

    def __init__(self, setting, path):
        self.all, self.path = dict(setting, measurements=[]), path

    def add(self, measurement):
        self.all["measurements"].append(measurement)
        if not self.path:
            return
        partial = f"{self.path}.partial"
        with open(partial, "w") as f:
            json.dump(self.all, f, indent=1)
        os.replace(partial, self.path)


def write_tokens(path, count, vocab):
    """A token file of the llm.c format with a skewed distribution, so that the loss falls as on text."""
    rng = random.Random(1)
    limit = min(vocab, 50257)
    with open(path, "wb") as f:
        header = array.array("i", [TOKEN_FILE_MAGIC, 1, count] + [0] * 253)
        f.write(header.tobytes())
        array.array("H", (min(int(rng.paretovariate(0.7)), limit) - 1 for _ in range(count))).tofile(f)


def measure(side, variant, shape, turn, args, results):
    """One process of one side; None if it has no figure."""
    start = time.perf_counter()
    found = {"side": side, "variant": variant, "batch": shape[0], "length": shape[1], "turn": turn}
    try:
        found.update((measure_holdfast if side == "Holdfast" else measure_torch)(variant, *shape, args))
    except (RuntimeError, subprocess.TimeoutExpired, OSError) as error:
        found["error"] = str(error)
    results.add(found)
    print(f"  {side} {variant}: {summary(found)} ({time.perf_counter() - start:.0f} s)", file=sys.stderr, flush=True)
    return found if has_figure(found) else None


def measure_shape(shape, variants, args, results):
    """Screens every variant of each side in `variants`, then lets the fastest of each take turns."""
    print(f"batch {shape[0]}, length {shape[1]}", file=sys.stderr, flush=True)
    best = {}
    for side, names in variants.items():
        found = [measure(side, name, shape, 0, args, results) for name in names]
        if any(found):
            best[side] = min(filter(None, found), key=median)["variant"]
    for turn in range(1, args.rounds + 1 if len(best) == 2 else 1):
        for side in SIDES if turn % 2 else SIDES[::-1]:
            measure(side, best[side], shape, turn, args, results)


# ------------------------------------------------------------------------------------------------------ reporting

def has_figure(measurement):
    return "error" not in measurement and measurement.get("warm", True)


def median(measurement):
    return statistics.median(measurement["seconds"])


def rate(tokens, seconds):
    """'123 [120-125]': tokens per second, the median and the range over the steps."""
    return f"{tokens / statistics.median(seconds):,.0f} [{tokens / max(seconds):,.0f}-{tokens / min(seconds):,.0f}]"


def summary(m):
    if "error" in m:
        return f"failed: {m['error']}"
    if not has_figure(m):
        return f"not warm: ended after {len(m['losses'])} steps of its warm-up"
    return (f"{rate(m['batch'] * m['length'], m['seconds'])} tokens/s, peak {m['peak_mib']:,.0f} MiB, "
            f"loss {m['losses'][0]:.3f} -> {m['losses'][-1]:.3f}, {len(m['seconds'])} steps")


def best_of(side, measurements):
    """The fastest variant of a side by its screening, with the steps of all of its turns; None if it has no figure."""
    good = [m for m in measurements if m["side"] == side and has_figure(m)]
    screened = [m for m in good if m["turn"] == 0]
    if not screened:
        return None
    best = min(screened, key=median)
    turns = [m for m in good if m["turn"] > 0 and m["variant"] == best["variant"]] or [best]
    return dict(best, seconds=[s for m in turns for s in m["seconds"]], peak_mib=max(m["peak_mib"] for m in turns),
                mfu=[share for m in turns for share in m.get("mfu", [])])


def speed_cell(side, best, measurements):
    if best:
        return (f"{rate(best['batch'] * best['length'], best['seconds'])} ({best['variant']}, "
                f"{len(best['seconds'])} steps)")
    return "not warm" if any(m["side"] == side and not m.get("warm", True) for m in measurements) else "-"


def table_row(shape, measurements):
    best = {side: best_of(side, measurements) for side in SIDES}
    ours, theirs = (best[side] for side in SIDES)
    cells = [f"({shape[0]}, {shape[1]})"]
    cells += [speed_cell(side, best[side], measurements) for side in SIDES]
    cells.append(f"{median(theirs) / median(ours):.2f}" if ours and theirs else "-")
    cells += [f"{r['peak_mib']:,.0f}" if r else "-" for r in (ours, theirs)]
    mfu = statistics.median(ours["mfu"]) if ours and ours["mfu"] else None
    cells.append(f"{100 * mfu:.1f} %" if mfu else "-")
    cells.append(f"{100 * mfu * median(ours) / median(theirs):.1f} %" if mfu and theirs else "-")
    return "| " + " | ".join(cells) + " |"


def table(all_results):
    """The Markdown of results of one model on one machine, however many calls made them."""
    measurements = [m for results in all_results for m in results["measurements"]]
    shapes = list(dict.fromkeys((m["batch"], m["length"]) for m in measurements))
    lines = ["| (batch, length) | Holdfast tokens/s | PyTorch tokens/s | ratio | Holdfast peak MiB | PyTorch peak MiB | "
             "Holdfast MFU | PyTorch MFU |", "|---|---|---|---|---|---|---|---|"]
    for shape in shapes:
        lines.append(table_row(shape, [m for m in measurements if (m["batch"], m["length"]) == shape]))
    versions = {m["side"]: m["version"] for m in measurements if "version" in m}
    first, turns = all_results[0], max((m["turn"] for m in measurements), default=0)
    lines += ["", f"{first['model']}, {first['machine']}, recomputation: {first['recompute']}, matrix products "
              f"{'by a tuned table' if any(r['gemm_table'] for r in all_results) else 'not tuned'}, "
              f"{', '.join(f'{side} {version}' for side, version in versions.items())}, {first['date']}, load average "
              f"{max(r['load'] for r in all_results):.1f} before the start. tokens/s: median [min-max] over "
              + (f"the steps of {turns} rounds in turn" if turns else "the steps of the screening alone")
              + "; in brackets the fastest variant of each side and the number of steps.", "",
              "Screening of all variants:", ""]
    lines += [f"- ({m['batch']}, {m['length']}) {m['side']} {m['variant']}: {summary(m)}" for m in measurements
              if m["turn"] == 0]
    return "\n".join(lines) + "\n"


def read_results(paths):
    every = []
    for path in paths:
        with open(path) as f:
            every.append(json.load(f))
        for key in ("model", "machine", "recompute"):
            if every[-1][key] != every[0][key]:
                sys.exit(f"error: {path} has {key} {every[-1][key]}, and {paths[0]} {every[0][key]}: no one table")
    return every


def machine(args):
    if args.device == "cpu":
        return f"{args.threads} threads, {cpu_model()}"
    query = ["nvidia-smi", "--query-gpu=name,driver_version,power.limit", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True).stdout.strip().splitlines()[0]


def cpu_model():
    with open("/proc/cpuinfo") as f:
        fields = [line.split(":", 1) for line in f if ":" in line]
    found = {key.strip(): value.strip() for key, value in reversed(fields)}
    isa = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in found.get("flags", "").split()]
    return f"{found.get('model name', platform.processor())} ({', '.join(isa)})"


# --------------------------------------------------------------------------------------------------- command line

def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=sorted(MODELS), default="gpt2_124m")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--shapes", help="BATCHxLENGTH, comma-separated; default: some that fit the device")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--steps", type=int, default=5, help="measured steps of each process")
    parser.add_argument("--warmup", type=int, default=2, help="steps before the measured ones")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each side after screening")
    parser.add_argument("--recompute", choices=["none", "block"], default="none",
                        help="of both sides: activations of blocks are kept, or computed again in the backward pass")
    parser.add_argument("--gemm-table", help="what `holdfast tune` found; default: as cuBLASLt prefers")
    parser.add_argument("--variants", help="of PyTorch; default: bf16,bf16+compile, on a CPU also fp32,fp32+compile; of "
                        "mixtures of experts bf16+eager,bf16+grouped,bf16+grouped+compile and so on")
    parser.add_argument("--holdfast-variants", help="values of train.compute_dtype; default: bf16, on a CPU also f32")
    parser.add_argument("--only", choices=["pytorch", "holdfast"], help="screen one side only")
    parser.add_argument("--binary", help="default: that of build/release, or build/cuda")
    parser.add_argument("--configs", default=os.path.join(ROOT, "configs"))
    parser.add_argument("--limit", type=float, default=180,
                        help="seconds after its warm-up after which a slow PyTorch variant is not given another step")
    parser.add_argument("--warmup-limit", type=float, default=600,
                        help="seconds of warm-up after which a PyTorch variant is given up")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds after which a process is given up")
    parser.add_argument("--tokens", help="token file to train on; default: a synthetic one")
    parser.add_argument("--out", help="JSON file of all measurements, written as they are made")
    parser.add_argument("--table", nargs="+", metavar="FILE", help="measures nothing: the table of such files")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    cpu = args.device == "cpu"
    args.shapes = args.shapes or (CPU_SHAPES if cpu else CUDA_SHAPES[args.model])
    args.shapes = [tuple(int(n) for n in shape.split("x")) for shape in args.shapes.split(",")]
    ways = ["eager", "grouped", "grouped+compile"] if MODELS[args.model]["family"] == MIXTURE else ["", "compile"]
    args.variants = args.variants or ",".join(
        "+".join(filter(None, (dtype, way))) for dtype in (["bf16", "fp32"] if cpu else ["bf16"]) for way in ways)
    args.holdfast_variants = args.holdfast_variants or ("bf16,f32" if cpu else "bf16")
    args.binary = args.binary or os.path.join(ROOT, "build", "release" if cpu else "cuda", "holdfast")
    return args


def main():
    args = parse_arguments()
    if args.table:
        print(table(read_results(args.table)))
        return 0
    if args.child:
        run_torch_child(args.child, *args.shapes[0], args)
        return 0
    variants = {"Holdfast": args.holdfast_variants.split(","), "PyTorch": args.variants.split(",")}
    if args.only:
        variants = {side: names for side, names in variants.items() if side.lower() == args.only}
    results = Results({"model": args.model, "device": args.device, "machine": machine(args),
                       "recompute": args.recompute, "gemm_table": args.gemm_table, "date": str(datetime.date.today()),
                       "load": os.getloadavg()[0]}, args.out)  # a busy machine makes figures worthless
    with tempfile.TemporaryDirectory(prefix="train_vs_pytorch.") as args.work:
        if not args.tokens:
            args.tokens = os.path.join(args.work, "tokens.bin")
            write_tokens(args.tokens, 1_000_000, MODELS[args.model]["vocab"])
        for shape in args.shapes:
            measure_shape(shape, variants, args, results)
    print(table([results.all]))
    measured = results.all["measurements"]
    complete = all(best_of(side, [m for m in measured if (m["batch"], m["length"]) == shape])
                   for shape in args.shapes for side in variants)
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
