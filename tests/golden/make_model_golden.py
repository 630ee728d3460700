"""Makes the golden files of the models: tiny models of `transformers` of every family, what PyTorch computes with them.

    python3 tests/golden/make_model_golden.py [NAME...]  # rewrites tests/golden/tiny_*, or those named
    python3 tests/golden/make_model_golden.py --check    # that the installed transformers has the same logits of them

Needs torch, transformers, safetensors; the check was run with transformers 4.57.6 and 5.23.0.

Each directory gets the model as `transformers` saves it (config.json, model.safetensors) and golden.safetensors:
  inputs, targets       (B, T) as fp32 whole numbers
  logits (B, T, V), loss (1)          mean cross-entropy
  grad.<name>                         gradient of every parameter
  steps.inputs, steps.targets         (10, B, T)
  steps.losses, steps.norms (10)      ten steps of AdamW from the same weights: losses and norms before clipping
  final.<name>                        the weights after them
  steps.adamw (2)                     only if they are others than below: learning rate and eps
and that of tiny_qwen3_moe, which has one layer with experts:
  aux_loss (1), aux.grad.<name>       transformers' auxiliary loss, gradients of loss + 0.25 * aux_loss
T is 13 of the 24 positions for the first two, 64 of 96 for tiny_qwen3_yarn, all of them for the others; the windows are
shorter than that. Attention is transformers' "eager" one. AdamW: lr 1e-2, betas (0.9, 0.95), eps 1e-8, weight decay 0.1
on matrices only, gradient norm clipped to 1.

transformers 5 keeps the experts of a layer in two tensors, as their gradients and final values are here, and saves each
by itself; tiny_mixtral/stacked has the model as it stands in memory.
"""
import os
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import (AutoConfig, AutoModelForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, Glm4MoeConfig, Glm4MoeForCausalLM, GPT2Config, GPT2LMHeadModel, GptOssConfig, GptOssForCausalLM,
                          LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, MixtralConfig, MixtralForCausalLM, Olmo2Config, Olmo2ForCausalLM, Olmo3Config, Olmo3ForCausalLM, OlmoeConfig, OlmoeForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen2MoeConfig, Qwen2MoeForCausalLM, Qwen3Config, Qwen3ForCausalLM,
                          Qwen3MoeConfig, Qwen3MoeForCausalLM)

BATCH, STEPS = 2, 10
HERE = os.path.dirname(os.path.abspath(__file__))


def gpt2():
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=61, n_positions=24, n_embd=32, n_layer=2, n_head=4, n_inner=48, activation_function="gelu_new",
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="eager"))


def llama():
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=61, max_position_embeddings=24, hidden_size=32, intermediate_size=40, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, rope_theta=1000.0, rms_norm_eps=1e-6,
        tie_word_embeddings=False, attn_implementation="eager"))


SIZES = dict(vocab_size=61, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, rms_norm_eps=1e-6, attn_implementation="eager")


def llama31():
    """Of the eight frequencies of a head of 16 some stay, some are mixed, some are divided."""
    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 24}
    return LlamaForCausalLM(LlamaConfig(**SIZES, head_dim=16, max_position_embeddings=96, tie_word_embeddings=True,
                                        rope_theta=10000.0, rope_scaling=rope))


def llama_linear():
    """Attention has biases, MLPs have none."""
    return LlamaForCausalLM(LlamaConfig(**SIZES, max_position_embeddings=48, tie_word_embeddings=False, rope_theta=100.0,
                                        rope_scaling={"rope_type": "linear", "factor": 2.5}, attention_bias=True))


def llama_yarn():
    """MLPs have biases, attention has none. Of the eight frequencies of a head one stays, two are mixed."""
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24}
    return LlamaForCausalLM(LlamaConfig(**SIZES, head_dim=16, max_position_embeddings=96, tie_word_embeddings=True,
                                        rope_theta=100.0, rope_scaling=rope, mlp_bias=True))


def mistral():
    return MistralForCausalLM(MistralConfig(**SIZES, max_position_embeddings=80, rope_theta=1000.0, sliding_window=9,
                                            tie_word_embeddings=False))


def phi3():
    return Phi3ForCausalLM(Phi3Config(**SIZES, max_position_embeddings=48, rope_theta=1000.0, sliding_window=13, pad_token_id=None,
                                      tie_word_embeddings=False))


