#!/usr/bin/env python3
"""Trains a model in Holdfast and in PyTorch side by side and prints a Markdown table.

Needs a release build (for --device cuda one with CUDA), and a Python with PyTorch and NumPy (pip install torch numpy);
neither is needed to build or run Holdfast.

    tests/bench/train_vs_pytorch.py                          # GPT-2 124M on the CPU: all shapes, all processors
    tests/bench/train_vs_pytorch.py --shapes 4x64 --threads 2 --rounds 3 --out table.md
    tests/bench/train_vs_pytorch.py --device cuda --model llama_1b --shapes 8x1024,2x4096

What is compared: the same model without dropout, the same batch shape and token file, on a CPU the same number of
threads; a step is forward, backward, clipping the gradient's norm and AdamW, with the loss read at its end. The PyTorch
model is the plain one below (of a mixture of experts transformers' own, whose experts are computed one by one, eager, or
as grouped products), in every variant of --variants (bf16 = autocast; +compile = torch.compile; AdamW is fused,
attention is scaled_dot_product_attention); a variant that fails is listed as failed. First every variant of both sides
runs once (screening), then the fastest of each side take turns for --rounds rounds; the table shows those two, and below
it the screening of all.

Each measurement is a process of its own. Step times are taken after --warmup steps: by a clock around the step for
PyTorch, from metrics.jsonl for Holdfast. Peak memory on a CPU is the resident high-water mark: for PyTorch of the
measured steps alone, so that compilation is not held against it; for Holdfast of the whole process. On a GPU it is what
nvidia-smi shows of the process, for both. MFU is Holdfast's own (metrics.jsonl); PyTorch's follows from the ratio.
"""

import argparse
import array
import datetime
import json
import os
import platform
import random
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
}
CPU_SHAPES, CUDA_SHAPES = "4x64,1x1024,4x1024", {"gpt2_124m": "32x1024,8x4096", "gpt2_1558m": "8x1024,2x4096",
                                                 "llama_1b": "8x1024,2x4096", "moe_76m": "32x1024"}
TOKEN_FILE_MAGIC, HEADER_BYTES = 20240520, 1024  # llm.c: 256 x int32, then uint16 tokens


# ---------------------------------------------------------------------------------------------- the PyTorch side

def make_torch_model(shape, length):
    """GPT-2 or Llama as one would write it by hand; its forward returns the mean loss."""
    import torch
    from torch import nn
    import torch.nn.functional as F

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
                x = block(x, self.cos, self.sin)
            logits = self.head(self.norm(x))  # (B, T, V)
            return F.cross_entropy(logits.view(-1, shape["vocab"]), targets.view(-1))

    return Model()


def make_transformers_model(shape, experts):
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
        model = make_transformers_model(shape, "grouped_mm" if "grouped" in modes else "eager").to(args.device)
    else:
        model = make_torch_model(shape, length).to(args.device)
    optimizer = make_torch_optimizer(model)
    forward = torch.compile(model) if "compile" in modes else model

    seconds, losses = [], []
    deadline = time.perf_counter() + args.limit
    for step in range(args.warmup + args.steps):
        if step and time.perf_counter() > deadline:
            break
        if step == args.warmup:
            reset_peak_memory()
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
    warm = len(seconds) > args.warmup
    print(json.dumps({"seconds": seconds[args.warmup:] if warm else seconds[-1:], "warm": warm, "losses": losses,
                      "peak_mib": peak_memory_mib() if args.device == "cpu" else gpu_memory_mib(os.getpid()),
                      "version": torch.__version__}))


def measure_torch(variant, batch, length, args):
    command = [sys.executable, os.path.abspath(__file__), "--child", variant, "--shapes", f"{batch}x{length}",
               "--threads", str(args.threads), "--steps", str(args.steps), "--warmup", str(args.warmup),
               "--tokens", args.tokens, "--limit", str(args.limit), "--model", args.model, "--device", args.device]
    environment = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=args.timeout)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
    return json.loads(done.stdout.splitlines()[-1])


# --------------------------------------------------------------------------------------------- the Holdfast side

