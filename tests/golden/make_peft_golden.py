"""Makes peft/ beside some of the tiny models: adapters as PEFT saves them, and how PEFT trains them; and peft_patterns/
beside one: adapters whose ranks and scales differ.

    python3 tests/golden/make_peft_golden.py [NAME...]   # rewrites all in tests/golden, or those of the models named

Needs torch, transformers 5.23 and peft 0.21 (tiny_phi3, tiny_gpt_oss: transformers 5.24).

  adapter_config.json, adapter_model.safetensors   adapters of random values, as save_pretrained writes them
  peft.safetensors
    inputs, targets (S, M, B, T)    tokens, as fp32 whole numbers
    logits (B, T, V)                of the first B sequences
    losses, norms (S)               mean cross-entropy of a step, gradient norm before clipping
    gradient.<name>, final.<name>   of the first step; the adapters after the last one

In peft_patterns/ peft.safetensors has inputs (B, T) and logits only.
"""
import json
import os
import shutil
import sys

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

STEPS, MICROBATCHES, BATCH, LENGTH = 10, 3, 2, 13
LR, CLIP, BETAS, EPS, WEIGHT_DECAY = 1e-2, 1.0, (0.9, 0.95), 1e-8, 0.1
HERE = os.path.dirname(os.path.abspath(__file__))
ATTENTION, MLP = ["q_proj", "k_proj", "v_proj", "o_proj"], ["gate_proj", "up_proj", "down_proj"]
# In most families of mixtures PEFT takes gate_proj, up_proj and down_proj of target_modules for the experts, so other
# layers with such names are named as parameters, too.
EXPERTS, ROUTER = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"], ["mlp.gate.weight"]
DENSE = [f"mlp.{name}.weight" for name in MLP]
SHARED_EXPERT = [f"mlp.shared_expert.{name}.weight" for name in MLP] + ["mlp.shared_expert_gate.weight"]
SHARED_EXPERTS = [f"mlp.shared_experts.{name}.weight" for name in MLP]  # GLM-4.5's one
MODELS = {
    "tiny_llama": {"r": 3, "lora_alpha": 7, "target_modules": ATTENTION + MLP},
    "tiny_gpt2": {"r": 2, "lora_alpha": 4, "target_modules": ["c_attn", "c_proj", "c_fc"], "fan_in_fan_out": True},
    "tiny_qwen2": {"r": 4, "lora_alpha": 6, "target_modules": ["q_proj", "v_proj", "down_proj"], "use_rslora": True},
    "tiny_phi3": {"r": 3, "lora_alpha": 5, "target_modules": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]},
    "tiny_qwen3": {"r": 2, "lora_alpha": 5, "target_modules": ATTENTION},
    "tiny_mixtral": {"r": 2, "lora_alpha": 8, "target_modules": ["q_proj", "k_proj", "o_proj"], "target_parameters": EXPERTS + ROUTER},
    "tiny_qwen2_moe": {"r": 3, "lora_alpha": 5, "target_modules": ATTENTION, "target_parameters": EXPERTS + ROUTER + SHARED_EXPERT + DENSE},
    "tiny_qwen3_moe": {"r": 2, "lora_alpha": 3, "target_modules": [], "target_parameters": EXPERTS},
    "tiny_olmoe": {"r": 2, "lora_alpha": 4, "target_modules": ["v_proj"], "target_parameters": ROUTER, "use_rslora": True},
    "tiny_glm4_moe": {"r": 3, "lora_alpha": 5, "target_modules": ATTENTION,
                      "target_parameters": EXPERTS + ROUTER + SHARED_EXPERTS + DENSE},
    "tiny_gpt_oss": {"r": 2, "lora_alpha": 5, "target_modules": ATTENTION, "target_parameters": EXPERTS + ["mlp.router.weight"]},
    "tiny_gemma3": {"r": 2, "lora_alpha": 5, "target_modules": ATTENTION + MLP},
    "tiny_olmo2": {"r": 2, "lora_alpha": 6, "target_modules": ATTENTION + MLP},
}
# What PEFT makes of all-linear for a mixture, twice the rank for gate and up of experts, and patterns of one's own.
PATTERNS = {
    "tiny_mixtral": {"r": 2, "lora_alpha": 4, "target_modules": "all-linear", "use_rslora": True,
                     "rank_pattern": {"^model.layers.1.self_attn.q_proj": 5},
                     "alpha_pattern": {"k_proj": 9, r"layers\.0\..*v_proj": 1}},
}


