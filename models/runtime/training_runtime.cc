#include "models/runtime/training_runtime.h"

#include <utility>

#include "framework/base/status.h"
#include "framework/nn/trained_part.h"
#include "framework/tensor/cuda_device.h"
#include "models/runtime/gemm_table.h"
#include "models/runtime/make_model.h"
#include "models/runtime/memory_estimate.h"
#include "models/runtime/trainer_options.h"

namespace holdfast {
namespace {

/// Device, model and the trainer's options, which must fit into memory.
absl::StatusOr<TrainerOptions> PrepareTrainer(const Config& config, TrainingRuntime& runtime) {
  const WorkerSlot& slot = runtime.slot;
  ASSIGN_OR_RETURN(runtime.device, MakeDevice(config.train, slot.local_index));
  // Before the placement of so many workers is made, which takes long.
  if (runtime.device->is_cpu() && slot.workers_here > 0)
    RETURN_IF_ERROR(CheckHostMemory({}, config, slot.workers_here));
  RETURN_IF_ERROR(CheckHeads(config, slot.local_index));
  RETURN_IF_ERROR(CheckGpus(config, slot.workers_here));
  ASSIGN_OR_RETURN(runtime.model, MakeModel(config, *runtime.device));
  ASSIGN_OR_RETURN(TrainerOptions options, MakeTrainerOptions(config, *runtime.model));
  if (slot.workers_here == 0 || !runtime.device->is_cpu()) return options;
  const bool in_parts = ComputesInParts(config);
  const size_t second = OverlapsMicrobatches(config) ? options.in_parts->second_arena_bytes : 0;
  ASSIGN_OR_RETURN(const size_t scratch, CpuScratchBytes(config, *runtime.model, slot.workers_here));
  const MemoryEstimate estimate = EstimateMemory(
      config, runtime.model->layout(), in_parts ? options.in_parts->arena_bytes + second : options.arena_bytes,
      in_parts ? options.in_parts->training_schedule : options.training_schedule, scratch);
  RETURN_IF_ERROR(CheckHostMemory(estimate, config, slot.workers_here));
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TrainingRuntime>> OpenTraining(const Config& config, const WorkerSlot& slot,
                                                              const std::stop_token& stop) {
  auto runtime = std::make_unique<TrainingRuntime>();
  runtime->slot = slot;
  ASSIGN_OR_RETURN(runtime->data, OpenTrainingData(config, stop));
  ASSIGN_OR_RETURN(TrainerOptions options, PrepareTrainer(config, *runtime));
  ASSIGN_OR_RETURN(runtime->trainer, Trainer::Create(*runtime->model, *runtime->device, std::move(options)));
  return runtime;
}

TrainingOutline OutlineOf(const TrainingRuntime& runtime) {
  return {.device = runtime.device->name(),
          .parameters = runtime.model->layout().elements(),
          .layout = TrainedLayout(runtime.model->layout()),
          .data = runtime.data.training.size()};
}

absl::StatusOr<TrainingOutline> CheckTraining(const Config& config, int64_t workers_here, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const DatasetSize data, MeasureTrainingData(config, stop));
  // Without a GPU, of which nothing would be given back until this process ends.
  const bool on_gpu = config.train.device == DeviceKind::kCuda;
  Config on_cpu = config;
  on_cpu.train.device = DeviceKind::kCpu;
  TrainingRuntime checked;
  checked.slot.workers_here = on_gpu ? 0 : workers_here;
  RETURN_IF_ERROR(PrepareTrainer(on_cpu, checked).status());
  std::string device = checked.device->name();
  if (on_gpu && workers_here > 0) {
    ASSIGN_OR_RETURN(const std::string table, ReadGemmTable(config.train));
    ASSIGN_OR_RETURN(device, CheckCudaDevice(GpuOf(0), {.gemm_table = table}));
    RETURN_IF_ERROR(CheckHeads(config));
    RETURN_IF_ERROR(CheckGpus(config, workers_here));
  }
  return TrainingOutline{.device = device,
                         .parameters = checked.model->layout().elements(),
                         .layout = TrainedLayout(checked.model->layout()),
                         .data = data};
}

}  // namespace holdfast
