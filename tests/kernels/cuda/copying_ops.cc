#include "tests/kernels/cuda/copying_ops.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

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

void CopyingOps::CheckWords(const void* words, size_t bytes) {
  for (size_t at = 0; at + sizeof(void*) <= bytes; at += sizeof(void*)) {
    const void* word = nullptr;
    std::memcpy(&word, static_cast<const char*>(words) + at, sizeof(word));
    if (FindHostBlock(word).begin != nullptr) Die("was not copied to the device", word);
  }
}

Matrix CopyingOps::OnDevice(Matrix m) {
  Put(m.data);
  return m;
}

ConstMatrix CopyingOps::OnDevice(ConstMatrix m) {
  Put(m.data);
  return m;
}

Positions CopyingOps::OnDevice(Positions positions) {
  Put(positions.begin);
  return positions;
}

NormStats CopyingOps::OnDevice(NormStats stats) {
  Put(stats.mean, stats.rstd);
  return stats;
}

NormParams CopyingOps::OnDevice(NormParams params) {
  Put(params.weight, params.bias);
  return params;
}

AttentionShape CopyingOps::OnDevice(AttentionShape shape) {
  Put(shape.documents.begin, shape.documents.end);
  return shape;
}

CachedAttentionArgs CopyingOps::OnDevice(CachedAttentionArgs args) {
  Put(args.out, args.qkv, args.keys, args.values, args.sequence_of, args.position_of, args.lse);
  return args;
}

GemmArgs CopyingOps::OnDevice(GemmArgs args) {
  Put(args.a, args.b, args.c, args.bias, args.pre_gelu, args.gelu_input, args.a_sums);
  return args;
}

AdamWArgs CopyingOps::OnDevice(AdamWArgs args) {
  Put(args.weight, args.exp_avg, args.exp_avg_sq, args.grad, args.weight_bf16);
  return args;
}

LionArgs CopyingOps::OnDevice(LionArgs args) {
  Put(args.weight, args.exp_avg, args.grad, args.weight_bf16);
  return args;
}

ChunkDigestsArgs CopyingOps::OnDevice(ChunkDigestsArgs args) {
  Put(args.digests);
  for (const float*& plane : args.planes) Put(plane);
  return args;
}

RouterShape CopyingOps::OnDevice(RouterShape shape) {
  Put(shape.bias);
  return shape;
}

RouterOut CopyingOps::OnDevice(RouterOut out) {
  Put(out.scores, out.experts, out.weights, out.lse);
  return out;
}

RouterBackwardArgs CopyingOps::OnDevice(RouterBackwardArgs args) {
  Put(args.d_logits, args.logits, args.forward, args.d_weights, args.slope);
  return args;
}

RouterReportArgs CopyingOps::OnDevice(RouterReportArgs args) {
  Put(args.logits, args.forward, args.counts, args.pooled, args.slope, args.load, args.balance, args.z, args.entropy,
      args.offsets, args.dropped);
  return args;
}

SortedChoices CopyingOps::OnDevice(SortedChoices choices) {
  Put(choices.offsets, choices.choices, choices.slot_of, choices.counts);
  return choices;
}

ExpertRows CopyingOps::OnDevice(ExpertRows rows) {
  Put(rows.offsets, rows.choices, rows.slot_of);
  return rows;
}

ExpertGemmArgs CopyingOps::OnDevice(ExpertGemmArgs args) {
  Put(args.a, args.b, args.c, args.bias, args.bias_weights);
  return args;
}

ExpertGradientArgs CopyingOps::OnDevice(ExpertGradientArgs args) {
  Put(args.a, args.b, args.c);
  return args;
}

ExpertBiasBackwardArgs CopyingOps::OnDevice(ExpertBiasBackwardArgs args) {
  Put(args.d_out, args.weights, args.d_bias, args.bias, args.d_weights);
  return args;
}

}  // namespace holdfast::kernels
