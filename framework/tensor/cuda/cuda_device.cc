#include "framework/tensor/cuda_device.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_format.h"
#include "framework/base/format_bytes.h"
#include "framework/base/log.h"
#include "framework/base/out_of_memory.h"
#include "framework/base/status.h"
#include "framework/tensor/cuda/cuda_status.h"
#include "framework/tensor/cuda/cuda_stream.h"
#include "framework/tensor/gpu_peaks.h"
#include "kernels/cuda/attention_limits.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_finish.h"

namespace holdfast {
namespace {

constexpr double kGiB = 1 << 30;
constexpr int kLeastMajor = 8;  // compute capability

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, std::string name, std::string model, int multiprocessors, kernels::GemmTable gemm_table,
             std::function<void(const kernels::TunedGemm&)> on_tuned)
      : index_(index),
        name_(std::move(name)),
        model_(std::move(model)),
        multiprocessors_(multiprocessors),
        gemm_table_(std::move(gemm_table)),
        gemms_{.pinned = &gemm_table_, .on_tuned = std::move(on_tuned)} {}

  std::string name() const override { return name_; }
  // Attention has other bits on Hopper. cuBLASLt chooses by model, version and number of multiprocessors, which GPUs of
  // one name, or parts of one GPU, may have different ones of; our kernels don't depend on that number. Functions such
  // as exp are nvcc's, and so is what it makes of the rest.
  std::string arithmetic() const override {
    return absl::StrCat(model_, ", ", multiprocessors_, " multiprocessors, cuBLASLt ", GemmLibraryVersion(), ", nvcc ",
                        kernels::NvccVersion());
  }
  double peak_bf16_flops() const override { return PeakBf16Flops(model_); }

  absl::StatusOr<void*> Allocate(size_t bytes) override {
    cudaSetDevice(index_);
    void* data = nullptr;
    if (bytes == 0) bytes = 1;  // a buffer has an address
    const cudaError_t error = cudaMalloc(&data, bytes);
    if (error == cudaSuccess) return data;
    cudaGetLastError();  // is reported here
    if (error != cudaErrorMemoryAllocation) {
      EndIfLost("allocate memory of", error);
      return CudaStatus(error, "cannot allocate GPU memory");
    }
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    return absl::ResourceExhaustedError(absl::StrFormat(
        "out of GPU memory: %s wanted, %s of %s free on %s; use a smaller batch.microbatch_size, "
        "train.recompute: block, or more workers (parallel.sharding: full_shard), and see `holdfast validate` for what "
        "takes how much",
        FormatBytes(static_cast<double>(bytes)), FormatBytes(static_cast<double>(free)),
        FormatBytes(static_cast<double>(total)), name_));
  }
  void Free(void* data, size_t) override {
    cudaSetDevice(index_);
    cudaFree(data);
  }

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(StreamKind) override {
    return CudaStream::Create(index_, memory(), gemms_);
  }

  bool is_cpu() const override { return false; }
  bool IsDeviceOnly(const void* data) const override {
    if (data == nullptr) return false;
    cudaSetDevice(index_);  // else a thread's first question takes memory of GPU 0, for a context there
    cudaPointerAttributes attributes{};
    const cudaError_t error = cudaPointerGetAttributes(&attributes, data);
    if (error == cudaSuccess) return attributes.type == cudaMemoryTypeDevice;
    cudaGetLastError();  // is no error of what comes next
    EndIfLost("ask about memory of", error);
    return false;
  }

  void CopyToCpu(void* cpu, const void* device, size_t bytes) override {
    Copy(cpu, device, bytes, cudaMemcpyDeviceToHost);
  }
  void CopyFromCpu(void* device, const void* cpu, size_t bytes) override {
    Copy(device, cpu, bytes, cudaMemcpyHostToDevice);
  }

  absl::StatusOr<void*> AllocateCpu(size_t bytes) override {
    cudaSetDevice(index_);
    void* data = nullptr;
    const cudaError_t error = cudaMallocHost(&data, bytes == 0 ? 1 : bytes);
    if (error == cudaSuccess) return data;
    cudaGetLastError();  // is reported here
    if (error != cudaErrorMemoryAllocation) return CudaStatus(error, "cannot allocate pinned CPU memory");
    return OutOfMemoryError(
        absl::StrFormat("out of pinned CPU memory: %s wanted", FormatBytes(static_cast<double>(bytes))));
  }
  void FreeCpu(void* data) override {
    cudaSetDevice(index_);
    cudaFreeHost(data);
  }

 private:
  // After `error`: a GPU that has lost its context (a kernel's wild address, an uncorrectable error of its memory, a
  // GPU off the bus) fails in every call that this process will ever make, and what it held is lost. Another process
  // may do; this one would only fail in one world after the other.
  void EndIfLost(const char* what, cudaError_t error) const {
    const cudaError_t state = cudaStreamQuery(cudaStreamPerThread);
    cudaGetLastError();  // is no error of what comes next
    if (state == cudaSuccess || state == cudaErrorNotReady || state == cudaErrorMemoryAllocation) return;
    LogError("cannot ", what, " ", name_, ": ", cudaGetErrorString(error), "; this process cannot use it any more");
    std::abort();
  }

