// The products of all experts of a layer as one call: experts, rows and columns are cut together into tasks that each
// are a whole product of one thread, so that threads wait for each other once a call and not once an expert.
//
// Included once per instruction set, after hwy/foreach_target.h; see gemm.cc.

#if defined(HOLDFAST_KERNELS_CPU_GEMM_EXPERTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_CPU_GEMM_EXPERTS_INL_H_
#undef HOLDFAST_KERNELS_CPU_GEMM_EXPERTS_INL_H_
#else
#define HOLDFAST_KERNELS_CPU_GEMM_EXPERTS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/gemm_few_rows-inl.h"
#include "kernels/cpu/gemm_product-inl.h"
#include "kernels/cpu/views.h"
#include "kernels/executor.h"
#include "kernels/ops.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

/// What a task of another executor runs on: its own thread, and a part of the shared memory.
class TaskExecutor final : public Executor {
 public:
  TaskExecutor(Executor& executor, int thread, void* shared) : executor_(executor), thread_(thread), shared_(shared) {}
  int num_threads() const override { return 1; }
  void Run(int64_t num_tasks, TaskFn fn, void* context) override {
    for (int64_t task = 0; task < num_tasks; ++task) fn(context, task, 0);
  }
  void* Scratch(int slot, size_t bytes) override {
    return slot == kShared ? shared_ : executor_.Scratch(thread_, bytes);
  }

 private:
  Executor& executor_;
  int thread_;
  void* shared_;
};

template <class View>
View SliceOf(const View& m, const Range& rows, const Range& cols) {
  View part = m;
  const size_t first = static_cast<size_t>(rows.begin * m.stride + cols.begin) * SizeOf(m.dtype);
  part.data = (char*)m.data + first;  // NOLINT: const or not as the view is
  part.rows = rows.end - rows.begin;
  part.cols = cols.end - cols.begin;
  return part;
}

/// The same product for some rows and columns of C.
inline ProductArgs SliceOf(const ProductArgs& args, const Range& rows, const Range& cols) {
  ProductArgs part = args;
  part.a = args.transpose_a ? SliceOf(args.a, {0, args.a.rows}, rows) : SliceOf(args.a, rows, {0, args.a.cols});
  part.b = args.transpose_b ? SliceOf(args.b, cols, {0, args.b.cols}) : SliceOf(args.b, {0, args.b.rows}, cols);
  part.c = SliceOf(args.c, rows, cols);
  if (args.bias != nullptr) part.bias += cols.begin;
  if (args.bias_weights != nullptr) part.choices += rows.begin;
  return part;
}

/// `product_of(e)` is the product of expert e, all as wide, without activation.
template <class Kernel, class ProductOf>
class ExpertProducts {
 public:
  ExpertProducts(Executor& executor, int64_t num_experts, const ProductOf& product_of)
      : executor_(executor), num_experts_(num_experts), product_of_(product_of) {
    int64_t rows = 0, depth = 1;
    for (int64_t e = 0; e < num_experts; ++e) {
      const ProductArgs args = product_of(e);
      rows += args.c.rows;
      depth = std::max(depth, DepthOf(args));
      cols_ = std::max<int64_t>(args.c.cols, 1);
    }
    Cut(rows, depth);
    for (int64_t e = 0; e < num_experts; ++e) {
      const ProductArgs args = product_of(e);
      const int64_t pieces = CeilDiv(args.c.rows, rows_of_task_) * CeilDiv(cols_, cols_of_task_);
      const int64_t work = std::min(args.c.rows, rows_of_task_) * DepthOf(args);
      for (int64_t piece = 0; piece < pieces; ++piece) tasks_.push_back({e, piece, work});
    }
    // The largest first, so that threads end at almost the same time.
    std::stable_sort(tasks_.begin(), tasks_.end(), [](const Task& a, const Task& b) { return a.work > b.work; });
  }

  void Run() {
    size_t bytes = 0, thread_bytes = 0;
    for (const Task& task : tasks_) {
      TaskExecutor none(executor_, 0, nullptr);
      const ProductArgs args = ArgsOf(task);
      WithProduct<Kernel>(none, args, [&](const auto& product) {
        bytes = std::max(bytes, product.SharedBytes());
        thread_bytes = std::max(thread_bytes, product.ThreadBytes());
      });
    }
    bytes = (bytes + 63) / 64 * 64;
    executor_.ExpectScratch(thread_bytes);
    auto* const shared = static_cast<std::byte*>(
        executor_.Scratch(Executor::kShared, bytes * static_cast<size_t>(executor_.num_threads())));
    ParallelFor(executor_, static_cast<int64_t>(tasks_.size()), [&](int64_t task, int thread) {
      TaskExecutor own(executor_, thread, shared + static_cast<size_t>(thread) * bytes);
      const ProductArgs args = ArgsOf(tasks_[static_cast<size_t>(task)]);
      const auto next = static_cast<size_t>(task + executor_.num_threads());
      const void* const next_b = next < tasks_.size() ? ArgsOf(tasks_[next]).b.data : nullptr;
      WithProduct<Kernel>(own, args, [next_b](auto product) {
        if constexpr (requires { product.FetchNext(next_b); }) product.FetchNext(next_b);
        product.Run();
      });
    });
  }

 private:
  static constexpr int64_t kTasksPerThread = 8;
  static constexpr int64_t kTaskRowsMin = 4 * kChunkRows;       // fewer, and packing B takes too large a share
  static constexpr int64_t kPackedBytesMax = int64_t{4} << 20;  // of A, for each thread

  struct Task {
    int64_t expert, piece;
    int64_t work;  // rows times depth
  };

  static int64_t DepthOf(const GemmArgs& args) { return args.transpose_a ? args.a.rows : args.a.cols; }

  /// `rows` of all experts, `depth` of the deepest.
  void Cut(int64_t rows, int64_t depth) {
    const int64_t threads = executor_.num_threads();
    if (threads == 1) {
      rows_of_task_ = std::max<int64_t>(rows, 1);
      cols_of_task_ = cols_;
      return;
    }
    constexpr int64_t kStripe = kStripePanels * Kernel::kNr;
    const int64_t most =
        std::max(kPackedBytesMax * Kernel::kValues / (depth * int64_t{sizeof(typename Kernel::Word)}), kChunkRows);
    rows_of_task_ = std::min(std::max(CeilDiv(rows, kTasksPerThread * threads), kTaskRowsMin), most);
    cols_of_task_ = cols_;
    int64_t row_tasks = 0;
    for (int64_t e = 0; e < num_experts_; ++e) row_tasks += CeilDiv(product_of_(e).c.rows, rows_of_task_);
    const int64_t stripes = CeilDiv(cols_, kStripe);
    const int64_t parts =
        std::clamp<int64_t>(CeilDiv(kTasksPerThread * threads, std::max<int64_t>(row_tasks, 1)), 1, stripes);
    cols_of_task_ = CeilDiv(stripes, parts) * kStripe;
  }

  ProductArgs ArgsOf(const Task& task) const {
    const ProductArgs args = product_of_(task.expert);
    const int64_t across = CeilDiv(cols_, cols_of_task_);
    return SliceOf(args, Pieces{args.c.rows, rows_of_task_}.piece(task.piece / across),
                   Pieces{cols_, cols_of_task_}.piece(task.piece % across));
  }

  Executor& executor_;
  int64_t num_experts_;
  const ProductOf& product_of_;
  int64_t cols_ = 0, rows_of_task_ = 1, cols_of_task_ = 1;
  std::vector<Task> tasks_;
};

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
