// How close each kernel comes to what the GPU could do at most, in the shapes of GPT-2 124M, 1558M and Llama 3.2 1B.
//
//   kernels_gpu_bench [--quick] [--filter TEXT] [--gemm-table FILE] [--out FILE]
//
// Every call is timed by itself, by events of its stream: median, and what a tenth of the calls took less or more than.
// Before each call the L2 cache is filled with other data, which does not have to be written back. "of most": the least
// time that the call's operations, or the bytes it has to move, can take on this GPU by its data sheet, over the
// median; "-" on a GPU that is not in the table (figures.cc). "expected": what was foretold of that in
// tests/bench/NOTES.md. FILE gets one JSON object a case.

#include <cuda_runtime_api.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"
#include "framework/tensor/cuda/cuda_status.h"
#include "framework/tensor/cuda_device.h"
#include "kernels/cuda/cuda_queue.h"
#include "tests/bench/gpu/figures.h"

namespace holdfast::kernels {
namespace {

struct Arguments {
  bool quick = false;
  std::string filter, gemm_table, out;
};

/// A stream of the GPU that can be timed.
class Queue final : public CudaQueue {
 public:
  static absl::StatusOr<std::unique_ptr<Queue>> Create(const GemmTable& table) {
    cudaDeviceProp properties{};
    RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&properties, 0), "cannot ask the GPU"));
    auto queue = std::unique_ptr<Queue>(new Queue(properties));
    RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&queue->stream_, cudaStreamNonBlocking), "no stream"));
    RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&queue->begin_), "no event"));
    RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&queue->end_), "no event"));
    // Twice the cache, so that nothing of a call's operands is left in it; and as much again.
    queue->flush_bytes_ = 2 * static_cast<size_t>(std::max(properties.l2CacheSize, 1 << 20));
    RETURN_IF_ERROR(
        CudaStatus(cudaMalloc(&queue->flush_, 2 * queue->flush_bytes_), "no memory to flush the cache with"));
    RETURN_IF_ERROR(CudaStatus(cudaMemset(queue->flush_, 0, 2 * queue->flush_bytes_), "cannot fill the cache"));
    queue->ops_ = MakeCudaOps(*queue, {.pinned = &table});
    return queue;
  }
  ~Queue() override {
    cudaStreamSynchronize(stream_);
    ops_.reset();
    cudaFree(scratch_);
    cudaFree(flush_);
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaStreamDestroy(stream_);
  }
  Queue(const Queue&) = delete;

  Ops& ops() { return *ops_; }
  const std::string& gpu() const { return gpu_; }

  absl::Status Synchronize() {
    if (!failure_.empty()) return absl::InternalError(failure_);
    return CudaStatus(cudaStreamSynchronize(stream_), "a kernel failed");
  }

  /// Seconds of `call` with nothing of its operands in the cache. While the cache is filled the processor queues the
  /// call, so its launch is not waited for.
  absl::StatusOr<double> Time(const std::function<void(Ops&)>& call) {
    RETURN_IF_ERROR(FlushCache());
    RETURN_IF_ERROR(CudaStatus(cudaEventRecord(begin_, stream_), "no event"));
    call(*ops_);
    RETURN_IF_ERROR(CudaStatus(cudaEventRecord(end_, stream_), "no event"));
    RETURN_IF_ERROR(Synchronize());
    float milliseconds = 0;
    RETURN_IF_ERROR(CudaStatus(cudaEventElapsedTime(&milliseconds, begin_, end_), "no time"));
    return static_cast<double>(milliseconds) / 1e3;
  }

  CUstream_st* stream() const override { return stream_; }
  void* Scratch(size_t bytes) override {
    if (bytes <= scratch_bytes_) return scratch_;
    cudaStreamSynchronize(stream_);
    cudaFree(scratch_);
    scratch_ = nullptr;
    scratch_bytes_ = bytes;
    if (cudaMalloc(&scratch_, bytes) == cudaSuccess) return scratch_;
    scratch_bytes_ = 0;
    Fail("working memory", "out of GPU memory");
    return nullptr;
  }
  void Fail(const char* operation, const char* cause) override {
    if (failure_.empty()) failure_ = absl::StrCat(operation, " failed on the GPU: ", cause);
  }

 private:
  explicit Queue(const cudaDeviceProp& properties) : gpu_(properties.name) {}

  /// What is written replaces all that the cache holds, and what is read replaces what the call would have to wait for
  /// to be written back.
  absl::Status FlushCache() {
    RETURN_IF_ERROR(CudaStatus(cudaMemsetAsync(flush_, 1, flush_bytes_, stream_), "cannot fill the cache"));
    constexpr int64_t kChunk = 1 << 16;
    const auto* const read = reinterpret_cast<const float*>(static_cast<const char*>(flush_) + flush_bytes_);
    std::vector<int64_t> offsets;
    for (size_t at = 0; at <= flush_bytes_ / sizeof(float); at += kChunk) offsets.push_back(static_cast<int64_t>(at));
    ops_->ChunkSumSquares(static_cast<double*>(flush_), read, offsets.data(), std::ssize(offsets) - 1);
    return absl::OkStatus();
  }

  std::string gpu_, failure_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  void *flush_ = nullptr, *scratch_ = nullptr;
  size_t flush_bytes_ = 0, scratch_bytes_ = 0;
  std::unique_ptr<Ops> ops_;
};

