"""Makes training_lion.safetensors and training_muon.safetensors beside the tiny models: make_training_golden.py's run
(its data, schedule, clipping and dropout) with other optimizers, and a moving average of the weights.

    python3 tests/golden/make_optimizer_golden.py       # needs torch and numpy; rewrites tests/golden/tiny_*/training_*

As there, and
  ema.<name>                          the average of the weights, which began as they did
The optimizers are written out here from their papers: Lion (Chen et al. 2023, algorithm 2); Muon as Moonlight has it
(Liu et al. 2025, arXiv 2502.16982, section 2.2) with AdamW for everything outside the blocks' matrices; query, key and
value, which are one tensor of GPT-2, are three matrices. Lion has no GPT-2: the gradient of the bias of keys is nothing
but rounding, whose sign is anybody's. And its data are the first of which nothing whose sign is taken comes so near to
zero (NEAR of its tensor's root mean square) that rounding could decide it.
"""
import json
import os

import torch
import torch.nn.functional as F

import make_training_golden as base

EMA_DECAY, MOMENTUM, LION_BETAS = 0.9, 0.95, (0.9, 0.99)
NEAR = 1e-5
FUSED = "attn.c_attn"  # query, key and value beside each other


class Lion:
    def __init__(self, weights):
        self.weights = list(weights.values())
        self.moments = [torch.zeros_like(w) for w in self.weights]
        self.nearest = 1.0

    def step(self, lr):
        for w, m in zip(self.weights, self.moments):
            mixed = LION_BETAS[0] * m + (1 - LION_BETAS[0]) * w.grad
            sizes = mixed[mixed != 0].abs()
            self.nearest = min(self.nearest, (sizes.min() / sizes.square().mean().sqrt()).item())
            update = mixed.sign()
            if w.dim() >= 2:
                w.mul_(1 - lr * base.WEIGHT_DECAY)
            w.sub_(lr * update)
            m.mul_(LION_BETAS[1]).add_((1 - LION_BETAS[1]) * w.grad)


def newton_schulz(matrix):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix / (matrix.norm() + 1e-7)
    if x.shape[0] > x.shape[1]:
        x = x.T
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


class Muon:
    nearest = 1.0

    def __init__(self, weights):
        taken = {n: w for n, w in weights.items() if w.dim() == 2 and (".h." in n or ".layers." in n)}
        self.taken = [(w, 3 if FUSED in n else 1, torch.zeros_like(w)) for n, w in taken.items()]
        others = [w for n, w in weights.items() if n not in taken]
        self.adamw = torch.optim.AdamW(
            [{"params": [w for w in others if w.dim() >= 2], "weight_decay": base.WEIGHT_DECAY},
             {"params": [w for w in others if w.dim() < 2], "weight_decay": 0.0}],
            lr=base.LR, betas=base.BETAS, eps=base.EPS, foreach=False)

    def step(self, lr):
        for w, matrices, moment in self.taken:
            moment.mul_(MOMENTUM).add_(w.grad)
            nesterov = (MOMENTUM * moment + w.grad).chunk(matrices, dim=1)
            update = torch.cat([newton_schulz(m) * 0.2 * max(m.shape) ** 0.5 for m in nesterov], dim=1)
            w.sub_(lr * (update + base.WEIGHT_DECAY * w))
        for group in self.adamw.param_groups:
            group["lr"] = lr
        self.adamw.step()


def train(model, weights, config, make_optimizer, seed):
    """Also returns how near to zero something came whose sign was taken."""
    generator = torch.Generator().manual_seed(seed)
    shape = (base.STEPS, base.MICROBATCHES, base.BATCH, base.LENGTH + 1)
    tokens = torch.randint(config["vocab_size"], shape, generator=generator)
    inputs, targets = tokens[..., :-1], tokens[..., 1:]
    optimizer = make_optimizer(weights)
    average = {name: w.detach().clone() for name, w in weights.items()}
    losses, norms, lrs = [], [], []
    for step in range(base.STEPS):
        for w in weights.values():
            w.grad = None
        sum_of_losses = 0.0
        for m in range(base.MICROBATCHES):
            logits = model(weights, config, inputs[step, m], base.Dropout(step + 1, m, base.RATE))
            loss = F.cross_entropy(logits.flatten(0, 1), targets[step, m].flatten()) / base.MICROBATCHES
            loss.backward()
            sum_of_losses += loss.detach()
        norms.append(torch.nn.utils.clip_grad_norm_(weights.values(), base.CLIP))
        with torch.no_grad():
            optimizer.step(base.learning_rate(step + 1))
            for name, w in weights.items():
                average[name].mul_(EMA_DECAY).add_((1 - EMA_DECAY) * w)
        losses.append(sum_of_losses)
        lrs.append(torch.tensor(base.learning_rate(step + 1)))
    out = {"inputs": inputs, "targets": targets, "losses": torch.stack(losses), "norms": torch.stack(norms),
           "lrs": torch.stack(lrs)}
    out |= {"final." + name: w for name, w in weights.items()}
    return out | {"ema." + name: w for name, w in average.items()}, optimizer.nearest


def main():
    torch.set_num_threads(1)
    for name, model, kind in (("tiny_llama", base.llama, Lion), ("tiny_gpt2", base.gpt2, Muon),
                              ("tiny_llama", base.llama, Muon)):
        directory = os.path.join(base.HERE, name)
        with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        for seed in range(3, 1000):
            weights = base.read_safetensors(os.path.join(directory, "model.safetensors"))
            for p in weights.values():
                p.requires_grad_()
            out, nearest = train(model, weights, config, kind, seed)
            if nearest > NEAR:
                break
        base.write_safetensors(os.path.join(directory, f"training_{kind.__name__.lower()}.safetensors"), out)


if __name__ == "__main__":
    main()