# Added to a model's seed. With that of its name PyTorch's routers choose other experts in fp32 than in fp64 from step 7 on.
SEEDS = {"tiny_gpt_oss": 1}


def name_of(parameter):
    return parameter.replace(".default", "")


def adapted(name, options, directory):
    """The model with random adapters, which are saved, and their parameters by name."""
    torch.manual_seed(hash_of(name) + SEEDS.get(name, 0))
    model = AutoModelForCausalLM.from_pretrained(os.path.join(HERE, name), dtype=torch.float32, attn_implementation="eager")
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", bias="none", **options))
    adapters = {n: p for n, p in model.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for parameter in adapters.values():
            parameter.normal_(0, 0.2)
    shutil.rmtree(directory, ignore_errors=True)
    model.save_pretrained(directory)
    os.remove(os.path.join(directory, "README.md"))
    config_file = os.path.join(directory, "adapter_config.json")
    with open(config_file) as file:
        config = json.load(file)
    config["base_model_name_or_path"] = "tests/golden/" + name  # wherever this runs
    config["target_modules"] = sorted(config["target_modules"])
    if config["target_parameters"] is not None:
        config["target_parameters"] = sorted(config["target_parameters"])
    with open(config_file, "w") as file:
        json.dump(config, file, indent=2)
    return model, adapters


def save(out, directory):
    save_file({k: v.float().contiguous() for k, v in out.items()}, os.path.join(directory, "peft.safetensors"))
    for file in os.listdir(directory):
        os.chmod(os.path.join(directory, file), 0o644)


def make_patterns(name, options):
    directory = os.path.join(HERE, name, "peft_patterns")
    model, _ = adapted(name, options, directory)
    inputs = torch.randint(0, model.config.vocab_size, (BATCH, LENGTH))
    with torch.no_grad():
        save({"inputs": inputs, "logits": model(inputs).logits}, directory)


def make(name, options):
    directory = os.path.join(HERE, name, "peft")
    model, adapters = adapted(name, options, directory)
    inputs = torch.randint(0, model.config.vocab_size, (STEPS, MICROBATCHES, BATCH, LENGTH))
    targets = torch.randint(0, model.config.vocab_size, inputs.shape)
    out = {"inputs": inputs.float(), "targets": targets.float()}
    with torch.no_grad():
        out["logits"] = model(inputs[0, 0]).logits
    optimizer = torch.optim.AdamW(adapters.values(), lr=LR, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = 0
        for x, y in zip(inputs[step], targets[step]):
            part = F.cross_entropy(model(x).logits.flatten(0, 1), y.flatten()) / MICROBATCHES
            part.backward()
            loss += part.item()
        if step == 0:
            for n, p in adapters.items():
                out["gradient." + name_of(n)] = p.grad.clone()
        norms.append(torch.nn.utils.clip_grad_norm_(adapters.values(), CLIP).item())
        losses.append(loss)
        optimizer.step()
    out["losses"], out["norms"] = torch.tensor(losses), torch.tensor(norms)
    for n, p in adapters.items():
        out["final." + name_of(n)] = p.detach().clone()
    save(out, directory)
    print(name, losses[0], losses[-1], sum(p.numel() for p in adapters.values()), "values")


def hash_of(name):
    return sum(ord(c) * 31**i for i, c in enumerate(name)) % 2**31


for model_name in sys.argv[1:] or MODELS:
    make(model_name, MODELS[model_name])
    if model_name in PATTERNS:
        make_patterns(model_name, PATTERNS[model_name])
