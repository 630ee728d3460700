#include "tools/cli/tune_command.h"

#include <chrono>
#include <cstdio>
#include <limits>
#include <utility>

#include "framework/base/files.h"
#include "framework/base/seconds.h"
#include "framework/base/status.h"
#include "framework/storage/atomic_file.h"
#include "framework/tensor/cuda_device.h"
#include "models/runtime/gemm_table.h"
#include "models/runtime/make_model.h"
#include "models/runtime/trainer_options.h"
#include "tools/cli/output_arguments.h"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;

/// As a step has it; what the tokens are makes no difference to the products.
Microbatch AnyMicrobatch(const Config& config) {
  Microbatch microbatch;
  microbatch.batch = config.batch.microbatch_size;
  microbatch.sequence = config.batch.sequence_length;
  for (int64_t i = 0; i < config.batch.microbatch_tokens(); ++i) {
    microbatch.inputs.push_back(static_cast<int32_t>(i * 7919 % config.model.vocab_size));
  }
  microbatch.targets = microbatch.inputs;
  return microbatch;
}

/// Of a training step of one microbatch.
struct StepTime {
  double seconds = std::numeric_limits<double>::infinity();
  double queue_seconds = 0;  // until the processor had given all of it to the GPU
};

/// The least of a few. What comes before them, a step and an evaluation, asks `device` for every product that a run
/// does, at the very addresses' alignment: it is the trainer's own step.
absl::StatusOr<StepTime> TimeStep(const Config& config, Device& device) {
  constexpr int kTimed = 5;
  ASSIGN_OR_RETURN(const auto model, MakeModel(config, device));
  ASSIGN_OR_RETURN(TrainerOptions options, MakeTrainerOptions(config, *model));
  ASSIGN_OR_RETURN(const auto trainer, Trainer::Create(*model, device, std::move(options)));
  RETURN_IF_ERROR(trainer->EnterWorld({}, {}).status());
  const Microbatch microbatch = AnyMicrobatch(config);
  const auto source = [&](int64_t) -> absl::StatusOr<Microbatch> { return microbatch; };
  RETURN_IF_ERROR(trainer->Evaluate(1, source, {}).status());
  StepTime least;
  for (int i = 0; i <= kTimed; ++i) {
    const auto start = Clock::now();
    ASSIGN_OR_RETURN(const StepResult step, trainer->Prepare({.step = 1, .microbatches = {1}}, source, {}));
    const double seconds = SecondsSince(start);
    if (i > 0 && seconds < least.seconds) least = {seconds, step.queue_seconds};
  }
  return least;
}

absl::StatusOr<StepTime> TimeStepWith(const Config& config, const CudaDeviceOptions& options) {
  ASSIGN_OR_RETURN(const auto device, MakeCudaDevice(0, options));
  return TimeStep(config, *device);
}

struct Tuning {
  kernels::GemmTable table;
  size_t changed = 0;
};

absl::StatusOr<Tuning> TuneProducts(const Config& config) {
  Tuning tuning;
  const auto on_tuned = [&](const kernels::TunedGemm& gemm) {
    gemm.apart ? tuning.table.PinApart(gemm.product) : tuning.table.Pin(gemm.product, gemm.algorithm);
    tuning.changed += gemm.changed ? 1 : 0;
    std::printf("  %-64s %9.3f ms -> %9.3f ms  %.2fx%s\n", gemm.product.c_str(), static_cast<double>(gemm.preferred_ms),
                static_cast<double>(gemm.ms), static_cast<double>(gemm.preferred_ms / gemm.ms),
                gemm.apart ? " apart" : "");
    std::fflush(stdout);
  };
  ASSIGN_OR_RETURN(const auto device, MakeCudaDevice(0, {.gemm_table = "", .on_tuned = on_tuned}));
  std::printf("matrix products of a step on %s: without a table -> the fastest\n", device->name().c_str());
  RETURN_IF_ERROR(TimeStep(config, *device).status());
  return tuning;
}

/// Of any version of cuBLASLt.
bool IsGemmTable(const std::string& path) {
  const std::string head = kernels::GemmTable().Print(0);
  constexpr size_t kMostBytes = size_t{1} << 26;
  const absl::StatusOr<std::string> text = ReadFile(path, kMostBytes);
  return text.ok() && text->starts_with(head.substr(0, head.find(' ')));
}

}  // namespace

absl::StatusOr<int> TuneCommand::Run() const {
  ASSIGN_OR_RETURN(Config tuned, config.LoadUnresolved());
  if (tuned.train.device != DeviceKind::kCuda) {
    return UsageError("error: only GPUs are tuned: set train.device to cuda");
  }
  const std::string named = tuned.train.gemm_table.empty() ? tuned.run.name + ".gemm" : tuned.train.gemm_table;
  const std::string path = out.empty() ? named : out;
  RETURN_IF_ERROR(CheckReplaces("--out", path, "table of `holdfast tune`", IsGemmTable));
  tuned.batch.microbatches = 1;  // all are alike
  tuned.train.init_from.clear();
  ASSIGN_OR_RETURN(const Tuning tuning, TuneProducts(tuned));
  const std::string text = tuning.table.Print(GemmLibraryVersion());
  ASSIGN_OR_RETURN(const StepTime before, TimeStepWith(tuned, {}));
  ASSIGN_OR_RETURN(const StepTime after, TimeStepWith(tuned, {.gemm_table = text}));
  RETURN_IF_ERROR(WriteFileAtomically(path, text));
  std::printf("%d products, %d of them not as without a table; a step of one microbatch: %.2f ms -> %.2f ms, %.2fx\n",
              static_cast<int>(tuning.table.size()), static_cast<int>(tuning.changed), before.seconds * 1e3,
              after.seconds * 1e3, before.seconds / after.seconds);
  std::printf("the processor needs %.2f ms of that to queue the work\n", after.queue_seconds * 1e3);
  std::printf("%s  for train.gemm_table; train.gemm_table_digest: %s\n", path.c_str(), GemmTableDigest(text).c_str());
  return kExitDone;
}

void TuneCommand::AddTo(CLI::App& command) {
  config.AddTo(command);
  AddPathOption(command, "-o,--out", out, "file to write; default train.gemm_table, or else <run.name>.gemm");
}

}  // namespace holdfast
