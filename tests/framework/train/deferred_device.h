#pragma once
// A device that behaves like a GPU as far as others can tell: its streams do what they are asked later, each on a
// thread of its own and at its own pace, and its memory is its own (though a test's CPU computes in it). Who does not
// wait where it has to gets other bits, sooner or later.

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "framework/base/status.h"
#include "framework/base/task_thread.h"
#include "framework/tensor/device.h"

namespace holdfast {

class DeferredEvent final : public Event {
 public:
  void Wait() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
  }
  void Done() {
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
};

/// Queues every call; pointers in its arguments are used when its turn comes, but for those that ops.h says are not.
class DeferredOps final : public kernels::Ops {
 public:
  explicit DeferredOps(kernels::Ops& ops) : ops_(ops) {}
  void Drain() { thread_.Drain(); }
  template <typename Work>
  void Post(Work work) {
    ++posted_;
    thread_.Post([work = std::move(work), late = posted_ % 7 == 0]() mutable {
      if (late) std::this_thread::sleep_for(std::chrono::microseconds(300));
      work();
    });
  }

  using M = kernels::Matrix;
  using C = kernels::ConstMatrix;
  void Gemm(const kernels::GemmArgs& a) override {
    Post([=, this] { ops_.Gemm(a); });
  }
  void ColumnSum(float* out, C in) override {
    Post([=, this] { ops_.ColumnSum(out, in); });
  }
  void EmbeddingForward(M out, const int32_t* tokens, C table, C positions, const kernels::Positions& t,
                        const kernels::Dropout& d) override {
    Post([=, this] { ops_.EmbeddingForward(out, tokens, table, positions, t, d); });
  }
  void EmbeddingBackward(M table, M positions, const int32_t* tokens, C out, const kernels::Positions& t,
                         const kernels::Dropout& d) override {
    Post([=, this] { ops_.EmbeddingBackward(table, positions, tokens, out, t, d); });
  }
  void NormForward(M out, M residual_out, const kernels::NormStats& stats, C residual, C branch,
                   const kernels::NormParams& p, const kernels::Dropout& d) override {
    Post([=, this] { ops_.NormForward(out, residual_out, stats, residual, branch, p, d); });
  }
  void NormBackward(M in, float* weight, float* bias, C residual, C out, C input, const kernels::NormStats& stats,
                    const kernels::NormParams& p) override {
    Post([=, this] { ops_.NormBackward(in, weight, bias, residual, out, input, stats, p); });
  }
  void ApplyDropout(M out, C in, const kernels::Dropout& d) override {
    Post([=, this] { ops_.ApplyDropout(out, in, d); });
  }
  void Rope(M x, const float* table, int64_t heads, int64_t dim, const kernels::Positions& t, bool inverse) override {
    Post([=, this] { ops_.Rope(x, table, heads, dim, t, inverse); });
  }
  void AttentionForward(M out, float* lse, C qkv, const kernels::AttentionShape& s) override {
    Post([=, this] { ops_.AttentionForward(out, lse, qkv, s); });
  }
  void AttentionBackward(M d_qkv, C d_out, C out, const float* lse, C qkv, const kernels::AttentionShape& s) override {
    Post([=, this] { ops_.AttentionBackward(d_qkv, d_out, out, lse, qkv, s); });
  }
  void Clip(M out, C in, float limit) override {
    Post([=, this] { ops_.Clip(out, in, limit); });
  }
  void ClipBackward(M d, C in, float limit) override {
    Post([=, this] { ops_.ClipBackward(d, in, limit); });
  }
  void GeluBackward(M d_in, C d_out, C in) override {
    Post([=, this] { ops_.GeluBackward(d_in, d_out, in); });
  }
  void SwigluForward(M out, C in) override {
    Post([=, this] { ops_.SwigluForward(out, in); });
  }
  void SwigluBackward(M d_in, C d_out, C in) override {
    Post([=, this] { ops_.SwigluBackward(d_in, d_out, in); });
  }
  void RouterForward(const kernels::RouterOut& out, C logits, const kernels::RouterShape& s) override {
    Post([=, this] { ops_.RouterForward(out, logits, s); });
  }
  void RouterBackward(const kernels::RouterBackwardArgs& a, const kernels::RouterShape& s) override {
    Post([=, this] { ops_.RouterBackward(a, s); });
  }
  void RouterReport(const kernels::RouterReportArgs& a, const kernels::RouterShape& s) override {
    Post([=, this] { ops_.RouterReport(a, s); });
  }
  void SortChoices(const kernels::SortedChoices& out, const int32_t* experts, const float* weights, int64_t rows,
                   const kernels::RouterShape& s) override {
    Post([=, this] { ops_.SortChoices(out, experts, weights, rows, s); });
  }
  void Jitter(M out, C in, float range, const kernels::RandomKey& key) override {
    Post([=, this] { ops_.Jitter(out, in, range, key); });
  }
  void GatherRows(M out, C in, const kernels::ExpertRows& rows) override {
    Post([=, this] { ops_.GatherRows(out, in, rows); });
  }
  void CombineRows(M out, C in, C last, const kernels::ExpertRows& rows) override {
    Post([=, this] { ops_.CombineRows(out, in, last, rows); });
  }
  void ExpertGemm(const kernels::ExpertGemmArgs& a, const kernels::ExpertRows& rows) override {
    Post([=, this] { ops_.ExpertGemm(a, rows); });
  }
  void ExpertGradient(const kernels::ExpertGradientArgs& a, const kernels::ExpertRows& rows) override {
    Post([=, this] { ops_.ExpertGradient(a, rows); });
  }
  void ExpertSwigluForward(M out, C gate_up, const float* weights, const kernels::ExpertRows& rows) override {
    Post([=, this] { ops_.ExpertSwigluForward(out, gate_up, weights, rows); });
  }
  void ExpertSwigluBackward(M d_gate_up, float* d_weights, C d_out, C gate_up, const float* weights,
                            const kernels::ExpertRows& rows) override {
    Post([=, this] { ops_.ExpertSwigluBackward(d_gate_up, d_weights, d_out, gate_up, weights, rows); });
  }
  void SoftmaxCrossEntropy(float* losses, M d_logits, C logits, const int32_t* targets, float scale) override {
    Post([=, this] { ops_.SoftmaxCrossEntropy(losses, d_logits, logits, targets, scale); });
  }
  void AdamW(const kernels::AdamWArgs& a) override {
    Post([=, this] { ops_.AdamW(a); });
  }
  void Lion(const kernels::LionArgs& a) override {
    Post([=, this] { ops_.Lion(a); });
  }
  void ChunkSumSquares(double* sums, const float* x, const int64_t* offsets, int64_t n) override {
    Post([=, this, read = std::vector<int64_t>(offsets, offsets + n + 1)] {
      ops_.ChunkSumSquares(sums, x, read.data(), n);
    });
  }
  void Add(float* a, const float* b, int64_t n) override {
    Post([=, this] { ops_.Add(a, b, n); });
  }
  void Axpby(float* out, float alpha, const float* x, float beta, const float* y, int64_t n) override {
    Post([=, this] { ops_.Axpby(out, alpha, x, beta, y, n); });
  }
  void Zero(void* data, size_t bytes) override {
    Post([=, this] { ops_.Zero(data, bytes); });
  }
  void Copy(void* out, const void* in, size_t bytes) override {
    Post([=, this] { ops_.Copy(out, in, bytes); });
  }
  void CastToBf16(uint16_t* out, const float* in, int64_t n) override {
    Post([=, this] { ops_.CastToBf16(out, in, n); });
  }
  void FillNormal(float* out, int64_t n, int64_t first, float stddev, const kernels::RandomKey& key) override {
    Post([=, this] { ops_.FillNormal(out, n, first, stddev, key); });
  }