def measure_holdfast(variant, batch, length, args):
    run_dir = os.path.join(args.work, "run")
    settings = {
        "batch.sequence_length": length, "batch.microbatch_size": batch, "batch.microbatches": 1,
        "train.steps": args.warmup + args.steps, "train.threads": args.threads, "train.compute_dtype": variant,
        "train.validate_every_steps": 0, "data.train": f"[{args.tokens}]", "data.validation": "[]",
        "data.tokenizer": "bytes", "log.digest_every_steps": 0, "log.sample_bytes": 0, "schedule.warmup_steps": 0,
        "train.device": args.device, "checkpoint.every": "never",
    }
    if MODELS[args.model]["family"] == GPT2:
        settings["model.max_sequence_length"] = max(length, 1024)
    shape = MODELS[args.model]
    if shape["family"] == MIXTURE:
        settings.update({
            "model.num_layers": shape["layers"], "model.hidden_size": shape["hidden"], "model.num_heads": shape["heads"],
            "model.num_kv_heads": shape["kv_heads"], "model.head_dim": shape["head_dim"],
            "model.num_experts": shape["experts"], "model.experts_per_token": shape["chosen"],
            "model.expert_intermediate_size": shape["width"], "model.vocab_size": shape["vocab"],
            "model.router_balance_loss": 0, "model.router_z_loss": 0, "train.recompute": "none",
        })
    config = os.path.join(args.configs, f"{shape.get('config', args.model)}.yaml")
    command = [args.binary, "train", config, "--run-dir", run_dir, "--overwrite"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    with open(os.path.join(args.work, "holdfast.log"), "w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        gpu_mib = 0
        while args.device == "cuda" and os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            gpu_mib = max(gpu_mib, gpu_memory_mib(process.pid))
            time.sleep(0.5)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            log.seek(0)
            raise RuntimeError((log.read().strip().splitlines() or [f"exit code {process.returncode}"])[-1])
    with open(os.path.join(run_dir, "metrics.jsonl")) as f:
        steps = [json.loads(line) for line in f]
    version = subprocess.run([args.binary, "--version"], capture_output=True, text=True).stdout.strip()
    return {"seconds": [s["step_seconds"] for s in steps[args.warmup:]], "losses": [s["loss"] for s in steps],
            "peak_mib": usage.ru_maxrss / 1024 if args.device == "cpu" else gpu_mib, "version": version,
            "mfu": [s["mfu"] for s in steps[args.warmup:] if s["mfu"]]}


# ------------------------------------------------------------------------------------------------------ reporting

def write_tokens(path, count):
    """A token file of the llm.c format with a skewed distribution, so that the loss falls as on text."""
    rng = random.Random(1)
    with open(path, "wb") as f:
        header = array.array("i", [TOKEN_FILE_MAGIC, 1, count] + [0] * 253)
        f.write(header.tobytes())
        array.array("H", (min(int(rng.paretovariate(0.7)), 50257) - 1 for _ in range(count))).tofile(f)


def rate(tokens, seconds):
    """'123 [120-125]': tokens per second, the median and the range over the steps."""
    return f"{tokens / statistics.median(seconds):,.0f} [{tokens / max(seconds):,.0f}-{tokens / min(seconds):,.0f}]"


def try_measure(measure, name, side, batch, length, args):
    start = time.perf_counter()
    try:
        result = measure(name, batch, length, args)
        note = (f"{rate(batch * length, result['seconds'])} tokens/s, peak {result['peak_mib']:,.0f} MiB, "
                f"loss {result['losses'][0]:.3f} -> {result['losses'][-1]:.3f}, {len(result['seconds'])} steps"
                f"{'' if result.get('warm', True) else ', NOT WARM: --limit ended it within the warm-up'}")
    except (RuntimeError, subprocess.TimeoutExpired, OSError) as error:
        result, note = None, f"failed: {error}"
    print(f"  {side} {name}: {note} ({time.perf_counter() - start:.0f} s)", file=sys.stderr, flush=True)
    return result, note


def compare_shape(batch, length, sides, args):
    """Screens every variant, then lets the fastest of each side take turns. Returns side -> merged result, and notes."""
    print(f"batch {batch}, length {length}", file=sys.stderr, flush=True)
    best, notes = {}, []
    for side, (measure, variants) in sides.items():
        for name in variants:
            result, note = try_measure(measure, name, side, batch, length, args)
            notes.append(f"- ({batch}, {length}) {side} {name}: {note}")
            if result and (side not in best or
                           statistics.median(result["seconds"]) < statistics.median(best[side]["seconds"])):
                best[side] = dict(result, variant=name)
    if len(best) < 2 or args.rounds == 0:
        return best, notes
    merged = {side: dict(best[side], seconds=[], peak_mib=0) for side in best}
    for _ in range(args.rounds):
        for side, (measure, _) in sides.items():
            result, _ = try_measure(measure, best[side]["variant"], side, batch, length, args)
            if result:
                merged[side]["seconds"] += result["seconds"]
                merged[side]["peak_mib"] = max(merged[side]["peak_mib"], result["peak_mib"])
    return {side: m for side, m in merged.items() if m["seconds"]}, notes


def table_row(batch, length, results):
    tokens = batch * length
    cells = [f"({batch}, {length})"]
    for side in ("Holdfast", "PyTorch"):
        r = results.get(side)
        cells.append(f"{rate(tokens, r['seconds'])} ({r['variant']})" if r else "-")
    both = len(results) == 2
    medians = {side: statistics.median(r["seconds"]) for side, r in results.items()}
    cells.append(f"{medians['PyTorch'] / medians['Holdfast']:.2f}" if both else "-")
    cells += [f"{results[side]['peak_mib']:,.0f}" if side in results else "-" for side in ("Holdfast", "PyTorch")]
    mfu = results.get("Holdfast", {}).get("mfu")
    cells.append(f"{100 * statistics.median(mfu):.1f} %" if mfu else "-")
    cells.append(f"{100 * statistics.median(mfu) * medians['Holdfast'] / medians['PyTorch']:.1f} %" if mfu and both else "-")
    return "| " + " | ".join(cells) + " |"


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


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=sorted(MODELS), default="gpt2_124m")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--shapes", help="BATCHxLENGTH, comma-separated; default: some that fit the device")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--steps", type=int, default=5, help="measured steps of each process")
    parser.add_argument("--warmup", type=int, default=2, help="steps before the measured ones")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each side after screening")
    parser.add_argument("--variants", help="of PyTorch; default: bf16,bf16+compile, on a CPU also fp32,fp32+compile; of "
                        "mixtures of experts bf16+eager,bf16+grouped,bf16+grouped+compile and so on")
    parser.add_argument("--holdfast-variants", help="values of train.compute_dtype; default: bf16, on a CPU also f32")
    parser.add_argument("--only", choices=["pytorch", "holdfast"], help="screen one side only")
    parser.add_argument("--binary", help="default: that of build/release, or build/cuda")
    parser.add_argument("--configs", default=os.path.join(ROOT, "configs"))
    parser.add_argument("--limit", type=float, default=180,
                        help="seconds after which a slow PyTorch variant is not given another step")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds after which a process is given up")
    parser.add_argument("--tokens", help="token file to train on; default: a synthetic one")
    parser.add_argument("--out", help="also write the table to this file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    cpu = args.device == "cpu"
    args.shapes = args.shapes or (CPU_SHAPES if cpu else CUDA_SHAPES[args.model])
    ways = ["eager", "grouped", "grouped+compile"] if MODELS[args.model]["family"] == MIXTURE else ["", "compile"]
    args.variants = args.variants or ",".join(
        "+".join(filter(None, (dtype, way))) for dtype in (["bf16", "fp32"] if cpu else ["bf16"]) for way in ways)
    args.holdfast_variants = args.holdfast_variants or ("bf16,f32" if cpu else "bf16")
    args.binary = args.binary or os.path.join(ROOT, "build", "release" if cpu else "cuda", "holdfast")
    return args


def main():
    args = parse_arguments()
    load = os.getloadavg()[0]  # a busy machine makes the figures worthless: let the reader see it
    shapes = [tuple(int(n) for n in shape.split("x")) for shape in args.shapes.split(",")]
    if args.child:
        run_torch_child(args.child, *shapes[0], args)
        return
    sides = {"Holdfast": (measure_holdfast, args.holdfast_variants.split(",")),
             "PyTorch": (measure_torch, args.variants.split(","))}
    if args.only:
        sides = {name: side for name, side in sides.items() if name.lower() == args.only}
    lines = ["| (batch, length) | Holdfast tokens/s | PyTorch tokens/s | ratio | Holdfast peak MiB | PyTorch peak MiB | "
             "Holdfast MFU | PyTorch MFU |", "|---|---|---|---|---|---|---|---|"]
    notes, versions = [], {}
    with tempfile.TemporaryDirectory(prefix="train_vs_pytorch.") as args.work:
        if not args.tokens:
            args.tokens = os.path.join(args.work, "tokens.bin")
            write_tokens(args.tokens, 1_000_000)
        for batch, length in shapes:
            results, shape_notes = compare_shape(batch, length, sides, args)
            lines.append(table_row(batch, length, results))
            notes += shape_notes
            versions.update({side: r["version"] for side, r in results.items()})
    lines += ["", f"{args.model}, {machine(args)}, "
              f"{', '.join(f'{side} {version}' for side, version in versions.items())}, "
              f"{datetime.date.today()}, load average {load:.1f} before the start. tokens/s: median [min-max] over "
              + (f"the steps of {args.rounds} rounds in turn" if len(sides) == 2 and args.rounds else
                 "the steps of the screening alone")
              + "; in brackets the fastest variant of each side.", "", "Screening of all variants:", ""] + notes
    text = "\n".join(lines) + "\n"
    print(text)
    if args.out:
        with open(args.out, "w") as f:
            f.write(text)


if __name__ == "__main__":
    main()
