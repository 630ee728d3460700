"""Makes training.safetensors beside the tiny models: how PyTorch trains them with warm-up, cosine decay, clipping,
several microbatches a step, and dropout.

    python3 tests/golden/make_training_golden.py        # needs torch and numpy; rewrites tests/golden/tiny_*/training.safetensors

  inputs, targets (S, M, B, T)        tokens, as fp32 whole numbers
  losses, norms, lrs (S)              mean cross-entropy of a step, gradient norm before clipping, learning rate
  final.<name>                        the weights after the last step
The models are written out here, as `transformers` has no dropout that can be given a mask; without dropout their logits
must be those of golden.safetensors, which are transformers' own. Autograd makes the gradients.

Dropout masks are Philox4x32-10 (Salmon et al. 2011), implemented here from the paper with the key that
kernels/philox.h, models/pass.h and kernels/ops.h document:
  key      seed (low, high 32 bits)
  counter  block (low 32 bits), site << 16 | block bits 32 to 47, microbatch, step (from 1); element e is word e % 4 of block
           e // 4
  site     8 * layer + place: layer 0 is the embedding (place 0), block l is layer l + 1: attention probabilities (1),
           attention branch (2), MLP branch (3)
  element  row * columns + column of (B * T, C); of attention probabilities ((b * heads + head) * T + i) * T + j
An element is kept if its word is at least float32(rate) * 2^32, and then multiplied by 1 / (1 - rate).
"""
import json
import math
import os
import struct

import numpy as np
import torch
import torch.nn.functional as F

STEPS, MICROBATCHES, BATCH, LENGTH = 10, 3, 2, 13
LR, WARMUP, MIN_LR_RATIO, CLIP = 1e-2, 4, 0.1, 1.0
BETAS, EPS, WEIGHT_DECAY = (0.9, 0.95), 1e-8, 0.1
RATE, SEED = 0.15, 0x9E3779B97F4A7C15
HERE = os.path.dirname(os.path.abspath(__file__))


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    size, = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        values = np.frombuffer(data[begin:end], dtype="<f4").reshape(entry["shape"])
        tensors[name] = torch.from_numpy(values.copy())
    return tensors


def write_safetensors(path, tensors):
    header, chunks, offset = {}, [], 0
    for name, tensor in tensors.items():
        chunk = tensor.detach().float().contiguous().numpy().astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, offset + len(chunk)]}
        chunks.append(chunk)
        offset += len(chunk)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(chunks))