def phi4_mini():
    """Three quarters of each head are turned, by angles for sequences of twice the original length."""
    rope = {"type": "longrope", "short_factor": [1.0, 1.1, 1.25, 1.5, 2.0, 2.0], "long_factor": [1.0, 1.5, 2.25, 4.0, 6.5, 9.75]}
    return Phi3ForCausalLM(Phi3Config(**{**SIZES, "num_attention_heads": 2, "num_key_value_heads": 1}, max_position_embeddings=96,
                                      original_max_position_embeddings=48, partial_rotary_factor=0.75, rope_theta=100.0,
                                      rope_scaling=rope, pad_token_id=None, tie_word_embeddings=True))


def qwen2():
    return Qwen2ForCausalLM(Qwen2Config(**SIZES, max_position_embeddings=48, rope_theta=1000.0, tie_word_embeddings=True))


def qwen2_window():
    """The last two of three layers have a window."""
    return Qwen2ForCausalLM(Qwen2Config(**{**SIZES, "num_hidden_layers": 3}, max_position_embeddings=48,
                                        rope_theta=1000.0, tie_word_embeddings=False, use_sliding_window=True,
                                        sliding_window=7, max_window_layers=1))


def qwen3():
    return Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=24, max_position_embeddings=48, rope_theta=1000.0,
                                        tie_word_embeddings=False))


def qwen3_yarn():
    """Attention has biases; all that can be said of this scaling is."""
    rope = {"rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 48, "beta_fast": 4.0,
            "beta_slow": 0.5, "truncate": False, "mscale": 1.0, "mscale_all_dim": 0.5}
    return Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=24, max_position_embeddings=96, rope_theta=1000.0,
                                        rope_scaling=rope, attention_bias=True, tie_word_embeddings=False))


def qwen3_window():
    return Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=8, max_position_embeddings=48, rope_theta=1000.0,
                                        tie_word_embeddings=True, use_sliding_window=True, sliding_window=11,
                                        max_window_layers=0))


def mixtral():
    return MixtralForCausalLM(MixtralConfig(**{**SIZES, "intermediate_size": 16}, max_position_embeddings=48,
                                            num_local_experts=5, num_experts_per_tok=2, sliding_window=17,
                                            rope_theta=1000.0))


def qwen2_moe():
    """The first of three layers is dense."""
    return Qwen2MoeForCausalLM(Qwen2MoeConfig(**{**SIZES, "num_hidden_layers": 3}, max_position_embeddings=48,
                                              rope_theta=1000.0, num_experts=7, num_experts_per_tok=3,
                                              moe_intermediate_size=16, shared_expert_intermediate_size=24,
                                              mlp_only_layers=[0], tie_word_embeddings=True))


def qwen3_moe():
    """The first and the last of three layers are dense."""
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**{**SIZES, "num_hidden_layers": 3}, head_dim=24, rope_theta=1000.0,
                                              max_position_embeddings=48, num_experts=6, num_experts_per_tok=2,
                                              moe_intermediate_size=16, norm_topk_prob=True, decoder_sparse_step=2))


def olmoe():
    return OlmoeForCausalLM(OlmoeConfig(**{**SIZES, "intermediate_size": 16}, max_position_embeddings=48, num_experts=8,
                                        num_experts_per_tok=3, rope_theta=1000.0,
                                        pad_token_id=None, eos_token_id=None))  # of padding PyTorch has no gradient


def olmoe_clip():
    return OlmoeForCausalLM(OlmoeConfig(**{**SIZES, "num_key_value_heads": 4, "intermediate_size": 16}, clip_qkv=1.0,
                                        max_position_embeddings=48, num_experts=4, num_experts_per_tok=2,
                                        rope_theta=1000.0, pad_token_id=None, eos_token_id=None))


def olmo2():
    return Olmo2ForCausalLM(Olmo2Config(**SIZES, max_position_embeddings=48, rope_parameters={
        "rope_type": "default", "rope_theta": 1000.0}, pad_token_id=None, eos_token_id=None))


def olmo3():
    """The first and the last of three layers have a window, the second one's angles are scaled."""
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 1000.0}
    return Olmo3ForCausalLM(Olmo3Config(
        **{**SIZES, "num_hidden_layers": 3}, max_position_embeddings=64, sliding_window=7, rope_parameters={
            "full_attention": rope, "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0}},
        layer_types=["sliding_attention", "full_attention", "sliding_attention"], pad_token_id=None, eos_token_id=None))


def gemma3():
    """The first and the last of three layers have a window and a base of their own, the second one's angles are scaled."""
    return Gemma3ForCausalLM(Gemma3TextConfig(
        **{**SIZES, "num_hidden_layers": 3}, head_dim=16, query_pre_attn_scalar=16, max_position_embeddings=48,
        sliding_window=7, rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}},
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        bos_token_id=None, pad_token_id=None, eos_token_id=None))


