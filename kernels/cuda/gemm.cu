#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_finish.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/gemm_table.h"
#include "kernels/cuda/launch.cuh"

namespace holdfast::kernels {
namespace {

constexpr size_t kMostPlans = 4096;  // more kinds of product than any model has; beyond it the cache starts anew

size_t AlignUp(size_t bytes) { return (bytes + 255) / 256 * 256; }

__global__ void RoundKernel(Bf16* out, const float* in, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) out[i] = FromFloat<Bf16>(in[i]);
}

int64_t DepthOf(const GemmArgs& args) { return args.transpose_a ? args.a.rows : args.a.cols; }

/// The product into `c`, with nothing done to it but adding.
GemmShape ShapeOfProduct(const GemmArgs& args, const ConstMatrix& c) {
  GemmShape shape;
  shape.m = c.rows, shape.n = c.cols, shape.k = DepthOf(args);
  shape.transpose_a = args.transpose_a, shape.transpose_b = args.transpose_b;
  shape.in = args.a.dtype, shape.out = c.dtype;
  shape.accumulate = args.accumulate;
  shape.a_stride = args.a.stride, shape.b_stride = args.b.stride, shape.c_stride = c.stride;
  shape.a_alignment = GemmAlignmentOf(args.a.data), shape.b_alignment = GemmAlignmentOf(args.b.data);
  shape.c_alignment = GemmAlignmentOf(c.data);
  return shape;
}

/// Product, bias and GELU in one.
GemmShape ShapeOfAll(const GemmArgs& args) {
  GemmShape shape = ShapeOfProduct(args, args.c);
  shape.bias = args.bias != nullptr;
  shape.bias_alignment = !shape.bias ? 0 : shape.out == DType::kBF16 ? 16 : GemmAlignmentOf(args.bias);
  shape.gelu = args.gelu;
  shape.pre_gelu = args.gelu && args.pre_gelu.data != nullptr;
  if (shape.pre_gelu) {
    shape.pre_gelu_stride = args.pre_gelu.stride;
    shape.pre_gelu_alignment = GemmAlignmentOf(args.pre_gelu.data);
  }
  return shape;
}

/// Whether to ask cuBLASLt for all in one. It writes fp32 products of bf16 but no bf16 ones of fp32; for GELU it may
/// use the GPU's approximate tanh, which bf16 hides and fp32 would not.
bool MayFuse(const GemmShape& shape, DType pre_gelu) {
  if (shape.in == DType::kF32 && shape.out == DType::kBF16) return false;
  if (shape.gelu && shape.out != DType::kBF16) return false;
  if (!shape.pre_gelu) return true;
  return pre_gelu == shape.out && shape.pre_gelu_stride % 8 == 0 && shape.pre_gelu_alignment == 16;
}

class CublasLtGemm final : public CudaGemm {
 public:
  CublasLtGemm(CudaQueue& queue, const GemmTable* pinned) : queue_(queue), pinned_(pinned) {
    if (!Succeeded(cublasLtCreate(&handle_))) handle_ = nullptr;
  }
  ~CublasLtGemm() override {
    if (handle_ != nullptr) cublasLtDestroy(handle_);
  }
  CublasLtGemm(const CublasLtGemm&) = delete;

  void Run(const GemmArgs& args) override {
    if (handle_ == nullptr || args.c.rows <= 0 || args.c.cols <= 0) return;
    if (DepthOf(args) <= 0) return FinishGemm(queue_, args, {});
    const GemmShape all = ShapeOfAll(args);
    GemmPlan* const plan = MayFuse(all, args.pre_gelu.dtype) ? Find(all) : nullptr;
    if (plan != nullptr && plan->runnable()) return RunFused(*plan, args);
    RunInSteps(args);
  }

  /// As TuneGemm.
  void Tune(const GemmArgs& args, GemmTable& table);

 private:
  bool Succeeded(cublasStatus_t status) {
    if (status != CUBLAS_STATUS_SUCCESS) queue_.Fail("Gemm", cublasLtGetStatusString(status));
    return status == CUBLAS_STATUS_SUCCESS;
  }

  /// The plan with its algorithm; not runnable if there is none. A pinned one that does not fit is a failure: another
  /// would break the agreement with the other ranks.
  GemmPlan* Find(const GemmShape& shape) {
    const auto found = plans_.find(shape);
    if (found != plans_.end()) return &found->second;
    if (plans_.size() >= kMostPlans) plans_.clear();
    GemmPlan& plan = plans_.try_emplace(shape, shape).first->second;
    if (const GemmAlgorithm* pinned = pinned_ == nullptr ? nullptr : pinned_->Find(shape.Name())) {
      if (!plan.TakeChecked(handle_, *pinned)) queue_.Fail("Gemm", "a pinned algorithm does not fit its product");
      return &plan;
    }
    const std::vector<GemmAlgorithm> proposals = plan.Propose(handle_, 1);
    if (!proposals.empty()) plan.Take(proposals.front());
    return &plan;
  }

