"""Makes the golden files of the models: tiny GPT-2 and Llama models of `transformers`, what PyTorch computes with them.

    python3 tests/golden/make_model_golden.py        # needs torch, transformers, safetensors; rewrites tests/golden/tiny_*

Each directory gets the model as `transformers` saves it (config.json, model.safetensors) and golden.safetensors:
  inputs, targets       (B, T) as fp32 whole numbers
  logits (B, T, V), loss (1)          mean cross-entropy
  grad.<name>                         gradient of every parameter
  steps.inputs, steps.targets         (10, B, T)
  steps.losses, steps.norms (10)      ten steps of AdamW from the same weights: losses and norms before clipping
  final.<name>                        the weights after them
Attention is transformers' "eager" one. AdamW: lr 1e-2, betas (0.9, 0.95), eps 1e-8, weight decay 0.1 on matrices only,
gradient norm clipped to 1.
"""
import os

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

BATCH, LENGTH, STEPS = 2, 13, 10
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


def randomise(model, generator):
    """Values far from the initialisation, where biases are 0 and norms 1 and mistakes can hide."""
    with torch.no_grad():
        for p in model.parameters():
            noise = torch.randn(p.shape, generator=generator)
            if p.dim() >= 2:
                p.copy_(0.15 * noise)
            else:
                p.add_(0.1 * noise)


def loss_of(model, inputs, targets):
    logits = model(input_ids=inputs).logits
    return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def sequences(vocabulary, count, generator):
    tokens = torch.randint(vocabulary, (count, BATCH, LENGTH + 1), generator=generator)
    return tokens[:, :, :-1].contiguous(), tokens[:, :, 1:].contiguous()


def golden(model, generator):
    out = {}
    inputs, targets = sequences(model.config.vocab_size, 1, generator)
    logits, loss = loss_of(model, inputs[0], targets[0])
    loss.backward()
    out["inputs"], out["targets"] = inputs[0], targets[0]
    out["logits"], out["loss"] = logits, loss.reshape(1)
    for name, p in model.named_parameters():
        out["grad." + name] = p.grad.clone()

    inputs, targets = sequences(model.config.vocab_size, STEPS, generator)
    decay = [p for p in model.parameters() if p.dim() >= 2]
    no_decay = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}],
                                  lr=1e-2, betas=(0.9, 0.95), eps=1e-8, foreach=False)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        _, loss = loss_of(model, inputs[step], targets[step])
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        optimizer.step()
        losses.append(loss.detach())
    out["steps.inputs"], out["steps.targets"] = inputs, targets
    out["steps.losses"], out["steps.norms"] = torch.stack(losses), torch.stack(norms)
    for name, p in model.named_parameters():
        out["final." + name] = p
    return {name: t.detach().float().contiguous().clone() for name, t in out.items()}


def main():
    torch.set_num_threads(1)
    for name, make in (("tiny_gpt2", gpt2), ("tiny_llama", llama)):
        generator = torch.Generator().manual_seed(1)
        model = make().float().train()
        randomise(model, generator)
        directory = os.path.join(HERE, name)
        model.save_pretrained(directory, safe_serialization=True)
        save_file(golden(model, generator), os.path.join(directory, "golden.safetensors"))
        for file in os.listdir(directory):
            os.chmod(os.path.join(directory, file), 0o644)


if __name__ == "__main__":
    main()
