#pragma once
// A device that shows what passes of a transformer compute on it: the values on the way, while somebody looks. Nothing
// that is computed changes; without an observer nothing is copied.
//
//   ObservingDevice device(*inner);
//   ...                                      // model and trainer on it
//   device.Observe([&](Observed what, absl::Span<const float> values) { ... });
//   RETURN_IF_ERROR(trainer->Evaluate(1, source, {}).status());
//   device.Observe(nullptr);

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "framework/tensor/device.h"

namespace holdfast {

/// Parts of a pass in its order; all are (R, C), of the logits a block of rows at a time (rows, V).
enum class Observed : uint8_t {
  kEmbedding,
  kAttention,  // what a block adds to the stream first; each is followed by
  kStream,     // the stream with it
  kMlp,        // and then, of an MLP or of experts; likewise
  kLogits,
};

/// Of a model in fp32, which has passes on one thread at a time.
class ObservingDevice final : public Device {
 public:
  using Observer = std::function<void(Observed what, absl::Span<const float> values)>;

  /// `inner` must outlive it.
  explicit ObservingDevice(Device& inner) : inner_(inner) {}

  /// From here on; null: nobody. Between passes.
  void Observe(Observer observer) { observer_ = std::move(observer); }
  const Observer& observer() const { return observer_; }

  std::string name() const override { return inner_.name(); }
  double peak_bf16_flops() const override { return inner_.peak_bf16_flops(); }
  absl::StatusOr<void*> Allocate(size_t bytes) override { return inner_.Allocate(bytes); }
  void Free(void* data, size_t bytes) override { inner_.Free(data, bytes); }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(StreamKind kind) override;
  bool is_cpu() const override { return inner_.is_cpu(); }
  bool IsDeviceOnly(const void* data) const override { return inner_.IsDeviceOnly(data); }
  void CopyToCpu(void* cpu, const void* device, size_t bytes) override { inner_.CopyToCpu(cpu, device, bytes); }
  void CopyFromCpu(void* device, const void* cpu, size_t bytes) override { inner_.CopyFromCpu(device, cpu, bytes); }
  absl::StatusOr<void*> AllocateCpu(size_t bytes) override { return inner_.AllocateCpu(bytes); }
  void FreeCpu(void* data) override { inner_.FreeCpu(data); }

 private:
  Device& inner_;
  Observer observer_;
};

}  // namespace holdfast
