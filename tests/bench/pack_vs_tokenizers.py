#!/usr/bin/env python3
"""How fast `holdfast data pack` makes tokens of JSON Lines beside Hugging Face's `tokenizers`, both on all processors
this process may use, and that the tokens are equal.

    python3 -m venv venv && venv/bin/pip install tokenizers
    venv/bin/python tests/bench/pack_vs_tokenizers.py build/release/holdfast TOKENIZER.json FILE.jsonl [--rounds 3]

FILE.jsonl: an object with the field "text" in each line. Both sides take turns. `tokenizers` gets batches of 1,000
documents (encode_batch_fast), parsed beforehand, which is not counted; of Holdfast the whole command is timed, with
reading, parsing and writing the token file.
"""
import argparse
import array
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

from tokenizers import Tokenizer


def pack(holdfast, tokenizer, path, out):
    start = time.monotonic()
    subprocess.run([holdfast, "data", "pack", path, "--tokenizer", tokenizer, "--no-eot", "--out", out, "--overwrite"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - start


def encode(tokenizer, documents):
    start = time.monotonic()
    ids = [x.ids for i in range(0, len(documents), 1000)
           for x in tokenizer.encode_batch_fast(documents[i:i + 1000], add_special_tokens=False)]
    return time.monotonic() - start, ids


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("holdfast")
    parser.add_argument("tokenizer")
    parser.add_argument("file")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with open(args.file, encoding="utf-8") as lines:
        documents = [json.loads(line)["text"] for line in lines]
    megabytes = sum(len(d.encode()) for d in documents) / 1e6
    tokenizer = Tokenizer.from_file(args.tokenizer)
    seconds = {"holdfast": [], "tokenizers": []}
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.bin"
        for _ in range(args.rounds):
            seconds["holdfast"].append(pack(args.holdfast, args.tokenizer, args.file, str(out)))
            taken, ids = encode(tokenizer, documents)
            seconds["tokenizers"].append(taken)
        wide = tokenizer.get_vocab_size() > 65536
        packed = array.array("I" if wide else "H", out.read_bytes()[1024:])
    equal = packed == array.array(packed.typecode, (i for document in ids for i in document))
    print(f"{megabytes:.1f} MB in {len(documents)} documents, {len(packed)} tokens, "
          f"{'equal' if equal else 'NOT EQUAL'}, {len(os.sched_getaffinity(0))} processors")
    for side, all_of in seconds.items():
        rates = sorted(megabytes / s for s in all_of)
        print(f"{side:12} {statistics.median(rates):8.1f} MB/s [{rates[0]:.1f}-{rates[-1]:.1f}]")


if __name__ == "__main__":
    main()
