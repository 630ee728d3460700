"""Makes tests/golden/packed_chat: a tiny Llama as Holdfast saves it, and what `transformers` loses on conversations.

    python3 tests/golden/make_packed_chat_golden.py build/release/holdfast

Needs torch, transformers, safetensors; the files are of torch 2.15.0 and transformers 5.23.0. The conversations are those
of tests/framework/chat/golden/chatml/cases.json, with its tokens and what of them is learned, one at a time.
  config.json, model.safetensors   of one training step, so that no weight is special
  losses.json                      of each conversation of at most ROW tokens: its line in cases.json (from 0), the sum of
                                   the losses of its learned tokens, and how many they are
The model computes in fp32, attention "eager"; losses of its logits are summed in fp64.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM

ROW = 512
HERE = pathlib.Path(__file__).resolve().parent
CHATML = HERE.parent / "framework/chat/golden/chatml"
OUT = HERE / "packed_chat"


def make_model(holdfast, cases):
    def run(*command):
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)

    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        (work / "talks.jsonl").write_text("".join(case["line"] + "\n" for case in cases), encoding="utf-8")
        run(holdfast, "data", "pack", "--chat", work / "talks.jsonl", "--tokenizer", CHATML, "--out", work / "talks.bin",
            "--sequence-length", ROW)
        vocabulary = 1 + max(token["id"] for token in json.loads((CHATML / "tokenizer.json").read_text())["added_tokens"])
        (work / "config.yaml").write_text(
            f"model: {{family: llama, vocab_size: {vocabulary}, max_sequence_length: {ROW}, num_layers: 2,\n"
            "        hidden_size: 32, num_heads: 4, num_kv_heads: 2, intermediate_size: 64, init_std: 0.3}\n"
            f"data: {{train: [{work / 'talks.bin'}], tokenizer: {CHATML / 'tokenizer.json'}}}\n"
            f"batch: {{sequence_length: {ROW}, microbatch_size: 2}}\n"
            "train: {steps: 1, compute_dtype: f32}\noptimizer: {lr: 0.01}\nlog: {sample_bytes: 0}\n"
        )
        run(holdfast, "train", work / "config.yaml", "--run-dir", work / "run")
        run(holdfast, "ckpt", "export", work / "run", work / "out")
        OUT.mkdir(exist_ok=True)
        for file in ("config.json", "model.safetensors"):
            shutil.copyfile(work / "out" / file, OUT / file)


def loss_of(model, case):
    tokens = torch.tensor([case["ids"]])
    with torch.no_grad():
        logits = model(input_ids=tokens).logits[0, :-1].double()
    losses = torch.nn.functional.cross_entropy(logits, tokens[0, 1:], reduction="none")
    learned = torch.tensor([int(bit) for bit in case["learned"][1:]], dtype=torch.bool)
    return losses[learned].sum().item(), int(learned.sum())


def main():
    cases = json.loads((CHATML / "cases.json").read_text(encoding="utf-8"))
    make_model(sys.argv[1], cases)
    model = AutoModelForCausalLM.from_pretrained(OUT, attn_implementation="eager", dtype=torch.float32).eval()
    losses = []
    for i, case in enumerate(cases):
        if len(case["ids"]) <= ROW:
            loss, count = loss_of(model, case)
            losses.append({"line": i, "loss": loss, "learned": count})
    lines = ",\n".join(json.dumps(entry) for entry in losses)
    (OUT / "losses.json").write_text(f"[{lines}]\n", encoding="utf-8")
    print(f"{len(losses)} of {len(cases)} conversations")


if __name__ == "__main__":
    main()
