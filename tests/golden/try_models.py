"""Tries models that are not kept here: makes them with the installed transformers, in shapes that are published, scaled
down, or drawn by seed, and compares what Holdfast makes of them with it.

    python3 tests/golden/try_models.py build/release                 # the published shapes, what is refused, ten seeds
    python3 tests/golden/try_models.py build/release --seeds 100 --first-seed 11
    python3 tests/golden/try_models.py build/release --keep /tmp/tried mixtral_8x7b seed_3

Needs torch, transformers 4 or 5, safetensors, and test_golden and holdfast in that build. Of every model
  - test_golden compares logits of every prefix, loss, every gradient, the auxiliary loss, ten steps of AdamW, with what
    make_model_golden.py computes;
  - `holdfast ckpt import` and `ckpt export` give what transformers loads with the same logits.
Of a config that Holdfast has no code for, `ckpt import` names the key and its value in one error.
The exit code is 0 if all of that held.
"""
import argparse
import copy
import json
import os
import random
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from make_model_golden import golden, randomise

LENGTH, VOCABULARY = 24, 259  # more than there are bytes: without a tokenizer, tokens are bytes
# Learning rate and eps: steps that do not hang on the sign of gradients that are all but zero, as those of tokens that
# occur once, or of experts of one token, are.
ADAMW = (1e-3, 1e-4)
EAGER = {"attn_implementation": "eager"}
V5 = int(transformers.__version__.split(".")[0]) >= 5
if V5:
    EAGER["experts_implementation"] = "eager"  # others want rows of 16 bytes
COUNT_OF_EXPERTS = {"mixtral": "num_local_experts", "gpt_oss": "num_local_experts", "glm4_moe": "n_routed_experts"}
MIXTURES = ("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "gpt_oss", "glm4_moe")
WITH_AUX_LOSS = MIXTURES[:5]

LLAMA32_ROPE = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16}

