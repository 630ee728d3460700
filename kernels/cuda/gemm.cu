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
#include "kernels/cuda/gemm_split.h"
#include "kernels/cuda/packet.cuh"
#include "kernels/cuda/tile.cuh"

namespace holdfast::kernels {
namespace {

constexpr size_t kMaxPlans = 4096;  // more kinds of product than any model has; beyond it the cache starts anew

size_t AlignUp(size_t bytes) { return (bytes + 255) / 256 * 256; }

__global__ void RoundKernel(Bf16* out, const float* in, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) out[i] = FromFloat<Bf16>(in[i]);
}

constexpr int kWidened = 4;  // values of a packet: 16 bytes of fp32

template <bool whole>
__global__ void WidenKernel(Rows<float> out, Rows<const Bf16> in, Tile tile) {
  const TileThread at(tile);
  if (at.is_empty()) return;
  Values<Bf16, kWidened> x[kTileRows];
  at.ForLoads([&](int k, int64_t row) { x[k] = LoadPacket<whole, kWidened>(in[row] + at.col(), at.count()); });
  at.ForStores([&](int k, int64_t row) {
    float y[kWidened];
    ToFloats(y, x[k]);
    StorePacket<whole>(out[row] + at.col(), y, at.count());
  });
}

/// The matrices as they are multiplied. cuBLASLt takes two of one type only, so beside a fp32 one a fp32 copy takes the
/// place of a bf16 one, with rows that begin at multiples of 16 bytes.
struct Operands {
  ConstMatrix a, b;
  size_t copy_bytes = 0;

  /// `memory` has copy_bytes; null to describe the copy only.
  explicit Operands(const GemmArgs& args, void* memory = nullptr) : a(args.a), b(args.b) {
    if (a.dtype == b.dtype) return;
    ConstMatrix& copy = a.dtype == DType::kBF16 ? a : b;
    copy = {memory, DType::kF32, copy.rows, copy.cols, (copy.cols + kWidened - 1) / kWidened * kWidened};
    copy_bytes = AlignUp(static_cast<size_t>(copy.rows * copy.stride) * sizeof(float));
  }
};

int64_t DepthOf(const GemmArgs& args) { return args.transpose_a ? args.a.rows : args.a.cols; }

/// The product into `c`, with nothing done to it but adding, if it is args.c.
GemmShape ShapeOfProduct(const GemmArgs& args, const ConstMatrix& c) {
  const Operands operands(args);
  GemmShape shape;
  shape.m = c.rows, shape.n = c.cols, shape.k = DepthOf(args);
  shape.transpose_a = args.transpose_a, shape.transpose_b = args.transpose_b;
  shape.in = operands.a.dtype, shape.out = c.dtype;
  shape.accumulate = args.accumulate && c.data == args.c.data;
  shape.a_stride = operands.a.stride, shape.b_stride = operands.b.stride, shape.c_stride = c.stride;
  shape.a_alignment = GemmAlignmentOf(operands.a.data), shape.b_alignment = GemmAlignmentOf(operands.b.data);
  shape.c_alignment = GemmAlignmentOf(c.data);
  return shape;
}

/// The product and all that comes after it.
GemmShape ShapeOfAll(const GemmArgs& args) {
  GemmShape shape = ShapeOfProduct(args, args.c);
  shape.bias = args.bias != nullptr;
  shape.gelu = args.gelu;
  shape.pre_gelu = args.gelu && args.pre_gelu.data != nullptr;
  shape.gelu_input = args.gelu_input.data != nullptr;
  shape.a_sums = args.a_sums != nullptr;
  if (shape.bias) shape.vector_alignment = shape.out == DType::kBF16 ? 16 : GemmAlignmentOf(args.bias);
  if (shape.a_sums) shape.vector_alignment = GemmAlignmentOf(args.a_sums);
  if (shape.has_aux()) {
    const ConstMatrix aux = shape.pre_gelu ? args.pre_gelu : args.gelu_input;
    shape.aux_stride = aux.stride;
    shape.aux_alignment = GemmAlignmentOf(aux.data);
  }
  return shape;
}

/// Whether to ask cuBLASLt for all in one. It writes fp32 products of bf16 but no bf16 ones of fp32, and sums of the
/// type of the product only, which would round those of a bf16 one; for GELU it may use the GPU's approximate tanh,
/// which bf16 hides and fp32 would not.
bool MayFuse(const GemmShape& shape, const GemmArgs& args) {
  if (shape.in == DType::kF32 && shape.out == DType::kBF16) return false;
  if ((shape.gelu || shape.gelu_input) && shape.out != DType::kBF16) return false;
  if (shape.a_sums && (shape.out != DType::kF32 || shape.bias)) return false;
  if (!shape.has_aux()) return true;
  const DType aux = shape.pre_gelu ? args.pre_gelu.dtype : args.gelu_input.dtype;
  return aux == shape.out && shape.aux_stride % 8 == 0 && shape.aux_alignment == 16;
}

/// Whether other kernels can do what comes after the product.
bool HasApart(const GemmShape& shape) { return (shape.gelu && !shape.accumulate) || shape.gelu_input || shape.a_sums; }

/// What happens without a table. Sums of A add little to a product's time if they are fused well, and much if they keep
/// the library from its best algorithms.
bool IsApartByDefault(const GemmShape& shape) { return shape.a_sums; }

/// Between the runs of a product, to time them.
class RunEvents {
 public:
  RunEvents() {
    for (Event& event : events_) {
      cudaEvent_t created = nullptr;
      if (cudaEventCreate(&created) == cudaSuccess) event.reset(created);
    }
  }

