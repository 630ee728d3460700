"""Makes the golden files of what a training pass does with experts besides a model's own arithmetic.

    python3 tests/golden/make_mixture_golden.py  # rewrites tests/golden/tiny_mixtral/mixture.safetensors

Needs torch, transformers 5 (whose routers and experts stand apart), safetensors. Model and tokens are those of
tiny_mixtral, which has two layers with experts. The file has
  capacity.loss (1), capacity.dropped (2), capacity.grad.<name>   an expert takes ceil(0.75 * T * k / E) tokens of each
                                                                 layer, those with the largest weights; the others go
                                                                 without it, their other experts' weights as they are
  aux_loss (1), aux.grad.<name>   transformers' auxiliary loss over both layers, gradients of loss + 0.25 * aux_loss
"""
import math
import os

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.models.mixtral.modeling_mixtral import MixtralTopKRouter

CAPACITY = 0.75
HERE = os.path.dirname(os.path.abspath(__file__))


def drop(weights, experts, num_experts, dropped):
    """Choices (R, k) without those that their experts have no room for: transformers takes them for expert E's."""
    room = math.ceil(CAPACITY * experts.numel() / num_experts)
    keep = torch.ones_like(experts, dtype=torch.bool)
    for expert in range(num_experts):
        rows, places = torch.where(experts == expert)
        order = torch.argsort(weights[rows, places].detach(), descending=True, stable=True)
        keep[rows[order[room:]], places[order[room:]]] = False
    dropped.append((~keep).sum().item())
    return torch.where(keep, weights, 0.0), torch.where(keep, experts, num_experts)


def gradients(model, prefix, loss):
    model.zero_grad()
    loss.backward()
    return {prefix + name: p.grad.clone() for name, p in model.named_parameters()}


def main():
    torch.set_num_threads(1)
    directory = os.path.join(HERE, "tiny_mixtral")
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager",
                                                 experts_implementation="eager").train()
    golden = load_file(os.path.join(directory, "golden.safetensors"))
    inputs, targets = golden["inputs"].long(), golden["targets"].long()

    def cross_entropy(logits):
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    with_aux = model(input_ids=inputs, output_router_logits=True)
    out = {"aux_loss": with_aux.aux_loss.reshape(1)}
    out.update(gradients(model, "aux.grad.", cross_entropy(with_aux.logits) + 0.25 * with_aux.aux_loss))

    dropped, forward = [], MixtralTopKRouter.forward

    def with_capacity(router, hidden):
        logits, weights, experts = forward(router, hidden)
        return logits, *drop(weights, experts, router.num_experts, dropped)

    MixtralTopKRouter.forward = with_capacity
    loss = cross_entropy(model(input_ids=inputs).logits)
    out["capacity.loss"], out["capacity.dropped"] = loss.reshape(1), torch.tensor(dropped)
    out.update(gradients(model, "capacity.grad.", loss))
    save_file({name: t.detach().float().contiguous().clone() for name, t in out.items()},
              os.path.join(directory, "mixture.safetensors"))
    os.chmod(os.path.join(directory, "mixture.safetensors"), 0o644)
    print(f"cross-entropy {cross_entropy(with_aux.logits).item():.6f}, dropping {dropped} {loss.item():.6f}, "
          f"auxiliary loss {with_aux.aux_loss.item():.6f}")


if __name__ == "__main__":
    main()
