#include "framework/tensor/cuda/cuda_stream.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "framework/base/status.h"
#include "framework/tensor/cuda/cuda_status.h"

namespace holdfast {
namespace {

constexpr char kScratch[] = "kernel working memory";

class CudaEvent final : public Event {
 public:
  CudaEvent(int device, cudaEvent_t event) : device_(device), event_(event) {}
  ~CudaEvent() override {
    cudaSetDevice(device_);
    cudaEventDestroy(event_);
  }
  void Wait() override {
    cudaSetDevice(device_);
    cudaEventSynchronize(event_);  // an error of the work itself is the stream's to report
  }

 private:
  int device_;
  cudaEvent_t event_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CudaStream>> CudaStream::Create(int device, MemoryAccount& memory,
                                                               const kernels::GemmChoice& gemms) {
  int multiprocessors = 0;
  HF_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device), "cannot use the GPU"));
  HF_RETURN_IF_ERROR(CudaStatus(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
                                "cannot ask the GPU"));
  std::unique_ptr<CudaStream> stream(new CudaStream(device, multiprocessors, memory));
  HF_RETURN_IF_ERROR(
      CudaStatus(cudaStreamCreateWithFlags(&stream->stream_, cudaStreamNonBlocking), "cannot create a CUDA stream"));
  stream->ops_ = kernels::MakeCudaOps(*stream, gemms);
  if (!stream->failure_.empty()) return absl::InternalError(stream->failure_);
  return stream;
}

CudaStream::~CudaStream() {
  if (stream_ == nullptr) return;
  cudaSetDevice(device_);
  cudaStreamSynchronize(stream_);
  ops_.reset();
  FreeScratch();
  cudaStreamDestroy(stream_);
}

// A thread has a current device, and kernels go to the stream's only if that is its own.
CUstream_st* CudaStream::stream() const {
  cudaSetDevice(device_);
  return stream_;
}

// Grows in the first step only. What is queued may be using the old memory, so it is freed when that is done.
void* CudaStream::Scratch(size_t bytes) {
  if (bytes <= scratch_bytes_) return scratch_;
  cudaSetDevice(device_);
  if (scratch_ != nullptr) {
    cudaStreamSynchronize(stream_);
    FreeScratch();
  }
  const cudaError_t error = cudaMalloc(&scratch_, bytes);
  if (error != cudaSuccess) {
    cudaGetLastError();  // is reported here
    scratch_ = nullptr;
    Fail(kScratch, absl::StrFormat("%s, %.2f GiB wanted; the largest holders are: %s", cudaGetErrorString(error),
                                   static_cast<double>(bytes) / (1 << 30), memory_.LargestHolders())
                       .c_str());
    return nullptr;
  }
  scratch_bytes_ = bytes;
  memory_.Take(kScratch, bytes);
  return scratch_;
}

void CudaStream::FreeScratch() {
  cudaFree(scratch_);
  memory_.GiveBack(kScratch, scratch_bytes_);
  scratch_ = nullptr;
  scratch_bytes_ = 0;
}

void CudaStream::Fail(const char* operation, const char* cause) {
  if (failure_.empty()) failure_ = absl::StrCat(operation, " failed on the GPU: ", cause);
}

absl::Status CudaStream::Synchronize() {
  cudaSetDevice(device_);
  const cudaError_t error = cudaStreamSynchronize(stream_);
  if (error != cudaSuccess) Fail("a kernel", cudaGetErrorString(error));
  return failure_.empty() ? absl::OkStatus() : absl::InternalError(failure_);
}

std::shared_ptr<Event> CudaStream::Record() {
  cudaSetDevice(device_);
  cudaEvent_t event = nullptr;
  cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync);
  if (error == cudaSuccess) error = cudaEventRecord(event, stream_);
  if (error != cudaSuccess) {
    Fail("an event", cudaGetErrorString(error));
    return nullptr;
  }
  return std::make_shared<CudaEvent>(device_, event);
}

}  // namespace holdfast
