// Flat vectors: add, zero, copy, cast, sums of squares.

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"

namespace holdfast::kernels {
namespace {

constexpr int64_t kPerThread = 4;
constexpr int64_t kPerBlock = 256 * kPerThread;

/// Calls op(i) for this thread's elements of [0, n).
template <typename Op>
__device__ __forceinline__ void ForEachElement(int64_t n, Op op) {
  const int64_t first = blockIdx.x * kPerBlock + threadIdx.x;
#pragma unroll
  for (int64_t k = 0; k < kPerThread; ++k) {
    const int64_t i = first + k * blockDim.x;
    if (i < n) op(i);
  }
}

__global__ void AddKernel(float* a, const float* b, int64_t n) {
  ForEachElement(n, [&](int64_t i) { a[i] += b[i]; });
}

__global__ void AxpbyKernel(float* out, float alpha, const float* x, float beta, const float* y, int64_t n) {
  ForEachElement(n, [&](int64_t i) { out[i] = fmaf(alpha, x[i], beta * y[i]); });
}

__global__ void CastToBf16Kernel(Bf16* out, const float* in, int64_t n) {
  ForEachElement(n, [&](int64_t i) { out[i] = FromFloat<Bf16>(in[i]); });
}

constexpr int kSquareThreads = 256;
constexpr int kValuesAhead = 16;  // of a thread, loaded while as many are added: 16 KiB on their way to a block

/// Of one launch, as an argument of the kernel: 4 KiB of arguments is what every driver takes.
constexpr int kMaxChunks = 496;
struct ChunkOffsets {
  int64_t at[kMaxChunks + 1];
};

/// Zeros beyond the end, which change no sum of squares.
__device__ __forceinline__ void LoadAhead(float (&values)[kValuesAhead], const float* x, int64_t first, int64_t end) {
#pragma unroll
  for (int k = 0; k < kValuesAhead; ++k) {
    const int64_t at = first + k * kSquareThreads;
    values[k] = at < end ? x[at] : 0.0f;
  }
}

// One block a chunk. Thread t squares and adds values t, t + 256, ... one after the other in fp64, then the block's
// sums are added.
__global__ void __launch_bounds__(kSquareThreads)
    ChunkSumSquaresKernel(double* sums, const float* x, ChunkOffsets offsets) {
  constexpr int64_t kStep = kValuesAhead * kSquareThreads;
  const int64_t end = offsets.at[blockIdx.x + 1];
  int64_t at = offsets.at[blockIdx.x] + threadIdx.x;
  double sum = 0;
  float next[kValuesAhead];
  LoadAhead(next, x, at, end);
  for (; at < end; at += kStep) {
    float values[kValuesAhead];
#pragma unroll
    for (int k = 0; k < kValuesAhead; ++k) values[k] = next[k];
    LoadAhead(next, x, at + kStep, end);
#pragma unroll
    for (int k = 0; k < kValuesAhead; ++k) {
      const double value = values[k];
      sum = fma(value, value, sum);
    }
  }
  sum = BlockReduce(sum, 0.0, Plus());
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

}  // namespace

void CudaOps::Add(float* a, const float* b, int64_t n) {
  Launch(queue_, "Add", {.blocks = Blocks(n, kPerBlock)}, AddKernel, a, b, n);
}

void CudaOps::Axpby(float* out, float alpha, const float* x, float beta, const float* y, int64_t n) {
  Launch(queue_, "Axpby", {.blocks = Blocks(n, kPerBlock)}, AxpbyKernel, out, alpha, x, beta, y, n);
}

void CudaOps::CastToBf16(uint16_t* out, const float* in, int64_t n) {
  Launch(queue_, "CastToBf16", {.blocks = Blocks(n, kPerBlock)}, CastToBf16Kernel, reinterpret_cast<Bf16*>(out), in, n);
}

void CudaOps::Zero(void* data, size_t bytes) {
  const cudaError_t error = cudaMemsetAsync(data, 0, bytes, queue_.stream());
  if (error != cudaSuccess) queue_.Fail("Zero", cudaGetErrorString(error));
}

void CudaOps::Copy(void* out, const void* in, size_t bytes) {
  const cudaError_t error = cudaMemcpyAsync(out, in, bytes, cudaMemcpyDeviceToDevice, queue_.stream());
  if (error != cudaSuccess) queue_.Fail("Copy", cudaGetErrorString(error));
}

void CudaOps::ChunkSumSquares(double* sums, const float* x, const int64_t* offsets, int64_t num_chunks) {
  for (int64_t first = 0; first < num_chunks; first += kMaxChunks) {
    const int64_t count = std::min<int64_t>(kMaxChunks, num_chunks - first);
    ChunkOffsets here = {};
    std::copy_n(offsets + first, count + 1, here.at);
    Launch(queue_, "ChunkSumSquares", {.blocks = Blocks(count, 1), .threads = kSquareThreads}, ChunkSumSquaresKernel,
           sums + first, x, here);
  }
}

std::unique_ptr<Ops> MakeCudaOps(CudaQueue& queue, const GemmChoice& gemms) {
  return std::make_unique<CudaOps>(queue, gemms);
}

}  // namespace holdfast::kernels