  // On a stream of the calling thread's own, so that it waits for nothing but itself. A GPU that cannot copy any more
  // has lost its context, and this process with it.
  void Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return;
    cudaSetDevice(index_);
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, cudaStreamPerThread);
    if (error == cudaSuccess) error = cudaStreamSynchronize(cudaStreamPerThread);
    if (error != cudaSuccess) {
      LogError("cannot copy from or to ", name_, ": ", cudaGetErrorString(error));
      std::abort();
    }
  }

  int index_;
  std::string name_, model_;
  int multiprocessors_;
  kernels::GemmTable gemm_table_;
  kernels::GemmChoice gemms_;
};

absl::StatusOr<cudaDeviceProp> PropertiesOf(int index) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    return absl::FailedPreconditionError(
        absl::StrCat("train.device: cuda: no GPU can be used here (", cudaGetErrorString(error), "); see nvidia-smi"));
  }
  if (index < 0 || index >= count) {
    return absl::FailedPreconditionError(
        absl::StrCat("train.device: cuda: there is no GPU ", index, ", only ", count, " of them"));
  }
  cudaDeviceProp properties{};
  RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&properties, index), "cannot ask the GPU"));
  return properties;
}

absl::Status NoKernelsFor(const cudaDeviceProp& properties) {
  return absl::FailedPreconditionError(
      absl::StrCat("there are no kernels for ", properties.name, ", of compute capability ", properties.major, ".",
                   properties.minor, ", in this build: build with -DCMAKE_CUDA_ARCHITECTURES for it (8.0 or newer)"));
}

absl::StatusOr<kernels::GemmTable> ReadTable(const CudaDeviceOptions& options) {
  kernels::GemmTable table;
  const std::string problem = options.gemm_table.empty() ? "" : table.Parse(options.gemm_table, GemmLibraryVersion());
  if (problem.empty()) return table;
  return absl::InvalidArgumentError(absl::StrCat("train.gemm_table: ", problem, "; make it anew with `holdfast tune`"));
}

std::string NameOf(int index, const cudaDeviceProp& properties) {
  return absl::StrFormat("cuda:%d (%s, %.0f GiB)", index, properties.name,
                         static_cast<double>(properties.totalGlobalMem) / kGiB);
}

/// The largest heads that GPUs with so much shared memory train; 0 if none.
int64_t LargestHeads(kernels::DType dtype, size_t shared_bytes) {
  constexpr int64_t kStep = 8;
  int64_t largest = 256;
  while (largest > 0 && kernels::AttentionSharedBytes(dtype, largest) > shared_bytes) largest -= kStep;
  return largest;
}

}  // namespace

int NumCudaDevices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

size_t GemmLibraryVersion() { return kernels::CublasLtVersion(); }

absl::StatusOr<std::string> CheckCudaDevice(int index, const CudaDeviceOptions& options) {
  ASSIGN_OR_RETURN(const cudaDeviceProp properties, PropertiesOf(index));
  if (properties.major < kLeastMajor) return NoKernelsFor(properties);
  RETURN_IF_ERROR(ReadTable(options).status());
  return NameOf(index, properties);
}

absl::Status CheckCudaHeads(int index, kernels::DType dtype, int64_t head_dim) {
  ASSIGN_OR_RETURN(const cudaDeviceProp properties, PropertiesOf(index));
  const size_t bytes = kernels::AttentionSharedBytes(dtype, head_dim), most = properties.sharedMemPerBlockOptin;
  if (bytes <= most) return absl::OkStatus();
  const auto kib = [](size_t n) { return (n + 1023) / 1024; };
  return absl::FailedPreconditionError(
      absl::StrCat("model.head_dim: a block of the kernel that trains attention with heads of ", head_dim, " takes ",
                   kib(bytes), " KiB of shared memory, of which ", NameOf(index, properties), " has ", kib(most),
                   " KiB: it trains heads of up to ", LargestHeads(kernels::DType::kBF16, most),
                   " with train.compute_dtype: bf16, and of up to ", LargestHeads(kernels::DType::kF32, most),
                   " with f32; take a GPU with more of it, or train.device: cpu"));
}

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int index, const CudaDeviceOptions& options) {
  ASSIGN_OR_RETURN(const cudaDeviceProp properties, PropertiesOf(index));
  RETURN_IF_ERROR(CudaStatus(cudaSetDevice(index), "cannot use the GPU"));
  if (properties.major < kLeastMajor) return NoKernelsFor(properties);
  if (std::string error; !kernels::HasKernelsForThisGpu(error)) {
    if (error.empty()) return NoKernelsFor(properties);
    return absl::InternalError(absl::StrCat("cannot load kernels on ", NameOf(index, properties), ": ", error));
  }
  ASSIGN_OR_RETURN(kernels::GemmTable table, ReadTable(options));
  return std::make_unique<CudaDevice>(index, NameOf(index, properties), properties.name, properties.multiProcessorCount,
                                      std::move(table), options.on_tuned);
}

}  // namespace holdfast
