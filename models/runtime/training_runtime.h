#pragma once
// What one worker trains with, from a config: data, device, model, trainer.
//
//   config.data ............................ OpenTrainingData    (training_data.h)
//   config.train.device, .threads .......... MakeDevice          (run_device.h)
//   config.model, .train.compute_dtype ..... MakeModel           (make_model.h)
//   config.batch, .optimizer, .schedule .... MakeTrainerOptions  (trainer_options.h)
//   and all of it together ................. CheckHostMemory     (memory_estimate.h), Trainer::Create

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "framework/config/config.h"
#include "framework/nn/layout.h"
#include "framework/train/trainer.h"
#include "models/language_model.h"
#include "models/runtime/run_device.h"
#include "models/runtime/training_data.h"

namespace holdfast {

/// Members are in order of construction.
struct TrainingRuntime {
  WorkerSlot slot;
  TrainingData data;
  std::unique_ptr<Device> device;
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<Trainer> trainer;
};

/// Everything that `config` says is opened and checked, and whether it fits into the memory that `slot` leaves. `stop`:
/// as in OpenTrainingData.
absl::StatusOr<std::unique_ptr<TrainingRuntime>> OpenTraining(const Config& config, const WorkerSlot& slot,
                                                              const std::stop_token& stop = {});

/// What a run will train, for a process that starts it.
struct TrainingOutline {
  std::string device;
  int64_t parameters = 0;  // all of them
  ParameterLayout layout;  // of those that are trained
  DatasetSize data;
};
TrainingOutline OutlineOf(const TrainingRuntime& runtime);

/// The same where the workers are other processes: checks what OpenTraining does, but reads no token, makes no trainer
/// and takes no GPU (whether this build has kernels for it, only a worker finds out). `workers_here`: how many of them
/// will share this machine; 0 = it needs no memory for them.
absl::StatusOr<TrainingOutline> CheckTraining(const Config& config, int64_t workers_here,
                                              const std::stop_token& stop = {});

}  // namespace holdfast
