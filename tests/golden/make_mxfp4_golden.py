"""Makes tests/golden/mxfp4_gpt_oss: a tiny gpt-oss whose experts are in MXFP4, as published files have them, and what
`transformers` makes of it.

    python3 tests/golden/make_mxfp4_golden.py

Needs numpy, torch, transformers 5.24, safetensors. The directory gets config.json, model.safetensors, and
golden.safetensors:
  inputs (B, T)         token ids as fp32 whole numbers
  logits (B, T, V)      of transformers, which dequantises, attention "eager", fp32
  values.<name>         what it dequantises, as it has them in memory (E, in, out)
"""
import json
import os

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GptOssConfig, GptOssForCausalLM, Mxfp4Config

from make_model_golden import randomise, sequences

HERE = os.path.dirname(os.path.abspath(__file__))
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)
LENGTH, BLOCK = 24, 32


def quantised(matrices):
    """(E, in, out) as blocks (E, out, in / 32, 16) and scales (E, out, in / 32), bytes both."""
    rows = matrices.transpose(0, 2, 1)
    groups = rows.reshape(*rows.shape[:2], -1, BLOCK)
    exponents = np.floor(np.log2(np.abs(groups).max(-1))).astype(np.int32) - 2  # the largest is 4 to 8 of them
    scaled = groups / np.exp2(exponents)[..., None]
    nibbles = np.abs(np.abs(scaled)[..., None] - E2M1).argmin(-1) + 8 * np.signbit(scaled)
    return (nibbles[..., 0::2] + 16 * nibbles[..., 1::2]).astype(np.uint8), (exponents + 127).astype(np.uint8)


def main():
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    model = GptOssForCausalLM(GptOssConfig(
        vocab_size=61, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, max_position_embeddings=LENGTH, sliding_window=5, num_local_experts=3, num_experts_per_tok=2,
        bos_token_id=None, pad_token_id=None, eos_token_id=None))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() < 2:
                p.fill_(1 if "norm" in name else 0)
    randomise(model, generator)
    directory = os.path.join(HERE, "mxfp4_gpt_oss")
    model.config.quantization_config = {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    tensors = {}
    for name, p in model.state_dict().items():
        if name.endswith(("gate_up_proj", "down_proj")):
            blocks, scales = quantised(p.numpy())
            tensors[name + "_blocks"], tensors[name + "_scales"] = (
                torch.from_numpy(np.ascontiguousarray(a)) for a in (blocks, scales))
        else:
            tensors[name] = p.to(torch.bfloat16).contiguous()
    os.makedirs(directory, exist_ok=True)
    config = model.config.to_dict()
    config["architectures"] = ["GptOssForCausalLM"]
    with open(os.path.join(directory, "config.json"), "w") as file:
        json.dump(config, file, indent=2, sort_keys=True)
    save_file(tensors, os.path.join(directory, "model.safetensors"), metadata={"format": "pt"})
    loaded = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager",
                                                  experts_implementation="eager",
                                                  quantization_config=Mxfp4Config(dequantize=True)).eval()
    inputs, _ = sequences(61, 1, LENGTH, generator)
    with torch.no_grad():
        out = {"inputs": inputs[0].float(), "logits": loaded(input_ids=inputs[0]).logits}
    for name, p in loaded.named_parameters():
        if name.endswith(("gate_up_proj", "down_proj")):
            out["values." + name] = p.detach().float()
    save_file({name: t.contiguous().clone() for name, t in out.items()}, os.path.join(directory, "golden.safetensors"))
    for file in os.listdir(directory):
        os.chmod(os.path.join(directory, file), 0o644)


if __name__ == "__main__":
    main()