def glm4_moe():
    """Half of each head is turned, the first of three layers is dense; a token's experts come from two of three groups."""
    model = Glm4MoeForCausalLM(Glm4MoeConfig(
        **{**SIZES, "num_hidden_layers": 3}, head_dim=16, max_position_embeddings=48, rope_parameters={
            "rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.5}, attention_bias=True,
        use_qk_norm=True, n_routed_experts=6, num_experts_per_tok=3, moe_intermediate_size=16, n_shared_experts=2, n_group=3,
        topk_group=2, first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=2.5, num_nextn_predict_layers=0))
    generator = torch.Generator().manual_seed(2)
    for layer in model.model.layers[1:]:
        bias = layer.mlp.gate.e_score_correction_bias
        bias.copy_(0.05 * torch.randn(bias.shape, generator=generator))
    return model


def gpt_oss():
    """The first and the last of three layers have a window. A fifth of the gates is beyond the limit, two fifths of the rest."""
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0,
            "truncate": False, "rope_theta": 1000.0}
    model = GptOssForCausalLM(GptOssConfig(
        **{**SIZES, "num_hidden_layers": 3, "intermediate_size": 24}, head_dim=16, max_position_embeddings=64,
        sliding_window=7, rope_parameters=rope, num_local_experts=5, num_experts_per_tok=2, swiglu_limit=0.75,
        pad_token_id=None, eos_token_id=None))
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.sinks.copy_(torch.tensor([-1.0, 0.5, 1.5, 3.0]))
            layer.mlp.router.bias.zero_()  # it is random
    return model


# name, model, length of its sequences
MODELS = (("tiny_gpt2", gpt2, 13), ("tiny_llama", llama, 13), ("tiny_llama31", llama31, 96),
          ("tiny_llama_linear", llama_linear, 48), ("tiny_llama_yarn", llama_yarn, 96), ("tiny_mistral", mistral, 80),
          ("tiny_phi3", phi3, 48), ("tiny_phi4_mini", phi4_mini, 96),
          ("tiny_qwen2", qwen2, 48), ("tiny_qwen2_window", qwen2_window, 48), ("tiny_qwen3", qwen3, 48), ("tiny_qwen3_window", qwen3_window, 48),
          ("tiny_qwen3_yarn", qwen3_yarn, 64),
          ("tiny_mixtral", mixtral, 48), ("tiny_qwen2_moe", qwen2_moe, 48), ("tiny_qwen3_moe", qwen3_moe, 48),
          ("tiny_olmoe", olmoe, 48), ("tiny_olmoe_clip", olmoe_clip, 48),
          ("tiny_glm4_moe", glm4_moe, 48), ("tiny_olmo2", olmo2, 48), ("tiny_olmo3", olmo3, 64),
          ("tiny_gemma3", gemma3, 48), ("tiny_gpt_oss", gpt_oss, 64))


def randomise(model, generator):
    """Values far from the initialisation, where biases are 0 and norms 1 and mistakes can hide."""
    with torch.no_grad():
        for p in model.parameters():
            noise = torch.randn(p.shape, generator=generator)
            if p.dim() >= 2:
                p.copy_(0.15 * noise)
            else:
                p.add_(0.1 * noise)


def zero_grad(model):
    """Of experts that no token went to, too: transformers 4 has each by itself, and they would have none."""
    for p in model.parameters():
        p.grad = torch.zeros_like(p)


# With 1e-8 for eps AdamW makes full steps of what is nothing but rounding: PyTorch's own weights after ten steps in fp32
# then differ by 1e-5 to 8e-5 from those in fp64, with this by 3e-7 to 2e-6.
LARGER_EPS = (1e-2, 1e-4)
WITH_LARGER_EPS = ("tiny_qwen2_window", "tiny_olmo2", "tiny_olmo3", "tiny_gemma3")


def loss_of(model, inputs, targets):
    logits = model(input_ids=inputs).logits
    return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def sequences(vocabulary, count, length, generator):
    tokens = torch.randint(vocabulary, (count, BATCH, length + 1), generator=generator)
    return tokens[:, :, :-1].contiguous(), tokens[:, :, 1:].contiguous()


def with_aux_loss(model, inputs, targets):
    zero_grad(model)
    out = model(input_ids=inputs, output_router_logits=True)
    loss = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1), targets.flatten())
    (loss + 0.25 * out.aux_loss).backward()
    tensors = {"aux_loss": out.aux_loss.reshape(1)}
    for name, p in model.named_parameters():
        tensors["aux.grad." + name] = p.grad.clone()
    return tensors


