#include "tests/kernels/cuda/copying_ops.h"

#include <cstdio>
#include <cstdlib>

#include "tests/kernels/cuda/host_blocks.h"

namespace holdfast::kernels {
namespace {

[[noreturn]] void Die(const char* what, const void* at) {
  std::fprintf(stderr, "%p, an argument of an operation, %s\n", at, what);
  std::abort();
}

}  // namespace

CopyingOps::~CopyingOps() {
  for (const auto& [on_cpu, copy] : copies_) device_.Free(copy.on_device, copy.bytes);
}

void CopyingOps::Finish() {
  for (const auto& [on_cpu, copy] : copies_) {
    const HostBlock block = FindHostBlock(on_cpu);
    if (block.begin != on_cpu || block.bytes != copy.bytes) Die("was freed before the operation was done", on_cpu);
    device_.CopyToCpu(on_cpu, copy.on_device, copy.bytes);
    device_.Free(copy.on_device, copy.bytes);
  }
  copies_.clear();
}

void* CopyingOps::Find(const void* on_cpu) {
  const HostBlock block = FindHostBlock(on_cpu);
  if (block.begin == nullptr) Die("is no memory of operator new", on_cpu);
  const auto [at, is_new] = copies_.try_emplace(block.begin);
  if (is_new) {
    at->second = {device_.Allocate(block.bytes).value(), block.bytes};
    device_.CopyFromCpu(at->second.on_device, block.begin, block.bytes);
  }
  return static_cast<char*>(at->second.on_device) + (static_cast<const char*>(on_cpu) - block.begin);
}

Matrix CopyingOps::OnDevice(Matrix m) {
  m.data = At(m.data);
  return m;
}

ConstMatrix CopyingOps::OnDevice(ConstMatrix m) {
  m.data = At(m.data);
  return m;
}

Positions CopyingOps::OnDevice(Positions positions) {
  positions.begin = At(positions.begin);
  return positions;
}

NormStats CopyingOps::OnDevice(NormStats stats) { return {At(stats.mean), At(stats.rstd)}; }

NormParams CopyingOps::OnDevice(NormParams params) {
  params.weight = At(params.weight);
  params.bias = At(params.bias);
  return params;
}

AttentionShape CopyingOps::OnDevice(AttentionShape shape) {
  shape.documents = {At(shape.documents.begin), At(shape.documents.end)};
  return shape;
}

CachedAttentionArgs CopyingOps::OnDevice(CachedAttentionArgs args) {
  args.out = OnDevice(args.out);
  args.qkv = OnDevice(args.qkv);
  args.keys = At(args.keys);
  args.values = At(args.values);
  args.sequence_of = At(args.sequence_of);
  args.position_of = At(args.position_of);
  return args;
}

GemmArgs CopyingOps::OnDevice(GemmArgs args) {
  args.a = OnDevice(args.a);
  args.b = OnDevice(args.b);
  args.c = OnDevice(args.c);
  args.bias = At(args.bias);
  args.pre_gelu = OnDevice(args.pre_gelu);
  return args;
}

AdamWArgs CopyingOps::OnDevice(AdamWArgs args) {
  args.weight = At(args.weight);
  args.exp_avg = At(args.exp_avg);
  args.exp_avg_sq = At(args.exp_avg_sq);
  args.grad = At(args.grad);
  args.weight_bf16 = At(args.weight_bf16);
  return args;
}

LionArgs CopyingOps::OnDevice(LionArgs args) {
  args.weight = At(args.weight);
  args.exp_avg = At(args.exp_avg);
  args.grad = At(args.grad);
  args.weight_bf16 = At(args.weight_bf16);
  return args;
}

RouterShape CopyingOps::OnDevice(RouterShape shape) {
  shape.bias = At(shape.bias);
  return shape;
}

RouterOut CopyingOps::OnDevice(RouterOut out) {
  return {.scores = At(out.scores), .experts = At(out.experts), .weights = At(out.weights), .lse = At(out.lse)};
}

RouterBackwardArgs CopyingOps::OnDevice(RouterBackwardArgs args) {
  args.d_logits = OnDevice(args.d_logits);
  args.logits = OnDevice(args.logits);
  args.forward = OnDevice(args.forward);
  args.d_weights = At(args.d_weights);
  args.slope = At(args.slope);
  return args;
}

RouterReportArgs CopyingOps::OnDevice(RouterReportArgs args) {
  args.logits = OnDevice(args.logits);
  args.forward = OnDevice(args.forward);
  args.counts = At(args.counts);
  args.pooled = At(args.pooled);
  args.slope = At(args.slope);
  args.load = At(args.load);
  args.balance = At(args.balance);
  args.z = At(args.z);
  args.entropy = At(args.entropy);
  args.offsets = At(args.offsets);
  args.dropped = At(args.dropped);
  return args;
}

SortedChoices CopyingOps::OnDevice(SortedChoices choices) {
  return {At(choices.offsets), At(choices.choices), At(choices.slot_of), At(choices.counts)};
}

ExpertRows CopyingOps::OnDevice(ExpertRows rows) {
  rows.offsets = At(rows.offsets);
  rows.choices = At(rows.choices);
  rows.slot_of = At(rows.slot_of);
  return rows;
}

ExpertGemmArgs CopyingOps::OnDevice(ExpertGemmArgs args) {
  args.a = OnDevice(args.a);
  args.b = OnDevice(args.b);
  args.c = OnDevice(args.c);
  return args;
}

ExpertGradientArgs CopyingOps::OnDevice(ExpertGradientArgs args) {
  args.a = OnDevice(args.a);
  args.b = OnDevice(args.b);
  args.c = OnDevice(args.c);
  return args;
}

}  // namespace holdfast::kernels