# What config.json of these says, but for sizes: a head has 8 channels, widths keep their ratio to hidden_size, two layers
# are left.
PUBLISHED = {
    "mixtral_8x7b": dict(model_type="mixtral", hidden_size=256, num_attention_heads=32, num_key_value_heads=8,
                         intermediate_size=896, num_local_experts=8, num_experts_per_tok=2, rope_theta=1e6,
                         rms_norm_eps=1e-5, sliding_window=None, router_aux_loss_coef=0.02, output_router_logits=False),
    "mixtral_8x22b": dict(model_type="mixtral", hidden_size=384, num_attention_heads=48, num_key_value_heads=8,
                          intermediate_size=1024, num_local_experts=8, num_experts_per_tok=2, rope_theta=1e6,
                          rms_norm_eps=1e-5, sliding_window=None, router_jitter_noise=0.0),
    "qwen1_5_moe_a2_7b": dict(model_type="qwen2_moe", hidden_size=128, num_attention_heads=16, num_key_value_heads=16,
                              intermediate_size=352, moe_intermediate_size=88, shared_expert_intermediate_size=352,
                              num_experts=60, num_experts_per_tok=4, norm_topk_prob=False, decoder_sparse_step=1,
                              rope_theta=1e6, rms_norm_eps=1e-6, use_sliding_window=False, sliding_window=32768,
                              max_window_layers=21),
    "qwen2_57b_a14b": dict(model_type="qwen2_moe", hidden_size=224, num_attention_heads=28, num_key_value_heads=4,
                           intermediate_size=1184, moe_intermediate_size=160, shared_expert_intermediate_size=1280,
                           num_experts=64, num_experts_per_tok=8, norm_topk_prob=False, decoder_sparse_step=1,
                           rope_theta=1e6, rms_norm_eps=1e-6, use_sliding_window=False, sliding_window=65536,
                           max_window_layers=28),
    "qwen3_30b_a3b": dict(model_type="qwen3_moe", hidden_size=128, num_attention_heads=32, num_key_value_heads=4,
                          head_dim=8, intermediate_size=384, moe_intermediate_size=48, num_experts=128, num_experts_per_tok=8,
                          norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], rope_theta=1e6,
                          rms_norm_eps=1e-6, attention_bias=False, use_sliding_window=False, sliding_window=None,
                          max_window_layers=48),
    "qwen3_235b_a22b": dict(model_type="qwen3_moe", hidden_size=256, num_attention_heads=64, num_key_value_heads=4,
                            head_dim=8, intermediate_size=768, moe_intermediate_size=96, num_experts=128, num_experts_per_tok=8,
                            norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], rope_theta=5e6,
                            rms_norm_eps=1e-6, max_window_layers=94),
    "olmoe_1b_7b_0924": dict(model_type="olmoe", hidden_size=128, num_attention_heads=16, num_key_value_heads=16,
                             intermediate_size=64, num_experts=64, num_experts_per_tok=8, norm_topk_prob=False,
                             clip_qkv=None, rope_theta=1e4, rms_norm_eps=1e-5, attention_bias=False),
    "glm_4_5_air": dict(model_type="glm4_moe", hidden_size=128, num_attention_heads=24, num_key_value_heads=2, head_dim=16,
                        partial_rotary_factor=0.5, attention_bias=True, use_qk_norm=False, intermediate_size=336,
                        moe_intermediate_size=44, n_routed_experts=128, num_experts_per_tok=8, n_shared_experts=1,
                        n_group=1, topk_group=1, first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=1.0,
                        rope_theta=1e6, rms_norm_eps=1e-5, num_nextn_predict_layers=1),
    "gpt_oss_20b": dict(model_type="gpt_oss", hidden_size=90, num_attention_heads=16, num_key_value_heads=2, head_dim=8,
                        intermediate_size=90, num_local_experts=32, num_experts_per_tok=4, experts_per_token=4, sliding_window=7,
                        layer_types=["sliding_attention", "full_attention"], attention_bias=True, swiglu_limit=0.5 if V5 else 7.0,
                        rope_theta=1.5e5, rms_norm_eps=1e-5, router_aux_loss_coef=0.9, output_router_logits=False,
                        initial_context_length=6, rope_scaling={
                            "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                            "original_max_position_embeddings": 6}),
    "gpt_oss_120b": dict(model_type="gpt_oss", hidden_size=45, num_attention_heads=8, num_key_value_heads=1, head_dim=8,
                         intermediate_size=45, num_local_experts=128, num_experts_per_tok=4, sliding_window=7,
                         num_hidden_layers=3, attention_bias=True, swiglu_limit=7.0, rms_norm_eps=1e-5),
    "gpt2_xl": dict(model_type="gpt2", n_embd=200, n_head=25, n_inner=None, activation_function="gelu_new"),
    "tinyllama_1_1b": dict(model_type="llama", hidden_size=256, num_attention_heads=32, num_key_value_heads=4,
                           intermediate_size=704, rms_norm_eps=1e-5, rope_theta=1e4, pretraining_tp=1),
    "llama_3_2_1b": dict(model_type="llama", hidden_size=256, num_attention_heads=32, num_key_value_heads=8, head_dim=8,
                         intermediate_size=1024, rms_norm_eps=1e-5, rope_theta=5e5, rope_scaling=LLAMA32_ROPE,
                         tie_word_embeddings=True, attention_bias=False, mlp_bias=False),
    "deepseek_coder_1_3b": dict(model_type="llama", hidden_size=128, num_attention_heads=16, num_key_value_heads=16,
                                intermediate_size=344, rms_norm_eps=1e-6, rope_theta=1e5,
                                rope_scaling={"type": "linear", "factor": 4.0}),
    "smollm2_135m": dict(model_type="llama", hidden_size=72, num_attention_heads=9, num_key_value_heads=3,
                         intermediate_size=192, rms_norm_eps=1e-5, rope_theta=1e5, tie_word_embeddings=True),
    "mistral_7b_0_1": dict(model_type="mistral", hidden_size=256, num_attention_heads=32, num_key_value_heads=8,
                           intermediate_size=896, rms_norm_eps=1e-5, rope_theta=1e4, sliding_window=7),
    "mistral_nemo": dict(model_type="mistral", hidden_size=320, num_attention_heads=32, num_key_value_heads=8,
                         head_dim=8, intermediate_size=896, rms_norm_eps=1e-5, rope_theta=1e6, sliding_window=None),
    "phi3_mini_4k": dict(model_type="phi3", hidden_size=256, num_attention_heads=32, num_key_value_heads=32,
                         intermediate_size=688, rms_norm_eps=1e-5, rope_theta=1e4, sliding_window=11, rope_scaling=None,
                         original_max_position_embeddings=LENGTH, resid_pdrop=0.0, embd_pdrop=0.0),
    "phi3_5_mini": dict(model_type="phi3", hidden_size=256, num_attention_heads=32, num_key_value_heads=32,
                        intermediate_size=688, rms_norm_eps=1e-5, rope_theta=1e4, sliding_window=2 * LENGTH,
                        original_max_position_embeddings=LENGTH // 4, rope_scaling={
                            "type": "longrope", "short_factor": [1.0, 1.02, 1.5, 2.8], "long_factor": [1.08, 1.6, 22.5, 64.8]}),
    "phi4_14b": dict(model_type="phi3", hidden_size=320, num_attention_heads=40, num_key_value_heads=10,
                     intermediate_size=1120, rms_norm_eps=1e-5, rope_theta=2.5e5, sliding_window=None, rope_scaling=None,
                     original_max_position_embeddings=LENGTH),
    "phi4_mini": dict(model_type="phi3", hidden_size=192, num_attention_heads=24, num_key_value_heads=8,
                      intermediate_size=512, rms_norm_eps=1e-5, rope_theta=1e4, partial_rotary_factor=0.75,
                      sliding_window=2 * LENGTH, original_max_position_embeddings=LENGTH // 4, tie_word_embeddings=True,
                      full_attn_mod=1, interpolate_factor=1, attention_bias=False, mlp_bias=False, lm_head_bias=False,
                      rope_scaling={"type": "longrope", "short_factor": [1.0, 1.0, 1.0], "long_factor": [1.0, 6.7, 47.8]}),
    "qwen2_5_0_5b": dict(model_type="qwen2", hidden_size=112, num_attention_heads=14, num_key_value_heads=2,
                         intermediate_size=608, rms_norm_eps=1e-6, rope_theta=1e6, use_sliding_window=False,
                         sliding_window=32768, max_window_layers=24, tie_word_embeddings=True),
    "qwen2_5_7b_yarn": dict(model_type="qwen2", hidden_size=224, num_attention_heads=28, num_key_value_heads=4,
                            intermediate_size=1184, rms_norm_eps=1e-6, rope_theta=1e6, use_sliding_window=False,
                            rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 6}),
    "qwen3_0_6b": dict(model_type="qwen3", hidden_size=64, num_attention_heads=16, num_key_value_heads=8, head_dim=8,
                       intermediate_size=192, rms_norm_eps=1e-6, rope_theta=1e6, attention_bias=False,
                       use_sliding_window=False, sliding_window=None, max_window_layers=28, tie_word_embeddings=True),
    "olmo2_1124_7b": dict(model_type="olmo2", hidden_size=256, num_attention_heads=32, num_key_value_heads=32,
                          intermediate_size=688, rms_norm_eps=1e-6, rope_theta=5e5, rope_scaling=None,
                          attention_bias=False, tie_word_embeddings=False),
    "olmo3_1025_7b": dict(model_type="olmo3", hidden_size=256, num_attention_heads=32, num_key_value_heads=32,
                          intermediate_size=688, rms_norm_eps=1e-6, rope_theta=5e5, num_hidden_layers=5, sliding_window=7,
                          layer_types=["sliding_attention"] * 3 + ["full_attention", "sliding_attention"],
                          rope_scaling={"attention_factor": 1.2079441541679836, "beta_fast": 32.0, "beta_slow": 1.0,
                                        "factor": 8.0, "original_max_position_embeddings": 16, "rope_type": "yarn"},
                          attention_bias=False, tie_word_embeddings=False),
    "gemma3_270m": dict(model_type="gemma3_text", hidden_size=20, num_attention_heads=4, num_key_value_heads=1,
                        head_dim=8, query_pre_attn_scalar=8, intermediate_size=64, rms_norm_eps=1e-6, rope_theta=1e6,
                        rope_local_base_freq=1e4, rope_scaling=None, num_hidden_layers=6, sliding_window=7,
                        layer_types=["sliding_attention"] * 5 + ["full_attention"], attention_bias=False,
                        attn_logit_softcapping=None, final_logit_softcapping=None, use_bidirectional_attention=False),
    "gemma3_1b": dict(model_type="gemma3_text", hidden_size=36, num_attention_heads=4, num_key_value_heads=1, head_dim=8,
                      query_pre_attn_scalar=8, intermediate_size=216, rms_norm_eps=1e-6, rope_theta=1e6,
                      rope_local_base_freq=1e4, rope_scaling=None, num_hidden_layers=6, sliding_window=7,
                      sliding_window_pattern=6, cache_implementation="hybrid"),
    "gemma3_4b_text": dict(model_type="gemma3_text", hidden_size=80, num_attention_heads=8, num_key_value_heads=4,
                           head_dim=8, query_pre_attn_scalar=8, intermediate_size=320, rms_norm_eps=1e-6, rope_theta=1e6,
                           rope_local_base_freq=1e4, rope_scaling={"rope_type": "linear", "factor": 8.0},
                           num_hidden_layers=6, sliding_window=7, sliding_window_pattern=6),
    "olmo2_0325_32b": dict(model_type="olmo2", hidden_size=320, num_attention_heads=40, num_key_value_heads=8,
                           intermediate_size=1728, rms_norm_eps=1e-6, rope_theta=5e5, rope_scaling=None,
                           attention_bias=False, tie_word_embeddings=False),
}

