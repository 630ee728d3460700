#pragma once
// A device that behaves like a GPU as far as others can tell: its streams do what they are asked later, each on a
// thread of its own and at its own pace, and its memory is its own (though a test's CPU computes in it). Who does not
// wait where it has to gets other bits, sooner or later.

#include <chrono>
#include <condition_variable>
#include <functional>
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
#include "kernels/forwarding_ops.h"

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
class DeferredOps final : public kernels::ForwardingOps {
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

  void ChunkSumSquares(double* sums, const float* x, const int64_t* offsets, int64_t n) override {
    Post([=, this, read = std::vector<int64_t>(offsets, offsets + n + 1)] {
      ops_.ChunkSumSquares(sums, x, read.data(), n);
    });
  }

 private:
  void Forward(std::function<void(kernels::Ops&)> call) override {
    Post([this, call = std::move(call)] { call(ops_); });
  }

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
  void CopyToCpu(void* cpu, const void* device, size_t bytes) override {
    ops_.Post([=, this] { inner_->CopyToCpu(cpu, device, bytes); });
  }
  size_t scratch_bytes() const override { return inner_->scratch_bytes(); }

 private:
  std::unique_ptr<Stream> inner_;
  DeferredOps ops_;
};

class DeferredDevice : public Device {
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
  bool is_cpu() const override { return false; }
  bool IsDeviceOnly(const void* data) const override {
    const std::lock_guard lock(mutex_);
    auto after = blocks_.upper_bound(static_cast<const char*>(data));
    if (after == blocks_.begin()) return false;
    --after;
    return static_cast<const char*>(data) < after->first + after->second;
  }
  void CopyToCpu(void* cpu, const void* device, size_t bytes) override {
    HOLDFAST_CHECK(bytes == 0 || IsDeviceOnly(device));
    inner_->CopyToCpu(cpu, device, bytes);
  }
  void CopyFromCpu(void* device, const void* cpu, size_t bytes) override {
    HOLDFAST_CHECK(bytes == 0 || IsDeviceOnly(device));
    inner_->CopyFromCpu(device, cpu, bytes);
  }
  absl::StatusOr<void*> AllocateCpu(size_t bytes) override { return inner_->AllocateCpu(bytes); }
  void FreeCpu(void* data) override { inner_->FreeCpu(data); }

 private:
  std::unique_ptr<Device> inner_ = MakeCpuDevice(1);
  mutable std::mutex mutex_;
  std::map<const char*, size_t> blocks_;
};

}  // namespace holdfast
