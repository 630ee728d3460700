#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_finish.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/launch.cuh"

namespace holdfast::kernels {
namespace {

constexpr size_t kMaxPlans = 4096;  // more kinds of product than any model has; beyond it the cache starts anew

size_t AlignUp(size_t bytes) { return (bytes + 255) / 256 * 256; }

__global__ void RoundKernel(Bf16* out, const float* in, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) out[i] = FromFloat<Bf16>(in[i]);
}

int64_t DepthOf(const GemmArgs& args) { return args.transpose_a ? args.a.rows : args.a.cols; }

/// The product into `c`, with nothing done to it but adding, if it is args.c.
GemmShape ShapeOfProduct(const GemmArgs& args, const ConstMatrix& c) {
  GemmShape shape;
  shape.m = c.rows, shape.n = c.cols, shape.k = DepthOf(args);
  shape.transpose_a = args.transpose_a, shape.transpose_b = args.transpose_b;
  shape.in = args.a.dtype, shape.out = c.dtype;
  shape.accumulate = args.accumulate && c.data == args.c.data;
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

/// Between the runs of a product, to time them.
class RunEvents {
 public:
  RunEvents() {
    for (Event& event : events_) {
      cudaEvent_t created = nullptr;
      if (cudaEventCreate(&created) == cudaSuccess) event.reset(created);
    }
  }

  /// Milliseconds of one run, the least of several; infinite if it failed. The first run only warms up.
  float Time(const CudaQueue& queue, GemmPlan& plan, cublasLtHandle_t handle, const GemmPointers& at, void* workspace) {
    constexpr float kFailed = std::numeric_limits<float>::infinity();
    for (const Event& event : events_) {
      if (plan.Run(handle, at, workspace, queue.stream()) != CUBLAS_STATUS_SUCCESS) return kFailed;
      if (cudaEventRecord(event.get(), queue.stream()) != cudaSuccess) return kFailed;
    }
    float least = kFailed;
    for (size_t i = 1; i < events_.size(); ++i) {
      float milliseconds = kFailed;
      if (cudaEventSynchronize(events_[i].get()) != cudaSuccess ||
          cudaEventElapsedTime(&milliseconds, events_[i - 1].get(), events_[i].get()) != cudaSuccess) {
        return kFailed;
      }
      least = std::min(least, milliseconds);
    }
    return least;
  }

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  using Event = std::unique_ptr<CUevent_st, Destroy>;

  std::array<Event, 12> events_;
};

class CublasLtGemm final : public CudaGemm {
 public:
  CublasLtGemm(CudaQueue& queue, const GemmChoice& choice) : queue_(queue), choice_(choice) {
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

 private:
  bool Succeeded(cublasStatus_t status) {
    if (status != CUBLAS_STATUS_SUCCESS) queue_.Fail("Gemm", cublasLtGetStatusString(status));
    return status == CUBLAS_STATUS_SUCCESS;
  }

  const GemmAlgorithm* Pinned(const GemmShape& shape) const {
    return choice_.pinned == nullptr ? nullptr : choice_.pinned->Find(shape.Name());
  }

  /// The plan with its algorithm; not runnable if there is none. A pinned one that does not fit is a failure: another
  /// would break the agreement with the other ranks.
  GemmPlan* Find(const GemmShape& shape) {
    const auto found = plans_.find(shape);
    if (found != plans_.end()) return &found->second;
    if (plans_.size() >= kMaxPlans) plans_.clear();
    GemmPlan& plan = plans_.try_emplace(shape, shape).first->second;
    if (const GemmAlgorithm* pinned = Pinned(shape)) {
      if (!plan.TakeChecked(handle_, *pinned)) {
        queue_.Fail("Gemm", "an algorithm of train.gemm_table does not fit here; make it anew with `holdfast tune`");
      }
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
    RunPlan(plan, {args.a.data, args.b.data, args.c.data, bias, args.pre_gelu.data}, scratch + bias_bytes);
  }

  bool RunPlan(GemmPlan& plan, const GemmPointers& at, void* workspace) {
    if (choice_.on_tuned != nullptr && tuned_.insert(plan.shape()).second && Pinned(plan.shape()) == nullptr) {
      Tune(plan, at, workspace);
    }
    return Succeeded(plan.Run(handle_, at, workspace, queue_.stream()));
  }

  /// Leaves the plan with the fastest of the library's best proposals.
  void Tune(GemmPlan& plan, const GemmPointers& at, void* workspace) {
    constexpr int kCandidates = 16;
    constexpr float kFaster = 0.99f;  // of two that are alike the one that is preferred stays
    const std::vector<GemmAlgorithm> candidates = plan.Propose(handle_, kCandidates);
    TunedGemm best{.product = plan.shape().Name(), .ms = std::numeric_limits<float>::infinity()};
    RunEvents events;
    for (size_t i = 0; i < candidates.size(); ++i) {
      plan.Take(candidates[i]);
      const float ms = events.Time(queue_, plan, handle_, at, workspace);
      if (i == 0) best.preferred_ms = ms;
      if (!(ms < best.ms * kFaster)) continue;
      best.algorithm = candidates[i];
      best.changed = i > 0;
      best.ms = ms;
    }
    if (best.ms == std::numeric_limits<float>::infinity()) return queue_.Fail("Gemm", "no proposed algorithm runs");
    plan.Take(best.algorithm);
    choice_.on_tuned(best);
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
    if (!RunPlan(*plan, {args.a.data, args.b.data, sums.data}, scratch + sums_bytes)) return;
    if (sums.data != args.c.data || args.bias != nullptr || args.gelu) FinishGemm(queue_, args, sums);
  }

  CudaQueue& queue_;
  GemmChoice choice_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<GemmShape, GemmPlan> plans_;
  std::set<GemmShape> tuned_;
};

}  // namespace

size_t CublasLtVersion() { return cublasLtGetVersion(); }

std::unique_ptr<CudaGemm> MakeCudaGemm(CudaQueue& queue, const GemmChoice& choice) {
  return std::make_unique<CublasLtGemm>(queue, choice);
}

}  // namespace holdfast::kernels