def philox_words(seed, step, microbatch, site, count):
    """Words of elements 0 .. count - 1."""
    low = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    block = np.arange((count + 3) // 4, dtype=np.uint64)
    counter = [block & low, np.uint64(site << 16) | (block >> shift & np.uint64(0xFFFF)),
               np.full_like(block, microbatch), np.full_like(block, step)]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        first, second = counter[0] * np.uint64(0xD2511F53), counter[2] * np.uint64(0xCD9E8D57)
        counter = [(second >> shift) ^ counter[1] ^ np.uint64(key[0]), second & low,
                   (first >> shift) ^ counter[3] ^ np.uint64(key[1]), first & low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(counter, axis=1).reshape(-1)[:count]


class Dropout:
    """The masks of one microbatch of one step; of none if `rate` is 0."""

    def __init__(self, step=0, microbatch=0, rate=0.0):
        self.step, self.microbatch, self.rate = step, microbatch, rate

    def __call__(self, layer, place, x):
        if self.rate == 0:
            return x
        rate = float(np.float32(self.rate))
        words = philox_words(SEED, self.step, self.microbatch, 8 * layer + place, x.numel())
        keep = torch.from_numpy(words >= np.uint64(int(rate * 2**32))).reshape(x.shape)
        return torch.where(keep, x / (1 - rate), torch.zeros_like(x))


def attend(q, k, v, layer, dropout):
    """q (B, H, T, D), k and v (B, G, T, D): causal attention, a group of query heads for each key head."""
    batch, heads, length, width = q.shape
    k, v = (x.repeat_interleave(heads // x.shape[1], dim=1) for x in (k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(width)
    scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), -math.inf)
    out = dropout(layer, 1, scores.softmax(dim=-1)) @ v
    return out.transpose(1, 2).reshape(batch, length, heads * width)


def split_heads(x, width):
    return x.reshape(*x.shape[:2], -1, width).transpose(1, 2)


def gpt2(w, config, tokens, dropout):
    width, eps = config["n_embd"], config["layer_norm_epsilon"]

    def norm(x, name):
        return F.layer_norm(x, (width,), w[name + ".weight"], w[name + ".bias"], eps)

    def linear(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][:tokens.shape[1]]
    x = dropout(0, 0, x)
    for layer in range(config["n_layer"]):
        name = f"transformer.h.{layer}."
        qkv = linear(norm(x, name + "ln_1"), name + "attn.c_attn").split(width, dim=2)
        attended = attend(*(split_heads(part, width // config["n_head"]) for part in qkv), layer + 1, dropout)
        x = x + dropout(layer + 1, 2, linear(attended, name + "attn.c_proj"))
        up = F.gelu(linear(norm(x, name + "ln_2"), name + "mlp.c_fc"), approximate="tanh")
        x = x + dropout(layer + 1, 3, linear(up, name + "mlp.c_proj"))
    return norm(x, "transformer.ln_f") @ w["transformer.wte.weight"].T


def llama(w, config, tokens, dropout):
    width, eps = config["head_dim"], config["rms_norm_eps"]
    theta = config["rope_parameters"]["rope_theta"]
    angles = torch.arange(tokens.shape[1])[:, None] * theta ** (-2.0 * torch.arange(width // 2) / width)
    cosines, sines = angles.cos(), angles.sin()

    def norm(x, name):
        return w[name + ".weight"] * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))

    def linear(x, name):
        return x @ w[name + ".weight"].T

    def rotate(x):
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cosines - b * sines, b * cosines + a * sines], dim=-1)

    x = dropout(0, 0, w["model.embed_tokens.weight"][tokens])
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        y = norm(x, name + "input_layernorm")
        q, k, v = (split_heads(linear(y, f"{name}self_attn.{part}_proj"), width) for part in "qkv")
        attended = attend(rotate(q), rotate(k), v, layer + 1, dropout)
        x = x + dropout(layer + 1, 2, linear(attended, name + "self_attn.o_proj"))
        y = norm(x, name + "post_attention_layernorm")
        up = F.silu(linear(y, name + "mlp.gate_proj")) * linear(y, name + "mlp.up_proj")
        x = x + dropout(layer + 1, 3, linear(up, name + "mlp.down_proj"))
    return linear(norm(x, "model.norm"), "lm_head")


def learning_rate(step):
    """Of step `step`: linear up to LR at the last step of the warm-up, cosine down to the floor at the end."""
    if step <= WARMUP:
        return LR * step / WARMUP
    progress = (step - WARMUP) / (STEPS - WARMUP)
    return LR * (MIN_LR_RATIO + (1 - MIN_LR_RATIO) * 0.5 * (1 + math.cos(math.pi * progress)))


def train(model, weights, config):
    generator = torch.Generator().manual_seed(2)
    shape = (STEPS, MICROBATCHES, BATCH, LENGTH + 1)
    tokens = torch.randint(config["vocab_size"], shape, generator=generator)
    inputs, targets = tokens[..., :-1], tokens[..., 1:]
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in weights.values() if p.dim() >= 2], "weight_decay": WEIGHT_DECAY},
         {"params": [p for p in weights.values() if p.dim() < 2], "weight_decay": 0.0}],
        lr=LR, betas=BETAS, eps=EPS, foreach=False)
    losses, norms, lrs = [], [], []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step + 1)
        optimizer.zero_grad()
        sum_of_losses = 0.0
        for m in range(MICROBATCHES):
            logits = model(weights, config, inputs[step, m], Dropout(step + 1, m, RATE))
            loss = F.cross_entropy(logits.flatten(0, 1), targets[step, m].flatten()) / MICROBATCHES
            loss.backward()
            sum_of_losses += loss.detach()
        norms.append(torch.nn.utils.clip_grad_norm_(weights.values(), CLIP))
        optimizer.step()
        losses.append(sum_of_losses)
        lrs.append(torch.tensor(learning_rate(step + 1)))
    out = {"inputs": inputs, "targets": targets, "losses": torch.stack(losses), "norms": torch.stack(norms),
           "lrs": torch.stack(lrs)}
    return out | {"final." + name: p for name, p in weights.items()}


def main():
    torch.set_num_threads(1)
    known = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]  # the paper's authors': counter and key 0
    assert [int(word) for word in philox_words(0, 0, 0, 0, 4)] == known
    for name, model in (("tiny_gpt2", gpt2), ("tiny_llama", llama)):
        directory = os.path.join(HERE, name)
        with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        weights = read_safetensors(os.path.join(directory, "model.safetensors"))
        golden = read_safetensors(os.path.join(directory, "golden.safetensors"))
        logits = model(weights, config, golden["inputs"].long(), Dropout())
        torch.testing.assert_close(logits, golden["logits"], rtol=1e-5, atol=1e-5)
        for p in weights.values():
            p.requires_grad_()
        out = train(model, weights, config)
        write_safetensors(os.path.join(directory, "training.safetensors"), out)


if __name__ == "__main__":
    main()