/// GPU memory of one case; the first failure is kept.
class GpuOperands final : public Operands {
 public:
  GpuOperands(Device& device, Ops& ops) : device_(device), ops_(ops) {
    noise_ = static_cast<float*>(Allocate(kNoise * sizeof(float)));
    if (noise_ != nullptr) ops_.FillNormal(noise_, kNoise, 0, 1.0f, {.seed = 1});
  }
  ~GpuOperands() override {
    for (const auto& [data, bytes] : blocks_) device_.Free(data, bytes);
  }
  GpuOperands(const GpuOperands&) = delete;

  const absl::Status& status() const { return status_; }

  using Operands::New;
  Matrix New(DType dtype, int64_t rows, int64_t cols, int64_t stride) override {
    if (stride == 0) stride = cols;
    const int64_t n = rows * stride;
    auto* const data = static_cast<char*>(Allocate(static_cast<size_t>(n) * SizeOf(dtype)));
    for (int64_t i = 0; data != nullptr && i < n; i += kNoise) {
      const int64_t here = std::min(kNoise, n - i);
      char* const to = data + static_cast<size_t>(i) * SizeOf(dtype);
      if (dtype == DType::kBF16) ops_.CastToBf16(reinterpret_cast<uint16_t*>(to), noise_, here);
      if (dtype == DType::kF32) ops_.Copy(to, noise_, static_cast<size_t>(here) * sizeof(float));
    }
    return {data, dtype, rows, cols, stride};
  }
  const int32_t* Copy(const std::vector<int32_t>& values) override {
    const size_t bytes = values.size() * sizeof(int32_t);
    void* const data = Allocate(bytes);
    if (data != nullptr) device_.CopyFromCpu(data, values.data(), bytes);
    return static_cast<const int32_t*>(data);
  }

 private:
  static constexpr int64_t kNoise = int64_t{1} << 24;

  void* Allocate(size_t bytes) {
    if (!status_.ok()) return nullptr;
    const auto data = device_.Allocate(bytes);
    status_ = data.status();
    if (!data.ok()) return nullptr;
    blocks_.emplace_back(*data, bytes);
    return *data;
  }

  Device& device_;
  Ops& ops_;
  absl::Status status_;
  float* noise_ = nullptr;
  std::vector<std::pair<void*, size_t>> blocks_;
};

absl::StatusOr<Timing> Measure(const KernelCase& c, Device& device, Queue& queue, int calls) {
  constexpr int kWarmUp = 3;
  GpuOperands operands(device, queue.ops());
  const Prepared prepared = c.prepare(operands);
  RETURN_IF_ERROR(operands.status());
  if (prepared.before != nullptr) prepared.before(queue.ops());
  std::vector<double> seconds;
  for (int i = 0; i < kWarmUp + calls; ++i) {
    ASSIGN_OR_RETURN(const double time, queue.Time(prepared.call));
    if (i >= kWarmUp) seconds.push_back(time);
  }
  return TimingOf(std::move(seconds));
}

absl::StatusOr<GemmTable> ReadTable(const std::string& path) {
  GemmTable table;
  if (path.empty()) return table;
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot open ", path));
  std::ostringstream text;
  text << file.rdbuf();
  const std::string problem = table.Parse(text.str(), GemmLibraryVersion());
  if (!problem.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", problem));
  return table;
}

absl::Status Run(const Arguments& arguments) {
  const std::vector<KernelCase> cases = Filtered(KernelCases(), arguments.filter);
  if (cases.empty())
    return absl::InvalidArgumentError(absl::StrCat("no case has '", arguments.filter, "' in its name"));
  ASSIGN_OR_RETURN(const GemmTable table, ReadTable(arguments.gemm_table));
  if (NumCudaDevices() == 0) return absl::FailedPreconditionError("no GPU can be used here; see nvidia-smi");
  ASSIGN_OR_RETURN(const auto device, MakeCudaDevice(0));
  ASSIGN_OR_RETURN(const auto queue, Queue::Create(table));
  std::ofstream out;
  if (!arguments.out.empty()) out.open(arguments.out);
  if (!arguments.out.empty() && !out) return absl::InvalidArgumentError(absl::StrCat("cannot write ", arguments.out));
  const DevicePeaks peaks = PeaksOf(queue->gpu());
  std::printf("%s\n%s", device->name().c_str(), TableHead().c_str());
  for (const KernelCase& c : cases) {
    ASSIGN_OR_RETURN(const Timing timing, Measure(c, *device, *queue, arguments.quick ? 5 : 30));
    std::fputs(TableRow(c, timing, peaks).c_str(), stdout);
    std::fflush(stdout);
    if (out.is_open()) out << JsonLine(c, timing, peaks, queue->gpu()) << std::endl;
  }
  if (out.is_open() && !out) return absl::DataLossError(absl::StrCat("cannot write ", arguments.out));
  return absl::OkStatus();
}

}  // namespace
}  // namespace holdfast::kernels

int main(int argc, char** argv) {
  holdfast::kernels::Arguments arguments;
  CLI::App app("Times each CUDA kernel against what the GPU could do at most.");
  app.add_flag("--quick", arguments.quick, "five calls a case instead of thirty");
  app.add_option("--filter", arguments.filter, "only cases with this text in their names");
  app.add_option("--gemm-table", arguments.gemm_table, "algorithms of matrix products, from `holdfast tune`");
  app.add_option("--out", arguments.out, "file for one JSON object a case");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = holdfast::kernels::Run(arguments);
  if (status.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  return 1;
}
