#!/usr/bin/env python3
"""Samples from the same random weights with Holdfast and with transformers, in turns, and prints a Markdown table.

Needs a release build, and a Python with torch, transformers and safetensors; none is needed to build or run Holdfast.

    tests/bench/sample_vs_transformers.py                        # two models, two dtypes, batches of 1 and 8
    tests/bench/sample_vs_transformers.py --models gpt2_124m --dtypes bf16 --batches 1 --prompts 32 --rounds 5

What is compared: greedy sampling of --tokens tokens for each of a batch of different prompts of the same length, the
prompts' own pass included, loading not, with the same number of threads. transformers is a process that has loaded its
model and runs `generate` with its default cache and attention (sdpa); Holdfast is a `holdfast sample` that says itself
how long it took (--log-level debug). They take turns for --rounds rounds after one each that does not count. The table
has medians, in brackets the least and the most; "floor" is the time that a step takes to read the weights once at the
bandwidth that is measured beside it, which bounds a batch of one; "same" is the share of samples that are equal (with
fp32; in bf16 the two round differently, and random weights have near ties).
"""

import argparse
import json
import os
import random
import re
import statistics
import string
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODELS = ("gpt2_124m", "qwen2_0.5b")
LETTERS = string.ascii_letters + string.digits


def byte_characters():
    """The characters that byte-level tokenizers write bytes as."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in kept]
    return {**{b: chr(b) for b in kept}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def make_model(name, directory):
    """Random weights, and a tokenizer to which a byte is a token; the other tokens can only be written."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM
    torch.manual_seed(1)
    if name == "gpt2_124m":
        model = GPT2LMHeadModel(GPT2Config())
    else:
        model = Qwen2ForCausalLM(Qwen2Config(
            vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
            num_key_value_heads=2, max_position_embeddings=32768, rope_theta=1e6, rms_norm_eps=1e-6,
            tie_word_embeddings=True))
    model.save_pretrained(directory)
    vocab = {character: byte for byte, character in byte_characters().items()}
    vocab.update({f"<{i}>": i for i in range(256, model.config.vocab_size)})
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    with open(os.path.join(directory, "tokenizer.json"), "w") as file:
        json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                   "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
                   "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab,
                             "merges": []}}, file)
    return sum(p.numel() for p in model.parameters())


def serve(directory, dtype, threads):
    """The transformers side: a request a line, {"prompts": [...], "tokens": n}; a line of JSON answers."""
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype={"bf16": torch.bfloat16, "f32": torch.float32}[dtype])
    model.eval()
    model.generation_config.eos_token_id = None
    memory = torch.ones(1 << 28)
    for line in sys.stdin:
        request = json.loads(line)
        if not request["prompts"]:  # the bandwidth
            start = time.perf_counter()
            memory.sum()
            print(json.dumps({"bandwidth": memory.numel() * 4 / (time.perf_counter() - start)}), flush=True)
            continue
        inputs = torch.tensor([list(prompt.encode()) for prompt in request["prompts"]])
        with torch.inference_mode():
            start = time.perf_counter()
            out = model.generate(inputs, attention_mask=torch.ones_like(inputs), do_sample=False, pad_token_id=0,
                                 max_new_tokens=request["tokens"], min_new_tokens=request["tokens"])
            seconds = time.perf_counter() - start
        texts = [b"".join(bytes([t]) if t < 256 else b"<%d>" % t for t in row[inputs.shape[1]:].tolist()) for row in out]
        print(json.dumps({"seconds": seconds, "texts": [text.hex() for text in texts]}), flush=True)


class Transformers:
    def __init__(self, directory, dtype, threads):
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", directory, "--dtypes", dtype, "--threads", str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def ask(self, prompts, tokens):
        self.process.stdin.write(json.dumps({"prompts": prompts, "tokens": tokens}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def run(self, prompts, tokens):
        answer = self.ask(prompts, tokens)
        return answer["seconds"], [bytes.fromhex(text) for text in answer["texts"]]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def run_holdfast(binary, directory, dtype, threads, prompts, tokens):
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("\n".join(prompts) + "\n")
        file.flush()
        done = subprocess.run(
            [binary, "sample", directory, "--prompts", file.name, "--batch", str(len(prompts)), "--tokens", str(tokens),
             "--temperature", "0", "--dtype", dtype, "--threads", str(threads), "--log-level", "debug"],
            capture_output=True)
    if done.returncode != 0:
        sys.exit(f"holdfast sample failed: {done.stderr.decode()}")
    seconds = float(re.search(rb"sampled \d+ tokens in ([0-9.e+-]+) s", done.stderr).group(1))
    parts = re.split(rb"--- prompt \d+, sample 1\n", done.stdout)[1:] if len(prompts) > 1 else [done.stdout]
    return seconds, [part[len(prompt):-1] for part, prompt in zip(parts, prompts)]


def measure(args, directory, parameters, name, dtype):
    theirs = Transformers(directory, dtype, args.threads)
    bandwidth = statistics.median(theirs.ask([], 0)["bandwidth"] for _ in range(5))
    for length in args.prompts:
        for batch in args.batches:
            draw = random.Random(length * batch)
            prompts = ["".join(draw.choices(LETTERS, k=length)) for _ in range(batch)]
            times, texts = ([], []), [None, None]
            for i in range(args.rounds + 1):
                sides = [lambda: run_holdfast(args.binary, directory, dtype, args.threads, prompts, args.tokens),
                         lambda: theirs.run(prompts, args.tokens)]
                for side in (0, 1) if i % 2 == 0 else (1, 0):
                    seconds, texts[side] = sides[side]()
                    if i > 0:
                        times[side].append(batch * args.tokens / seconds)
            floor = bandwidth / (parameters * {"bf16": 2, "f32": 4}[dtype])
            rates = [f"{statistics.median(t):.1f} ({min(t):.1f} to {max(t):.1f})" for t in times]
            ratios = sorted(ours / other for ours, other in zip(*times))
            same = sum(a == b for a, b in zip(*texts)) / batch
            print(f"| {name} | {dtype} | {batch} | {length} | {rates[0]} | {rates[1]} | {statistics.median(ratios):.2f} "
                  f"({ratios[0]:.2f} to {ratios[-1]:.2f}) | {floor * batch:.0f} | {same:.2f} |", flush=True)
    theirs.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    split = lambda text: text.split(",")
    numbers = lambda text: [int(part) for part in text.split(",")]
    parser.add_argument("--models", type=split, default=list(MODELS))
    parser.add_argument("--dtypes", type=split, default=["f32", "bf16"])
    parser.add_argument("--batches", type=numbers, default=[1, 8])
    parser.add_argument("--prompts", type=numbers, default=[32, 512], help="tokens of each prompt")
    parser.add_argument("--tokens", type=int, default=128, help="to sample")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--binary", default=os.path.join(ROOT, "build/release/holdfast"))
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(args.serve, args.dtypes[0], args.threads)
    print(f"Medians of {args.rounds} rounds:\n\n"
          "| model | dtype | batch | prompt | Holdfast, tokens/s | transformers, tokens/s | ratio | floor, tokens/s | same |\n"
          "|---|---|---|---|---|---|---|---|---|", flush=True)
    for name in args.models:
        with tempfile.TemporaryDirectory() as directory:
            parameters = make_model(name, directory)
            for dtype in args.dtypes:
                measure(args, directory, parameters, name, dtype)


if __name__ == "__main__":
    main()