SMALL = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2)
# What is refused: a config, and what the error has to say.
REFUSED = {
    **{name: (dict(SMALL, model_type=name), f'model_type = "{name}" is not supported') for name in (
        "deepseek_v2", "deepseek_v3", "phimoe", "granitemoe", "jamba", "dbrx", "llama4_text", "ernie4_5_moe",
        "qwen3_next", "gemma2")},
    "longrope": (dict(SMALL, model_type="qwen2_moe", shared_expert_intermediate_size=16, moe_intermediate_size=16,
                      rope_scaling={"type": "longrope", "factor": 4.0, "original_max_position_embeddings": 32768}),
                 'rope_scaling: type = "longrope" is not supported'),
    "dynamic_rope": (dict(SMALL, model_type="llama", rope_scaling={"type": "dynamic", "factor": 2.0}),
                     'rope_scaling: type = "dynamic" is not supported'),
    "gelu_experts": (dict(SMALL, model_type="mixtral", hidden_act="gelu"), 'hidden_act = "gelu" is not supported'),
    "quantized": (dict(SMALL, model_type="mixtral", quantization_config={"quant_method": "awq"}),
                  'quantization_config = {"quant_method":"awq"} is not supported'),
    "gpt_oss_awq": (dict(SMALL, model_type="gpt_oss", quantization_config={"quant_method": "awq"}),
                    'quantization_config = {"quant_method":"awq"} is not supported'),
    "other_swiglu": (dict(SMALL, model_type="gpt_oss", swiglu_alpha=1.0), "swiglu_alpha = 1.0 is not supported"),
    "window_of_some": (dict(SMALL, model_type="qwen3", head_dim=8, use_sliding_window=True, sliding_window=8,
                            num_hidden_layers=3,
                            layer_types=["sliding_attention", "full_attention", "full_attention"]),
                       'layer_types = ["sliding_attention","full_attention","full_attention"] is not supported'),
    "some_dense": (dict(SMALL, model_type="qwen3_moe", num_hidden_layers=5, head_dim=8, mlp_only_layers=[1, 2]),
                   "mlp_only_layers = [1,2] is not supported"),
    "window_of_experts": (dict(SMALL, model_type="qwen2_moe", use_sliding_window=True, sliding_window=8),
                          "use_sliding_window = true is not supported"),
    "gemma3_images": (dict(model_type="gemma3", text_config=dict(SMALL, model_type="gemma3_text"),
                           vision_config={"model_type": "siglip_vision_model"}), 'model_type = "gemma3" is not supported'),
    "softcapping": (dict(SMALL, model_type="gemma3_text", head_dim=8, query_pre_attn_scalar=8, final_logit_softcapping=30.0),
                    "final_logit_softcapping = 30.0 is not supported"),
    "query_scalar": (dict(SMALL, model_type="gemma3_text", head_dim=8, query_pre_attn_scalar=10),
                     "query_pre_attn_scalar = 10 is not supported"),
    "unknown_key": (dict(SMALL, model_type="mixtral", logit_softcap=30.0), '"logit_softcap" = 30.0 is not known'),
    "more_choices_than_experts": (dict(SMALL, model_type="mixtral", num_local_experts=3, num_experts_per_tok=4),
                                  "experts_per_token"),
}


