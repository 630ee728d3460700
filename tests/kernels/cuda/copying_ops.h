#pragma once
// A GPU's operations for tests that know nothing of it and keep everything in ordinary memory. What an operation is
// called with is copied to the device, each block that the test got from operator new into an allocation of its own of
// exactly its size, so that compute-sanitizer sees an access beyond it. Finish() copies everything back.
//
//   CopyingOps ops(device, stream->ops());
//   ops.Gemm(args);         // pointers into the test's memory
//   stream->Synchronize();
//   ops.Finish();           // the test's memory now holds the results
//
// Blocks have to live until Finish. For one thread.

#include <cstddef>
#include <map>
#include <type_traits>

#include "framework/tensor/device.h"
#include "kernels/ops.h"

namespace holdfast::kernels {

class CopyingOps final : public Ops {
 public:
  CopyingOps(Device& device, Ops& ops) : device_(device), ops_(ops) {}
  ~CopyingOps() override;
  CopyingOps(const CopyingOps&) = delete;

  /// Call it when the work is done.
  void Finish();

#define HOLDFAST_OPERATION(name, parameters, arguments)                           \
  void name parameters override {                                                 \
    [this](const auto&... argument) { ops_.name(Moved(argument)...); } arguments; \
  }
#include "kernels/ops.def"

 private:
  struct DeviceCopy {
    void* on_device;
    size_t bytes;
  };

  /// Where the copy of what is at `on_cpu` lies.
  void* Find(const void* on_cpu);

  template <typename T>
  T* At(T* on_cpu) {
    return on_cpu == nullptr ? nullptr : static_cast<T*>(Find(on_cpu));
  }

  template <typename T>
  T Moved(const T& argument) {
    T moved = OnDevice(argument);
    if constexpr (std::is_class_v<T>) {
      __builtin_clear_padding(&moved);  // in which an old pointer may have been
      CheckWords(&moved, sizeof(moved));
    }
    return moved;
  }
  /// That none of them points to a test's memory: a field that OnDevice below does not know.
  static void CheckWords(const void* words, size_t bytes);

  // Every argument of kernels/ops.def with its pointers turned.
  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  static T OnDevice(T value) { return value; }
  static const int64_t* OnDevice(const int64_t* offsets) { return offsets; }  // lies in host memory
  template <typename T>
  T* OnDevice(T* data) {
    return At(data);
  }
  static Dropout OnDevice(const Dropout& dropout) { return dropout; }
  static RandomKey OnDevice(const RandomKey& key) { return key; }
  static RotaryHeads OnDevice(const RotaryHeads& heads) { return heads; }
  Matrix OnDevice(Matrix m);
  ConstMatrix OnDevice(ConstMatrix m);
  Positions OnDevice(Positions positions);
  NormStats OnDevice(NormStats stats);
  NormParams OnDevice(NormParams params);
  AttentionShape OnDevice(AttentionShape shape);
  CachedAttentionArgs OnDevice(CachedAttentionArgs args);
  GemmArgs OnDevice(GemmArgs args);
  AdamWArgs OnDevice(AdamWArgs args);
  LionArgs OnDevice(LionArgs args);
  ChunkDigestsArgs OnDevice(ChunkDigestsArgs args);
  RouterShape OnDevice(RouterShape shape);
  RouterOut OnDevice(RouterOut out);
  RouterBackwardArgs OnDevice(RouterBackwardArgs args);
  RouterReportArgs OnDevice(RouterReportArgs args);
  SortedChoices OnDevice(SortedChoices choices);
  ExpertRows OnDevice(ExpertRows rows);
  ExpertGemmArgs OnDevice(ExpertGemmArgs args);
  ExpertGradientArgs OnDevice(ExpertGradientArgs args);
  ExpertBiasBackwardArgs OnDevice(ExpertBiasBackwardArgs args);
  template <class... T>
  void Put(T&... of_struct) {
    ((of_struct = OnDevice(of_struct)), ...);
  }

  Device& device_;
  Ops& ops_;
  std::map<char*, DeviceCopy> copies_;  // by the block of CPU memory
};

}  // namespace holdfast::kernels
