#include "framework/tensor/cuda/cuda_stream.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "framework/base/format_bytes.h"
#include "framework/base/out_of_memory.h"
#include "framework/base/status.h"
#include "framework/tensor/cuda/cuda_status.h"

namespace holdfast {
namespace {

constexpr char kScratch[] = "kernel working memory";
constexpr size_t kLeastScratch = size_t{1} << 20;

}  // namespace

/// Events that are not in use; they outlive the stream with the last of them.
class CudaStream::Events {
 public:
  explicit Events(int device) : device_(device) {}
  ~Events() {
    cudaSetDevice(device_);
    for (const cudaEvent_t event : free_) cudaEventDestroy(event);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  int device() const { return device_; }
  cudaError_t Take(cudaEvent_t* event) {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        *event = free_.back();
        free_.pop_back();
        return cudaSuccess;
      }
    }
    return cudaEventCreateWithFlags(event, cudaEventDisableTiming | cudaEventBlockingSync);
  }
  void GiveBack(cudaEvent_t event) {
    const std::lock_guard lock(mutex_);
    free_.push_back(event);
  }

 private:
  const int device_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
};

class CudaStream::RecordedEvent final : public Event {
 public:
  RecordedEvent(std::shared_ptr<Events> events, cudaEvent_t event) : events_(std::move(events)), event_(event) {}
  ~RecordedEvent() override { events_->GiveBack(event_); }
  void Wait() override {
    cudaSetDevice(events_->device());
    cudaEventSynchronize(event_);  // an error of the work itself is the stream's to report
  }

 private:
  std::shared_ptr<Events> events_;
  cudaEvent_t event_;
};

CudaStream::CudaStream(int device, MemoryAccount& memory)
    : device_(device), memory_(memory), events_(std::make_shared<Events>(device)) {}

absl::StatusOr<std::unique_ptr<CudaStream>> CudaStream::Create(int device, MemoryAccount& memory,
                                                               const kernels::GemmChoice& gemms) {
  RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device), "cannot use the GPU"));
  std::unique_ptr<CudaStream> stream(new CudaStream(device, memory));
  RETURN_IF_ERROR(
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

// Grows in the first step only, in few steps if there is memory for that: each waits for the whole GPU. What is queued
// may be using the old memory, so it is freed when that is done.
void* CudaStream::Scratch(size_t bytes) {
  if (bytes <= scratch_bytes_) return scratch_;
  const size_t preferred = std::max({bytes, 2 * scratch_bytes_, kLeastScratch});
  cudaSetDevice(device_);
  if (scratch_ != nullptr) {
    cudaStreamSynchronize(stream_);
    FreeScratch();
  }
  cudaError_t error = cudaMalloc(&scratch_, preferred);
  if (error == cudaErrorMemoryAllocation && bytes < preferred) {
    cudaGetLastError();  // is no error of what comes next
    error = cudaMalloc(&scratch_, bytes);
  } else {
    bytes = preferred;
  }
  if (error != cudaSuccess) {
    cudaGetLastError();  // is reported here
    scratch_ = nullptr;
    if (failure_.empty()) lacks_memory_ = error == cudaErrorMemoryAllocation;
    Fail(kScratch, absl::StrFormat("%s, %s wanted; the largest holders are: %s", cudaGetErrorString(error),
                                   FormatBytes(static_cast<double>(bytes)), memory_.LargestHolders())
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
  if (failure_.empty()) return absl::OkStatus();
  return lacks_memory_ ? OutOfMemoryError(failure_) : absl::InternalError(failure_);
}

void CudaStream::CopyToCpu(void* cpu, const void* device, size_t bytes) {
  if (bytes == 0) return;
  const cudaError_t error = cudaMemcpyAsync(cpu, device, bytes, cudaMemcpyDeviceToHost, stream());
  if (error != cudaSuccess) Fail("a copy to the CPU", cudaGetErrorString(error));
}

std::shared_ptr<Event> CudaStream::Record() {
  cudaSetDevice(device_);
  cudaEvent_t event = nullptr;
  cudaError_t error = events_->Take(&event);
  std::shared_ptr<Event> recorded;
  if (error == cudaSuccess) {
    recorded = std::make_shared<RecordedEvent>(events_, event);
    error = cudaEventRecord(event, stream_);
  }
  if (error == cudaSuccess) return recorded;
  Fail("an event", cudaGetErrorString(error));
  return nullptr;
}

}  // namespace holdfast