def drawn(seed):
    """A config by seed: of any family, with experts twice as often as without."""
    rng = random.Random(seed)
    family = rng.choice(MIXTURES * 2 + ("gpt2", "llama", "mistral", "phi3", "qwen2", "qwen3", "olmo2", "olmo3", "gemma3_text"))
    if family == "gpt2":
        heads = rng.choice((1, 3, 5))
        return dict(model_type=family, n_embd=8 * heads * rng.choice((1, 2)), n_head=heads, n_layer=rng.choice((1, 2)),
                    n_inner=rng.choice((None, 24, 56)), tie_word_embeddings=rng.random() < 0.7,
                    activation_function=rng.choice(("gelu_new", "gelu_pytorch_tanh")))
    kv, group = rng.choice((1, 2, 3)), rng.choice((1, 2, 3, 7))
    heads, layers = kv * group, rng.choice((1, 2, 3, 4))
    config = dict(model_type=family, num_attention_heads=heads, num_key_value_heads=kv, num_hidden_layers=layers,
                  hidden_size=heads * rng.choice((8, 16)), intermediate_size=rng.choice((20, 40, 72)),
                  rms_norm_eps=rng.choice((1e-5, 1e-6)), rope_theta=rng.choice((100.0, 1e4, 1e6)),
                  tie_word_embeddings=rng.random() < 0.4)
    if family in ("llama", "mistral", "qwen3", "qwen3_moe", "mixtral", "olmo2", "olmo3") and rng.random() < 0.5:
        config.update(head_dim=rng.choice((8, 24, 40)), hidden_size=heads * rng.choice((8, 9, 12)))
    if family.startswith("qwen3"):
        config.setdefault("head_dim", config["hidden_size"] // heads)  # 128 where nothing is said
    if rng.random() < 0.3:
        config["rope_scaling"] = dict(LLAMA32_ROPE, factor=rng.choice((2.0, 8.0)))
    elif rng.random() < 0.4:
        config["rope_scaling"] = rng.choice((
            {"rope_type": "linear", "factor": rng.choice((1.5, 4.0))},
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": rng.choice((4, LENGTH))},
            {"rope_type": "yarn", "factor": 2.5, "original_max_position_embeddings": 16, "beta_fast": 4.0,
             "beta_slow": 0.5, "truncate": False, "mscale": 1.0, "mscale_all_dim": 0.7},
            {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "attention_factor": 0.9}))
    if family == "mixtral" and "rope_scaling" in config:
        config.setdefault("head_dim", config["hidden_size"] // heads)  # without it 5.24 fails on YaRN
    if family == "phi3":
        config.pop("rope_scaling", None)
        part = rng.choice((0.5, 0.75, 1.0))
        config.update(partial_rotary_factor=part, sliding_window=rng.choice((None, 3, 8)))
        if rng.random() < 0.6:
            factors = lambda: [round(rng.uniform(1, 8), 3) for _ in range(int(config["hidden_size"] // heads * part) // 2)]
            config.update(original_max_position_embeddings=rng.choice((6, LENGTH, 64)),
                          rope_scaling={"type": "longrope", "short_factor": factors(), "long_factor": factors()})
    if family == "gemma3_text":
        width = rng.choice((8, 16, 24))
        config.update(head_dim=width, query_pre_attn_scalar=width, sliding_window=rng.choice((3, 8)),
                      sliding_window_pattern=rng.choice((1, 2, 3, 6)), rope_local_base_freq=rng.choice((50.0, 1e4)),
                      attention_bias=rng.random() < 0.3)
    if family == "llama":
        config.update(attention_bias=rng.random() < 0.3, mlp_bias=rng.random() < 0.3)
    if family in ("qwen3", "qwen3_moe", "olmoe", "olmo2", "olmo3"):
        config["attention_bias"] = rng.random() < 0.3
    if family == "olmo3":
        config.update(rope_theta=5e5, sliding_window=rng.choice((3, 8)))
    if family in ("mistral", "mixtral"):
        config["sliding_window"] = rng.choice((None, 3, 8))
    if family == "qwen3_moe" and rng.random() < 0.5:
        config.update(use_sliding_window=True, sliding_window=5)
    if family in ("qwen2", "qwen3") and rng.random() < 0.5:
        config.update(use_sliding_window=True, sliding_window=6, max_window_layers=rng.randrange(layers))
    if family in MIXTURES:
        experts = rng.choice((2, 3, 5, 11, 24, 60))
        config.update({COUNT_OF_EXPERTS.get(family, "num_experts"): experts},
                      num_experts_per_tok=rng.randint(1, min(experts, 8)))
    if family in ("qwen2_moe", "qwen3_moe"):
        dense = rng.choice(([], [0], list(range(layers - 1))))
        config.update(moe_intermediate_size=rng.choice((8, 12, 40)), norm_topk_prob=rng.random() < 0.5)
        config.update(rng.choice(({"decoder_sparse_step": rng.randint(1, layers)},
                                  {"mlp_only_layers": dense if len(dense) < layers else []})))
    if family == "qwen2_moe":
        config.update(shared_expert_intermediate_size=rng.choice((8, 20)), qkv_bias=rng.random() < 0.7)
    if family == "glm4_moe":
        groups = rng.choice([g for g in (1, 2, 4) if experts >= 2 * g])
        experts -= experts % groups
        chosen = rng.randint(1, groups)
        config.update(n_routed_experts=experts, n_group=groups, topk_group=chosen, n_shared_experts=rng.choice((1, 2)),
                      num_experts_per_tok=rng.randint(1, min(experts // groups * chosen, 8)),
                      moe_intermediate_size=rng.choice((8, 12, 40)), first_k_dense_replace=rng.randint(0, layers - 1),
                      norm_topk_prob=rng.random() < 0.7, routed_scaling_factor=rng.choice((1.0, 2.5)),
                      attention_bias=rng.random() < 0.5, use_qk_norm=rng.random() < 0.5, head_dim=rng.choice((8, 16, 24)),
                      partial_rotary_factor=rng.choice((0.25, 0.5, 1.0)))
    if family == "gpt_oss":
        config.update(head_dim=rng.choice((8, 16, 24)), attention_bias=rng.random() < 0.7, sliding_window=rng.choice((3, 8)),
                      swiglu_limit=rng.choice((0.3, 1.0, 7.0) if V5 else (7.0,)), layer_types=[
                          rng.choice(("sliding", "full")) + "_attention"] + ["full_attention", "sliding_attention"] * 2)
        config["layer_types"] = config["layer_types"][:layers]
        config.setdefault("rope_scaling", {"rope_type": "default"})  # where nothing is said, that of the published ones
    if family == "olmoe":
        config.update(norm_topk_prob=rng.random() < 0.5, clip_qkv=rng.choice((None, 0.5, 2.0)))
    return config


def make(name, keys, rng, directory):
    """Saves the model as one of the ways there are, with its golden file; says which way."""
    sizes = dict(max_position_embeddings=LENGTH, num_hidden_layers=2)
    if keys["model_type"] == "gpt2":
        sizes = dict(n_positions=LENGTH, n_layer=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    no_ids = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)  # of padding PyTorch has no gradient
    keys = {"vocab_size": VOCABULARY, **sizes, **no_ids, **keys}
    config = AutoConfig.for_model(**keys)
    model = AutoModelForCausalLM.from_config(config, **EAGER).float().train()
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    randomise(model, generator)
    dtype = rng.choice((torch.float32, torch.bfloat16))
    with torch.no_grad():  # as of 32 inputs: else a wide model doubles every error from layer to layer
        for p in model.parameters():
            if p.dim() >= 2:
                p *= (32 / p.shape[-1]) ** 0.5
            p.copy_(p.to(dtype))
        for name, b in model.named_buffers():
            if name.endswith(".e_score_correction_bias"):
                b.copy_((0.05 * torch.randn(b.shape, generator=generator)).to(dtype))
    ways = {"max_shard_size": rng.choice(("20KB", "200KB", "5GB"))}
    if V5 and keys["model_type"] in MIXTURES and rng.random() < 0.5:
        ways["save_original_format"] = False  # all experts of a layer in one tensor
    copy.deepcopy(model).to(dtype).save_pretrained(directory, **ways)  # the model's rotary angles stay in fp32
    values = golden(model, LENGTH, generator, keys["model_type"] in WITH_AUX_LOSS, *ADAMW)
    values["steps.adamw"] = torch.tensor(ADAMW)
    save_file(values, os.path.join(directory, "golden.safetensors"))
    return f"{str(dtype)[6:]}, shards of {ways['max_shard_size']}" + (", experts stacked" if len(ways) > 1 else "")


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def write_config(work):
    """Of a run; what it says nothing of is taken from the model."""
    path = os.path.join(work, "config.yaml")
    with open(path, "w") as file:
        file.write("data: {train: [none.bin]}\nbatch: {sequence_length: 8, microbatch_size: 1}\ntrain: {steps: 1}\n")
    return path


def round_trip(holdfast, directory, work):
    """What is wrong with the model after import and export, or ""."""
    checkpoints, exported = os.path.join(work, "checkpoints"), os.path.join(work, "exported")
    for command in (("import", directory, checkpoints, "--config", write_config(work)),
                    ("export", checkpoints, exported)):
        result = run(holdfast, "ckpt", *command)
        if result.returncode != 0:
            return f"ckpt {command[0]}: {result.stdout}"
    expected = load_file(os.path.join(directory, "golden.safetensors"))
    model = AutoModelForCausalLM.from_pretrained(exported, **EAGER, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = model(input_ids=expected["inputs"].long()).logits
    error = ((logits - expected["logits"]).norm() / expected["logits"].norm()).item()
    return "" if error < 1e-6 else f"the logits of what was exported differ by {error:.1e}"


def compare(build, directory):
    """What test_golden says of it, or ""."""
    result = subprocess.run([os.path.join(build, "tests", "test_golden"), "--gtest_filter=Tried/*", "--gtest_brief=1"],
                            env=dict(os.environ, HOLDFAST_TRIED_MODELS=directory), stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)
    return "" if result.returncode == 0 else result.stdout


def refuses(holdfast, keys, says, work):
    with open(os.path.join(work, "config.json"), "w") as file:
        json.dump(keys, file)
    result = run(holdfast, "ckpt", "import", work, os.path.join(work, "checkpoints"), "--config", write_config(work))
    if result.returncode == 0:
        return "was imported"
    return "" if says in result.stdout else f"the error does not say {says!r}: {result.stdout}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="build directory")
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--keep", metavar="DIR", help="where the models are left")
    arguments = parser.parse_intermixed_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    build = os.path.abspath(arguments.build)
    holdfast = os.path.join(build, "holdfast")
    models = {**PUBLISHED, **{f"seed_{i}": drawn(i) for i in
                              range(arguments.first_seed, arguments.first_seed + arguments.seeds)}}
    wanted = lambda name: not arguments.names or name in arguments.names
    bad = tried = 0
    with tempfile.TemporaryDirectory() as temporary:
        place = os.path.abspath(arguments.keep or temporary)
        for name, keys in models.items():
            if not wanted(name):
                continue
            directory, work = os.path.join(place, name), os.path.join(place, name + "_work")
            os.makedirs(work)
            how = make(name, keys, random.Random(name), directory)
            wrong = compare(build, directory) + round_trip(holdfast, directory, work)
            tried, bad = tried + 1, bad + bool(wrong)
            verdict = f"WRONG {keys}\n{wrong}" if wrong else "equal"
            print(f"{name}: {keys['model_type']}, {how}: {verdict}", flush=True)
        for name, (keys, says) in REFUSED.items():
            if not wanted(name):
                continue
            with tempfile.TemporaryDirectory() as work:
                wrong = refuses(holdfast, keys, says, work)
            tried, bad = tried + 1, bad + bool(wrong)
            print(f"{name}: {wrong or 'refused'}", flush=True)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}: {tried - bad} of {tried} as they should be")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
