"""Makes and checks the golden files of exports: tiny models as Holdfast saves them, what `transformers` makes of them.

    python3 tests/golden/make_export_golden.py build/release/holdfast [NAME...]  # rewrites tests/golden/exported_*
    python3 tests/golden/make_export_golden.py       # checks them with the installed transformers

Needs torch, transformers, safetensors; the check was run with transformers 4.57.6 and 5.23.0, and with glm4_moe,
gpt_oss and phi3 with 5.24.0. Each directory gets config.json, generation_config.json, tokenizer_config.json and model.safetensors of
one training step (tokenizer.json is that of tests/framework/data/golden, and is not kept twice), and golden.safetensors:
  inputs (B, T)         token ids as fp32 whole numbers
  logits (B, T, V)      of transformers, attention "eager", fp32
The check loads model, tokenizer and generation settings by the Auto classes, without network, and compares logits, ids,
special tokens, the size of the vocabulary, and where generation ends.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast

BATCH, LENGTH = 2, 13
HERE = os.path.dirname(os.path.abspath(__file__))
TOKENIZERS = os.path.join(HERE, "..", "framework", "data", "golden")
SAVED = ("config.json", "generation_config.json", "tokenizer_config.json", "model.safetensors")
TEXT = "The gradient of a step.\n  It's 12345<|endoftext|> and on"

# name, tokenizer, the model's keys
MODELS = (
    ("exported_gpt2", "gpt2_style", "family: gpt2, norm_eps: 1e-6"),
    ("exported_llama", "llama3_style", "family: llama, num_kv_heads: 1, rope_theta: 500000, norm_eps: 1e-6"),
    ("exported_llama31", "llama3_style", "family: llama, num_kv_heads: 1, tie_embeddings: true, rope_theta: 1000, "
     "rope_scaling: llama3, rope_factor: 4, rope_low_freq_factor: 0.5, rope_high_freq_factor: 2, rope_original_length: 20"),
    ("exported_mistral", "llama3_style", "family: mistral, num_kv_heads: 1, sliding_window: 5, rope_theta: 1000"),
    ("exported_qwen2", "gpt2_style", "family: qwen2, num_kv_heads: 1, tie_embeddings: true, rope_theta: 1000"),
    ("exported_qwen3", "gpt2_style", "family: qwen3, num_kv_heads: 1, head_dim: 24, sliding_window: 6, rope_theta: 1000"),
    ("exported_mixtral", "llama3_style", "family: mixtral, num_kv_heads: 1, sliding_window: 5, rope_theta: 1000, "
     "num_experts: 3, expert_intermediate_size: 24"),
    ("exported_qwen2_moe", "gpt2_style", "family: qwen2_moe, num_kv_heads: 1, rope_theta: 1000, num_experts: 5, "
     "experts_per_token: 3, expert_intermediate_size: 24, shared_expert_intermediate_size: 16, first_expert_layer: 2"),
    ("exported_qwen3_moe", "gpt2_style", "family: qwen3_moe, num_kv_heads: 1, head_dim: 24, rope_theta: 1000, "
     "num_experts: 4, experts_per_token: 2, expert_intermediate_size: 24"),
    ("exported_olmoe", "gpt2_style", "family: olmoe, num_kv_heads: 1, rope_theta: 1000, num_experts: 4, "
     "experts_per_token: 2, expert_intermediate_size: 24"),
    ("exported_glm4_moe", "gpt2_style", "family: glm4_moe, num_kv_heads: 1, qkv_bias: true, qk_norm: true, rope_dim: 4, "
     "rope_theta: 1000, num_experts: 6, experts_per_token: 2, expert_intermediate_size: 24, first_expert_layer: 2, "
     "shared_expert_intermediate_size: 48, router_scale: 1.5, router_groups: 3, router_groups_chosen: 2"),
    ("exported_gpt_oss", "gpt2_style", "family: gpt_oss, num_kv_heads: 1, head_dim: 24, sliding_window: 5, "
     "full_attention_step: 2, rope_theta: 1000, rope_scaling: yarn, rope_factor: 4, rope_original_length: 6, "
     "rope_truncate: false, num_experts: 4, experts_per_token: 2, expert_intermediate_size: 24, swiglu_limit: 0.5"),
    # Its sequences are longer than rope_original_length: for others transformers takes the short factors.
    ("exported_phi3", "llama3_style", "family: phi3, num_kv_heads: 1, sliding_window: 5, rope_dim: 4, rope_theta: 1000, "
     "rope_scaling: longrope, rope_factor: 3, rope_original_length: 8, rope_short_factors: [1, 1.5], "
     "rope_long_factors: [1.25, 6]"),
)


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def make(holdfast, name, tokenizer, keys):
    with open(tokenizer) as file:
        tokens = json.load(file)
    vocabulary = 1 + max([t["id"] for t in tokens["added_tokens"]] + list(tokens["model"]["vocab"].values()))
    with tempfile.TemporaryDirectory() as work:
        text, packed, config = (os.path.join(work, f) for f in ("text.txt", "text.bin", "config.yaml"))
        with open(text, "w") as file:
            file.write(TEXT * 40)
        run(holdfast, "data", "pack", text, "--out", packed, "--tokenizer", tokenizer)
        with open(config, "w") as file:
            file.write(f"model: {{vocab_size: {vocabulary}, max_sequence_length: 24, num_layers: 2, hidden_size: 16, "
                       f"num_heads: 2, intermediate_size: 40, init_std: 0.4, {keys}}}\n"
                       f"data: {{train: [{packed}], tokenizer: {tokenizer}}}\n"
                       "batch: {sequence_length: 16, microbatch_size: 2}\n"
                       "train: {steps: 1, compute_dtype: f32}\noptimizer: {lr: 0.01}\nlog: {sample_bytes: 0}\n")
        run(holdfast, "train", config, "--run-dir", os.path.join(work, "run"))
        run(holdfast, "ckpt", "export", os.path.join(work, "run"), os.path.join(work, "out"))
        os.makedirs(os.path.join(HERE, name), exist_ok=True)
        for file in SAVED:
            shutil.copyfile(os.path.join(work, "out", file), os.path.join(HERE, name, file))
    inputs = torch.randint(vocabulary, (BATCH, LENGTH), generator=torch.Generator().manual_seed(1))
    with loadable(name, tokenizer) as directory:
        logits = logits_of(load(directory), inputs)
    save_file({"inputs": inputs.float(), "logits": logits}, os.path.join(HERE, name, "golden.safetensors"))
    os.chmod(os.path.join(HERE, name, "golden.safetensors"), 0o644)


class loadable(tempfile.TemporaryDirectory):
    """The directory with its tokenizer.json."""

    def __init__(self, name, tokenizer):
        super().__init__()
        for file in SAVED:
            shutil.copy(os.path.join(HERE, name, file), self.name)
        shutil.copy(tokenizer, os.path.join(self.name, "tokenizer.json"))


def load(directory):
    return AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager", dtype=torch.float32).eval()


def logits_of(model, inputs):
    with torch.no_grad():
        return model(input_ids=inputs).logits.contiguous()


def expect(what, found, expected):
    if found != expected:
        raise SystemExit(f"{what}: {found!r}, expected {expected!r}")


def check_tokenizer(directory, tokenizer, model):
    # Of qwen2, AutoTokenizer of version 5 takes Qwen's own splitting of text, whatever tokenizer.json says.
    chosen = PreTrainedTokenizerFast if model.config.model_type == "qwen2" else AutoTokenizer
    loaded = chosen.from_pretrained(directory)
    with open(tokenizer.replace("tokenizer_", "cases_")) as file:
        for case in json.load(file):
            expect(repr(case["text"]), loaded.encode(case["text"], add_special_tokens=False), case["ids"])
    expect("size of the tokenizer", max(loaded.get_vocab().values()) < model.config.vocab_size, True)
    end = loaded.convert_tokens_to_ids("<|endoftext|>")
    for what in (loaded, model.config, model.generation_config, GenerationConfig.from_pretrained(directory)):
        expect(f"eos_token_id of {type(what).__name__}", what.eos_token_id, end)
        expect(f"bos_token_id of {type(what).__name__}", what.bos_token_id, end)
    return end


def check(name, tokenizer):
    golden = load_file(os.path.join(HERE, name, "golden.safetensors"))
    with loadable(name, tokenizer) as directory:
        model = load(directory)
        logits = logits_of(model, golden["inputs"].long())
        error = ((logits - golden["logits"]).norm() / golden["logits"].norm()).item()
        expect("relative error of logits below 1e-6", error < 1e-6, True)
        end = check_tokenizer(directory, tokenizer, model)
        model.config.tie_word_embeddings = False  # the bias below is for the head alone
        head = model.get_output_embeddings()
        head.bias = torch.nn.Parameter(torch.zeros(model.config.vocab_size))
        head.bias.data[end] = 1e9  # now every next token is the end
        out = model.generate(golden["inputs"].long()[:1], max_new_tokens=5, do_sample=False)
        expect("generated tokens", out.shape[1] - LENGTH, 1)
    print(f"{name}: transformers {transformers.__version__}: logits differ by {error:.1e}, tokenizer and generation agree")


def main():
    torch.set_num_threads(1)
    for name, tokenizer, keys in MODELS:
        path = os.path.abspath(os.path.join(TOKENIZERS, f"tokenizer_{tokenizer}.json"))
        if len(sys.argv) > 1 and (len(sys.argv) == 2 or name in sys.argv[2:]):
            make(os.path.abspath(sys.argv[1]), name, path, keys)
        if name != "exported_gpt_oss" or int(transformers.__version__.split(".")[0]) >= 5:  # 4 has one limit for all
            check(name, path)


if __name__ == "__main__":
    main()