  void RunFused(GemmPlan& plan, const GemmArgs& args) {
    const bool round_bias = args.bias != nullptr && args.c.dtype == DType::kBF16;
    const size_t bias_bytes = round_bias ? AlignUp(static_cast<size_t>(args.c.cols) * sizeof(Bf16)) : 0;
    auto* const scratch = static_cast<char*>(queue_.Scratch(bias_bytes + kGemmWorkspaceBytes));
    if (scratch == nullptr) return;
    const void* bias = args.bias;
    if (round_bias) {
      Launch(queue_, "Gemm", {.blocks = Blocks(args.c.cols, 256)}, RoundKernel, reinterpret_cast<Bf16*>(scratch),
             args.bias, args.c.cols);
      bias = scratch;
    }
    Succeeded(plan.Run(handle_, {args.a.data, args.b.data, args.c.data, bias, args.pre_gelu.data}, scratch + bias_bytes,
                       queue_.stream()));
  }

  /// The sums go to a fp32 matrix, so that they are rounded once: c or pre_gelu if it is one, or scratch memory.
  void RunInSteps(const GemmArgs& args) {
    const bool keeps = args.gelu && args.pre_gelu.data != nullptr;
    Matrix sums = args.c.dtype == DType::kF32 ? args.c : keeps ? args.pre_gelu : Matrix{};
    size_t sums_bytes = 0;
    if (sums.data == nullptr || sums.dtype != DType::kF32) {
      sums = {nullptr, DType::kF32, args.c.rows, args.c.cols, args.c.cols};
      sums_bytes = AlignUp(static_cast<size_t>(sums.rows * sums.cols) * sizeof(float));
    }
    auto* const scratch = static_cast<char*>(queue_.Scratch(sums_bytes + kGemmWorkspaceBytes));
    if (scratch == nullptr) return;
    if (sums_bytes > 0) sums.data = scratch;
    GemmPlan* plan = Find(ShapeOfProduct(args, sums));
    if (!plan->runnable()) return queue_.Fail("Gemm", "cuBLASLt has no algorithm for this product");
    if (!Succeeded(plan->Run(handle_, {args.a.data, args.b.data, sums.data}, scratch + sums_bytes, queue_.stream()))) {
      return;
    }
    if (sums.data != args.c.data || args.bias != nullptr || args.gelu) FinishGemm(queue_, args, sums);
  }

  CudaQueue& queue_;
  const GemmTable* pinned_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<GemmShape, GemmPlan> plans_;
};

/// Milliseconds of one run, the least of several; infinite if it failed.
float Time(CudaQueue& queue, const std::vector<cudaEvent_t>& events, GemmPlan& plan, cublasLtHandle_t handle,
           const GemmPointers& at, void* workspace) {
  constexpr float kFailed = std::numeric_limits<float>::infinity();
  for (const cudaEvent_t event : events) {
    if (plan.Run(handle, at, workspace, queue.stream()) != CUBLAS_STATUS_SUCCESS) return kFailed;
    if (cudaEventRecord(event, queue.stream()) != cudaSuccess) return kFailed;
  }
  float least = kFailed;
  for (size_t i = 1; i < events.size(); ++i) {
    float milliseconds = kFailed;
    if (cudaEventSynchronize(events[i]) != cudaSuccess ||
        cudaEventElapsedTime(&milliseconds, events[i - 1], events[i]) != cudaSuccess) {
      return kFailed;
    }
    least = std::min(least, milliseconds);
  }
  return least;
}

void CublasLtGemm::Tune(const GemmArgs& args, GemmTable& table) {
  constexpr int kCandidates = 16, kEvents = 12;
  if (handle_ == nullptr || args.c.rows <= 0 || args.c.cols <= 0 || DepthOf(args) <= 0) return;
  GemmShape shape = ShapeOfAll(args);
  GemmPlan plan(shape);
  std::vector<GemmAlgorithm> candidates;
  if (MayFuse(shape, args.pre_gelu.dtype)) candidates = plan.Propose(handle_, kCandidates);
  if (candidates.empty()) return;  // done in steps: rare sizes, not worth tuning
  const size_t bias_bytes = AlignUp(static_cast<size_t>(args.c.cols) * sizeof(float));
  auto* const scratch = static_cast<char*>(queue_.Scratch(bias_bytes + kGemmWorkspaceBytes));
  if (scratch == nullptr) return;
  const GemmPointers at = {args.a.data, args.b.data, args.c.data,
                           shape.out == DType::kBF16 ? scratch : static_cast<const void*>(args.bias),
                           args.pre_gelu.data};
  std::vector<cudaEvent_t> events(kEvents);
  for (cudaEvent_t& event : events) {
    if (cudaEventCreate(&event) != cudaSuccess) return queue_.Fail("TuneGemm", "no event");
  }
  float least = std::numeric_limits<float>::infinity();
  for (const GemmAlgorithm& candidate : candidates) {
    plan.Take(candidate);
    const float milliseconds = Time(queue_, events, plan, handle_, at, scratch + bias_bytes);
    if (milliseconds >= least) continue;
    least = milliseconds;
    table.Pin(shape.Name(), candidate);
  }
  for (const cudaEvent_t event : events) cudaEventDestroy(event);
}

}  // namespace

std::unique_ptr<CudaGemm> MakeCudaGemm(CudaQueue& queue, const GemmTable* pinned) {
  return std::make_unique<CublasLtGemm>(queue, pinned);
}

void TuneGemm(CudaQueue& queue, const GemmArgs& args, GemmTable& table) {
  CublasLtGemm(queue, nullptr).Tune(args, table);
}

}  // namespace holdfast::kernels
