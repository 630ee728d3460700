#include <cstdlib>
#include <cstring>

#include "framework/base/aligned_memory.h"
#include "framework/base/counted.h"
#include "framework/base/format_bytes.h"
#include "framework/base/processors.h"
#include "framework/base/status.h"
#include "framework/base/thread_pool.h"
#include "framework/tensor/device.h"

namespace holdfast {
namespace {

class CpuStream final : public Stream {
 public:
  CpuStream(int threads, kernels::Arithmetic arithmetic)
      : pool_(threads), ops_(kernels::MakeCpuOps(pool_, arithmetic)) {}

  kernels::Ops& ops() override { return *ops_; }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  std::shared_ptr<Event> Record() override { return nullptr; }
  void CopyToCpu(void* cpu, const void* device, size_t bytes) override { std::memcpy(cpu, device, bytes); }
  size_t scratch_bytes() const override { return pool_.scratch_bytes(); }

 private:
  ThreadPool pool_;
  std::unique_ptr<kernels::Ops> ops_;
};

class CpuDevice final : public Device {
 public:
  CpuDevice(int threads, kernels::Arithmetic arithmetic)
      : threads_(threads > 0 ? threads : AvailableProcessors()), arithmetic_(arithmetic) {}

  std::string name() const override {
    return absl::StrCat("cpu (", kernels::CpuInstructionSets().front(), ", ", kernels::NameOf(arithmetic_),
                        " arithmetic, ", Counted(threads_, "thread"), ")");
  }

  absl::StatusOr<void*> Allocate(size_t bytes) override {
    void* data = AllocateAligned(bytes);
    if (data == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("out of CPU memory: could not allocate ", FormatBytes(static_cast<double>(bytes))));
    }
    return data;
  }

  void Free(void* data, size_t) override { std::free(data); }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(StreamKind kind) override {
    return std::make_unique<CpuStream>(kind == StreamKind::kCompute ? threads_ : 1, arithmetic_);
  }
  bool is_cpu() const override { return true; }
  bool IsDeviceOnly(const void*) const override { return false; }
  void CopyToCpu(void* cpu, const void* device, size_t bytes) override { std::memcpy(cpu, device, bytes); }
  void CopyFromCpu(void* device, const void* cpu, size_t bytes) override { std::memcpy(device, cpu, bytes); }
  absl::StatusOr<void*> AllocateCpu(size_t bytes) override { return Allocate(bytes); }
  void FreeCpu(void* data) override { std::free(data); }

 private:
  int threads_;
  kernels::Arithmetic arithmetic_;
};

}  // namespace

std::unique_ptr<Device> MakeCpuDevice(int threads, kernels::Arithmetic arithmetic) {
  return std::make_unique<CpuDevice>(threads, arithmetic);
}

}  // namespace holdfast