 private:
  kernels::Ops& ops_;
  int64_t posted_ = 0;
  TaskThread thread_;
};

class DeferredStream final : public Stream {
 public:
  explicit DeferredStream(std::unique_ptr<Stream> inner) : inner_(std::move(inner)), ops_(inner_->ops()) {}
  ~DeferredStream() override { ops_.Drain(); }
  kernels::Ops& ops() override { return ops_; }
  absl::Status Synchronize() override {
    ops_.Drain();
    return absl::OkStatus();
  }
  std::shared_ptr<Event> Record() override {
    auto event = std::make_shared<DeferredEvent>();
    ops_.Post([event] { event->Done(); });
    return event;
  }
  void CopyToHost(void* host, const void* device, size_t bytes) override {
    ops_.Post([=, this] { inner_->CopyToHost(host, device, bytes); });
  }
  size_t scratch_bytes() const override { return inner_->scratch_bytes(); }

 private:
  std::unique_ptr<Stream> inner_;
  DeferredOps ops_;
};

class DeferredDevice final : public Device {
 public:
  std::string name() const override { return "deferred"; }
  absl::StatusOr<void*> Allocate(size_t bytes) override {
    absl::StatusOr<void*> data = inner_->Allocate(bytes + 1);
    const std::lock_guard lock(mutex_);
    if (data.ok()) blocks_[static_cast<const char*>(*data)] = bytes + 1;
    return data;
  }
  void Free(void* data, size_t bytes) override {
    {
      const std::lock_guard lock(mutex_);
      blocks_.erase(static_cast<const char*>(data));
    }
    inner_->Free(data, bytes + 1);
  }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(StreamKind kind) override {
    absl::StatusOr<std::unique_ptr<Stream>> inner = inner_->CreateStream(kind);
    if (!inner.ok()) return inner;
    return std::make_unique<DeferredStream>(*std::move(inner));
  }
  bool is_host() const override { return false; }
  bool IsDeviceOnly(const void* data) const override {
    const std::lock_guard lock(mutex_);
    auto after = blocks_.upper_bound(static_cast<const char*>(data));
    if (after == blocks_.begin()) return false;
    --after;
    return static_cast<const char*>(data) < after->first + after->second;
  }
  void CopyToHost(void* host, const void* device, size_t bytes) override {
    HOLDFAST_CHECK(bytes == 0 || IsDeviceOnly(device));
    inner_->CopyToHost(host, device, bytes);
  }
  void CopyFromHost(void* device, const void* host, size_t bytes) override {
    HOLDFAST_CHECK(bytes == 0 || IsDeviceOnly(device));
    inner_->CopyFromHost(device, host, bytes);
  }
  absl::StatusOr<void*> AllocateHost(size_t bytes) override { return inner_->AllocateHost(bytes); }
  void FreeHost(void* data) override { inner_->FreeHost(data); }

 private:
  std::unique_ptr<Device> inner_ = MakeCpuDevice(1);
  mutable std::mutex mutex_;
  std::map<const char*, size_t> blocks_;
};

}  // namespace holdfast
