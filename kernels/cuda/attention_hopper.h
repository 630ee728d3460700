#pragma once
// Attention by instructions that only GPUs of compute capability 9.0 have.

namespace holdfast::kernels {

class CudaQueue;
struct AttentionBackwardCall;
struct AttentionForwardCall;

/// Whether the queue's GPU has them, and this build kernels of them. The queue fails if there is too little memory to
/// load them: others would give other bits.
bool HasHopperAttention(CudaQueue& queue);

/// Heads of 64 or 128 of what FitsTensorCores.
constexpr bool FitsHopper(int head_dim) { return head_dim == 64 || head_dim == 128; }
void AttentionForwardHopper(CudaQueue& queue, const AttentionForwardCall& call);
void AttentionBackwardHopper(CudaQueue& queue, const AttentionBackwardCall& call);

}  // namespace holdfast::kernels