  /// Milliseconds of one run, the least of several; infinite if `run` returned false. The first run only warms up.
  template <typename RunOnce>
  float Time(const CudaQueue& queue, RunOnce&& run) {
    constexpr float kFailed = std::numeric_limits<float>::infinity();
    for (const Event& event : events_) {
      if (!run()) return kFailed;
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

constexpr float kFaster = 0.99f;  // of two that are alike the one that is preferred stays

class CublasLtGemm final : public CudaGemm {
 public:
  CublasLtGemm(CudaQueue& queue, Ops& ops, const GemmChoice& choice) : queue_(queue), ops_(ops), choice_(choice) {
    if (!Succeeded(cublasLtCreate(&handle_))) handle_ = nullptr;
  }
  ~CublasLtGemm() override {
    if (handle_ != nullptr) cublasLtDestroy(handle_);
  }
  CublasLtGemm(const CublasLtGemm&) = delete;

  void Run(const GemmArgs& args) override {
    if (handle_ == nullptr) return;
    const GemmSplit split = SplitOf(args);
    if (split == GemmSplit::kNone) return RunOne(args);
    if (split == GemmSplit::kDepth && args.c.dtype == DType::kBF16) return RunOnWideSums(args);
    for (const GemmArgs& part : InTwo(args, split)) Run(part);
  }

 private:
  bool Succeeded(cublasStatus_t status) {
    if (status != CUBLAS_STATUS_SUCCESS) queue_.Fail("Gemm", cublasLtGetStatusString(status));
    return status == CUBLAS_STATUS_SUCCESS;
  }

  bool tunes() const { return choice_.on_tuned != nullptr; }

  /// Null if there is too little memory.
  char* Scratch(size_t bytes) { return workspace_ != nullptr ? workspace_ : static_cast<char*>(queue_.Scratch(bytes)); }

  /// With sums in fp32, to be rounded once: the library rounds a bf16 product before it adds it to another.
  void RunOnWideSums(const GemmArgs& args) {
    constexpr int64_t kAligned = 8;
    const int64_t stride = (args.c.cols + kAligned - 1) / kAligned * kAligned;
    const size_t bytes = AlignUp(static_cast<size_t>(args.c.rows * stride) * sizeof(float));
    auto* const scratch = static_cast<char*>(queue_.Scratch(bytes + kGemmWorkspaceBytes));
    if (scratch == nullptr) return;
    GemmArgs wide = args;
    wide.c = {scratch, DType::kF32, args.c.rows, args.c.cols, stride};
    wide.accumulate = false;
    workspace_ = scratch + bytes;  // is all that fp32 products of bf16 matrices need
    Run(wide);
    workspace_ = nullptr;
    FinishGemm(queue_, args, wide.c);
  }

  void RunOne(const GemmArgs& args) {
    const bool empty = args.c.rows <= 0 || args.c.cols <= 0;
    if (empty || DepthOf(args) <= 0) {
      if (!empty) FinishGemm(queue_, args, {});
      if (args.a_sums != nullptr) ops_.ColumnSum(args.a_sums, args.a);
      return;
    }
    const GemmShape all = ShapeOfAll(args);
    GemmPlan* const plan = MayFuse(all, args) ? Find(all) : nullptr;
    const bool fuses = plan != nullptr && plan->runnable();
    if (fuses && IsToBeTuned(*plan)) TuneFused(*plan, args);
    if (plan != nullptr && plan->is_apart()) return RunApart(args);
    if (fuses) return static_cast<void>(RunFused(*plan, args));
    all.gelu_input || all.a_sums ? RunApart(args) : RunInSteps(args);
  }

  /// The plan with its algorithm, or apart; not runnable if there is none. A pinned one that does not fit is a failure:
  /// another would break the agreement with the other ranks.
  GemmPlan* Find(const GemmShape& shape) {
    const auto found = plans_.find(shape);
    if (found != plans_.end()) return &found->second;
    if (plans_.size() >= kMaxPlans && !tunes()) plans_.clear();
    GemmPlan& plan = plans_.try_emplace(shape, shape).first->second;
    const std::string name = shape.Name();
    const GemmAlgorithm* const pinned = choice_.pinned == nullptr ? nullptr : choice_.pinned->Find(name);
    if (pinned != nullptr) {
      if (!plan.TakeChecked(handle_, *pinned)) {
        queue_.Fail("Gemm", "an algorithm of train.gemm_table does not fit here; make it anew with `holdfast tune`");
      }
      tuned_.insert(shape);
      return &plan;
    }
    const bool pinned_apart = choice_.pinned != nullptr && choice_.pinned->IsApart(name);
    plan.SetApart(HasApart(shape) && (pinned_apart || (IsApartByDefault(shape) && !tunes())));
    if (plan.is_apart()) return &plan;
    const std::vector<GemmAlgorithm> proposals = plan.Propose(handle_, 1);
    if (!proposals.empty()) plan.Take(proposals.front());
    return &plan;
  }

  /// With the copy, if there is one, at `memory`, where this fills it.
  Operands OfOneType(const GemmArgs& args, void* memory) {
    const Operands operands(args, memory);
    if (operands.copy_bytes == 0) return operands;
    const bool copies_a = args.a.dtype == DType::kBF16;
    const ConstMatrix& in = copies_a ? args.a : args.b;
    const Rows<float> to{static_cast<float*>(memory), (copies_a ? operands.a : operands.b).stride};
    const auto from = RowsOf<const Bf16>(in);
    const Tile tile = TileOf(in.rows, in.cols, kWidened);
    WithFlag(AllWhole<kWidened>(in.cols, to, from),
             [&](auto whole) { Launch(queue_, "Gemm", tile.grid(), WidenKernel<whole.value>, to, from, tile); });
    return operands;
  }

  bool RunFused(GemmPlan& plan, const GemmArgs& args) {
    const bool round_bias = args.bias != nullptr && args.c.dtype == DType::kBF16;
    const size_t bias_bytes = round_bias ? AlignUp(static_cast<size_t>(args.c.cols) * sizeof(Bf16)) : 0;
    char* const scratch = Scratch(bias_bytes + kGemmWorkspaceBytes + Operands(args).copy_bytes);
    if (scratch == nullptr) return false;
    const Operands operands = OfOneType(args, scratch + bias_bytes + kGemmWorkspaceBytes);
    GemmPointers at = {operands.a.data, operands.b.data, args.c.data};
    at.vector = args.a_sums != nullptr ? args.a_sums : args.bias;
    at.aux = args.gelu_input.data != nullptr ? args.gelu_input.data : args.pre_gelu.data;
    if (round_bias) {
      Launch(queue_, "Gemm", {.blocks = Blocks(args.c.cols, 256)}, RoundKernel, reinterpret_cast<Bf16*>(scratch),
             args.bias, args.c.cols);
      at.vector = scratch;
    }
    return Succeeded(plan.Run(handle_, at, scratch + bias_bytes, queue_.stream()));
  }

  /// The product, then what comes after it by operations of their own.
  void RunApart(const GemmArgs& args) {
    GemmArgs product = args;
    product.gelu = false;
    if (args.gelu && args.pre_gelu.data != nullptr) product.c = args.pre_gelu;
    product.pre_gelu = {};
    product.gelu_input = {};
    product.a_sums = nullptr;
    Run(product);
    if (args.gelu) ops_.GeluForward(args.c, product.c);
    if (args.gelu_input.data != nullptr) ops_.GeluBackward(args.c, args.c, args.gelu_input);
    if (args.a_sums != nullptr) ops_.ColumnSum(args.a_sums, args.a);
  }

  bool IsToBeTuned(const GemmPlan& plan) { return tunes() && tuned_.insert(plan.shape()).second; }

  /// The fastest of the library's best proposals, which `run` is timed with.
  template <typename RunOnce>
  TunedGemm FastestOf(GemmPlan& plan, RunOnce&& run) {
    constexpr int kCandidates = 64;
    const std::vector<GemmAlgorithm> candidates = plan.Propose(handle_, kCandidates);
    TunedGemm best{.product = plan.shape().Name(), .ms = std::numeric_limits<float>::infinity()};
    RunEvents events;
    for (size_t i = 0; i < candidates.size(); ++i) {
      plan.Take(candidates[i]);
      const float ms = events.Time(queue_, run);
      if (i == 0) best.preferred_ms = ms;
      if (!(ms < best.ms * kFaster)) continue;
      best.algorithm = candidates[i];
      best.changed = i > 0;
      best.ms = ms;
    }
    return best;
  }

  void CompareWithApart(const GemmArgs& args, bool by_default, TunedGemm& best) {
    RunApart(args);  // which tunes the product by itself
    RunEvents events;
    const float ms = events.Time(queue_, [&] { return RunApart(args), true; });
    if (by_default) best.preferred_ms = ms;
    best.apart = by_default ? !(best.ms < ms * kFaster) : ms < best.ms * kFaster;
    if (best.apart) best.ms = ms;
    best.changed = best.apart != by_default || (!best.apart && best.changed);
  }

  void TuneFused(GemmPlan& plan, const GemmArgs& args) {
    TunedGemm best = FastestOf(plan, [&] { return RunFused(plan, args); });
    if (HasApart(plan.shape())) CompareWithApart(args, IsApartByDefault(plan.shape()), best);
    Decide(plan, best);
  }

  void Decide(GemmPlan& plan, const TunedGemm& best) {
    if (best.ms == std::numeric_limits<float>::infinity()) return queue_.Fail("Gemm", "no proposed algorithm runs");
    plan.SetApart(best.apart);
    if (!best.apart) plan.Take(best.algorithm);
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
    char* const scratch = Scratch(sums_bytes + kGemmWorkspaceBytes + Operands(args).copy_bytes);
    if (scratch == nullptr) return;
    const Operands operands = OfOneType(args, scratch + sums_bytes + kGemmWorkspaceBytes);
    if (sums_bytes > 0) sums.data = scratch;
    GemmPlan* plan = Find(ShapeOfProduct(args, sums));
    if (!plan->runnable()) return queue_.Fail("Gemm", "cuBLASLt has no algorithm for this product");
    const auto run = [&] {
      return Succeeded(
          plan->Run(handle_, {operands.a.data, operands.b.data, sums.data}, scratch + sums_bytes, queue_.stream()));
    };
    if (IsToBeTuned(*plan)) Decide(*plan, FastestOf(*plan, run));
    if (!run()) return;
    if (sums.data != args.c.data || args.bias != nullptr || args.gelu) FinishGemm(queue_, args, sums);
  }

  CudaQueue& queue_;
  Ops& ops_;
  GemmChoice choice_;
  cublasLtHandle_t handle_ = nullptr;
  char* workspace_ = nullptr;  // a part of the queue's working memory, while a product is split
  std::map<GemmShape, GemmPlan> plans_;
  std::set<GemmShape> tuned_;  // or pinned
};

}  // namespace

size_t CublasLtVersion() { return cublasLtGetVersion(); }

std::unique_ptr<CudaGemm> MakeCudaGemm(CudaQueue& queue, Ops& ops, const GemmChoice& choice) {
  return std::make_unique<CublasLtGemm>(queue, ops, choice);
}

}  // namespace holdfast::kernels