def golden(model, length, generator, aux_loss=False, lr=1e-2, eps=1e-8):
    out = {}
    inputs, targets = sequences(model.config.vocab_size, 1, length, generator)
    if aux_loss:
        out.update(with_aux_loss(model, inputs[0], targets[0]))
    zero_grad(model)
    logits, loss = loss_of(model, inputs[0], targets[0])
    loss.backward()
    out["inputs"], out["targets"] = inputs[0], targets[0]
    out["logits"], out["loss"] = logits, loss.reshape(1)
    for name, p in model.named_parameters():
        out["grad." + name] = p.grad.clone()

    inputs, targets = sequences(model.config.vocab_size, STEPS, length, generator)
    matrices = [p.dim() >= 2 and not name.endswith("_bias") for name, p in model.named_parameters()]  # biases of all experts
    decay = [p for p, matrix in zip(model.parameters(), matrices) if matrix]
    no_decay = [p for p, matrix in zip(model.parameters(), matrices) if not matrix]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}],
                                  lr=lr, betas=(0.9, 0.95), eps=eps, foreach=False)
    losses, norms = [], []
    for step in range(STEPS):
        zero_grad(model)
        _, loss = loss_of(model, inputs[step], targets[step])
        loss.backward()
        norms.append(torch.stack([p.grad.double().norm() for p in model.parameters()]).norm())  # in fp32, off by 4e-5
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    out["steps.inputs"], out["steps.targets"] = inputs, targets
    out["steps.losses"], out["steps.norms"] = torch.stack(losses), torch.stack(norms)
    for name, p in model.named_parameters():
        out["final." + name] = p
    for name, b in model.named_buffers():
        if name.endswith(".e_score_correction_bias"):  # a parameter of ours, which PyTorch leaves as it is
            out["grad." + name], out["final." + name] = torch.zeros_like(b), b
    return {name: t.detach().float().contiguous().clone() for name, t in out.items()}


def check(name):
    directory = os.path.join(HERE, name)
    expected = load_file(os.path.join(directory, "golden.safetensors"))
    config = AutoConfig.from_pretrained(directory)
    if int(transformers.__version__.split(".")[0]) < 5 and hasattr(config, "rope_parameters"):  # of files that 5 has saved
        rope = dict(config.rope_parameters.get("full_attention", config.rope_parameters))
        config.rope_theta = rope.pop("rope_theta")
        if config.model_type == "gemma3_text":
            config.rope_local_base_freq = config.rope_parameters["sliding_attention"]["rope_theta"]
        config.rope_scaling = rope if rope["rope_type"] != "default" else None
        if config.model_type == "qwen3_moe":
            config.num_experts = config.num_local_experts
    model = AutoModelForCausalLM.from_pretrained(directory, config=config, dtype=torch.float32,
                                                 attn_implementation="eager").eval()
    with torch.no_grad():
        logits = model(input_ids=expected["inputs"].long()).logits
    error = ((logits - expected["logits"]).norm() / expected["logits"].norm()).item()
    print(f"{name}: {type(model).__name__}, logits differ by {error:.1e}")
    assert error < 1e-5


def main():
    torch.set_num_threads(1)
    if sys.argv[1:] == ["--check"]:
        for name, _, _ in MODELS:
            if name != "tiny_gpt_oss" or int(transformers.__version__.split(".")[0]) >= 5:  # 4 has one limit for all
                check(name)
        return
    for name, make, length in MODELS:
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        generator = torch.Generator().manual_seed(1)
        model = make().float().train()
        randomise(model, generator)
        directory = os.path.join(HERE, name)
        model.save_pretrained(directory, safe_serialization=True)
        if name == "tiny_mixtral":
            model.save_pretrained(os.path.join(directory, "stacked"), save_original_format=False)
        adamw = LARGER_EPS if name in WITH_LARGER_EPS else (1e-2, 1e-8)
        values = golden(model, length, generator, name == "tiny_qwen3_moe", *adamw)
        if name in WITH_LARGER_EPS:
            values["steps.adamw"] = torch.tensor(adamw)
        save_file(values, os.path.join(directory, "golden.safetensors"))
        if os.path.exists(os.path.join(directory, "generation_config.json")):
            os.remove(os.path.join(directory, "generation_config.json"))
        for folder, _, files in os.walk(directory):
            for file in files:
                os.chmod(os.path.join(folder, file), 0o644)


if __name__ == "__main__":
    main()
