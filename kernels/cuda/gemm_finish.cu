#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/gemm_finish.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/sigmoid.cuh"

namespace holdfast::kernels {
namespace {

constexpr int kColumns = 256;  // of a block, one a thread

/// A matrix of either type.
struct AnyRows {
  void* data;
  bool is_bf16;
  int64_t stride;

  explicit AnyRows(const Matrix& m) : data(m.data), is_bf16(m.dtype == DType::kBF16), stride(m.stride) {}

  __device__ __forceinline__ float Load(int64_t row, int64_t column) const {
    const int64_t at = row * stride + column;
    return is_bf16 ? ToFloat(static_cast<const Bf16*>(data)[at]) : static_cast<const float*>(data)[at];
  }

  __device__ __forceinline__ void Store(int64_t row, int64_t column, float x) const {
    const int64_t at = row * stride + column;
    if (is_bf16) {
      static_cast<Bf16*>(data)[at] = FromFloat<Bf16>(x);
    } else {
      static_cast<float*>(data)[at] = x;
    }
  }
};

__global__ void FinishKernel(AnyRows c, bool add_c, AnyRows pre_gelu, Rows<const float> sums, const float* bias,
                             bool gelu, int64_t n, int64_t blocks_of_row) {
  const int64_t row = blockIdx.x / blocks_of_row, column = blockIdx.x % blocks_of_row * kColumns + threadIdx.x;
  if (column >= n) return;
  float x = sums.data == nullptr ? 0.0f : sums[row][column];
  if (add_c) x += c.Load(row, column);
  if (bias != nullptr) x += bias[column];
  if (gelu) {
    if (pre_gelu.data != nullptr) pre_gelu.Store(row, column, x);
    x = Gelu(x);
  }
  c.Store(row, column, x);
}

}  // namespace

void FinishGemm(CudaQueue& queue, const GemmArgs& args, ConstMatrix sums) {
  const bool add_c = args.accumulate && sums.data != args.c.data;
  const int64_t blocks_of_row = Blocks(args.c.cols, kColumns);
  Launch(queue, "Gemm", {.blocks = static_cast<unsigned>(args.c.rows * blocks_of_row), .threads = kColumns},
         FinishKernel, AnyRows(args.c), add_c, AnyRows(args.pre_gelu), RowsOf<const float>(sums), args.bias, args.gelu,
         args.c.cols, blocks_of_row);
}

bool HasKernelsForThisGpu(std::string& other_error) {
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, FinishKernel);
  if (error == cudaSuccess) return true;
  cudaGetLastError();  // is no error of what comes next
  // Which of the two it is differs with the version of CUDA.
  const bool has_none = error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction;
  if (!has_none) other_error = cudaGetErrorString(error);
  return false;
}

std::string NvccVersion() {
  return std::to_string(__CUDACC_VER_MAJOR__) + "." + std::to_string(__CUDACC_VER_MINOR__) + "." +
         std::to_string(__CUDACC_VER_BUILD__);
}

}  // namespace holdfast::kernels
