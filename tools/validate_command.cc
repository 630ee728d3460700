// holdfast validate: what a config means, before a run is started with it.

#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

#include "absl/strings/str_format.h"
#include "framework/base/seconds.h"
#include "framework/base/status.h"
#include "framework/config/load.h"
#include "framework/metrics/progress.h"
#include "models/plan.h"
#include "tools/command.h"
#include "tools/memory_estimate.h"
#include "tools/run_arguments.h"
#include "tools/session.h"

namespace holdfast {
namespace {

/// FLOP/s of a square matrix product in the compute dtype on one stream of `device`: the median of a few.
absl::StatusOr<double> MeasureMatmulRate(Device& device, DType dtype) {
  constexpr int64_t kSize = 1024;
  constexpr int kRepeats = 7;
  HF_ASSIGN_OR_RETURN(const auto stream, device.CreateStream());
  HF_ASSIGN_OR_RETURN(Arena arena, Arena::Create(device, 3 * kSize * kSize * sizeof(float)));
  const Tensor a = arena.Allocate(dtype, {kSize, kSize}), b = arena.Allocate(dtype, {kSize, kSize}),
               c = arena.Allocate(DType::kF32, {kSize, kSize});
  for (const Tensor& operand : {a, b}) {  // not zeros, on which some processors run faster
    stream->ops().FillNormal(c.f32(), kSize * kSize, 0, 1.0f, {});
    if (dtype == DType::kBF16) {
      stream->ops().CastToBf16(operand.bf16(), c.f32(), kSize * kSize);
    } else {
      stream->ops().Copy(operand.data, c.data, operand.bytes());
    }
  }
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    stream->ops().Gemm({.a = a.matrix(), .b = b.matrix(), .transpose_b = true, .c = c.matrix()});
    HF_RETURN_IF_ERROR(stream->Synchronize());
    seconds.push_back(SecondsSince(start));
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRepeats / 2, seconds.end());
  return 2.0 * kSize * kSize * kSize / seconds[kRepeats / 2];
}

void PrintRow(const std::string& label, const std::string& value) {
  std::printf("  %-28s %s\n", label.c_str(), value.c_str());
}

void PrintParameters(const ParameterLayout& layout) {
  std::printf("parameters by module\n");
  int64_t blocks = 0, block_elements = 0;
  for (const Unit& unit : layout.units()) {
    const bool block = unit.name.rfind("blocks.", 0) == 0;
    if (block) {
      ++blocks;
      block_elements = unit.elements;
      if (blocks > 1) continue;
    }
    PrintRow(block ? "each block" : unit.name, FormatCount(static_cast<double>(unit.elements)));
    for (int i = unit.first_parameter; i < unit.first_parameter + unit.num_parameters; ++i) {
      const ParameterSpec& p = layout.parameters()[static_cast<size_t>(i)];
      std::printf("    %-40s %-18s %s\n", p.name.c_str(), p.shape.ToString().c_str(),
                  FormatCount(static_cast<double>(p.shape.elements())).c_str());
    }
  }
  PrintRow(absl::StrCat(blocks, " blocks"), FormatCount(static_cast<double>(blocks * block_elements)));
  PrintRow("total", FormatCount(static_cast<double>(layout.elements())));
}

void PrintMemory(const MemoryEstimate& estimate, int64_t workers) {
  std::printf("memory of one worker of %d\n", static_cast<int>(workers));
  PrintRow("weights", FormatBytes(estimate.weights));
  PrintRow("gradients", FormatBytes(estimate.gradients));
  PrintRow("optimizer", FormatBytes(estimate.optimizer));
  PrintRow("activations", FormatBytes(estimate.activations));
  PrintRow("total", FormatBytes(estimate.total()));
}

/// What the other order of adding gradients would save, where that is worth a line.
void PrintGradientSumAdvice(const Config& config, const ParameterLayout& layout, const PassPlan& plan, size_t arena,
                            const MemoryEstimate& estimate) {
  Config chains = config;
  chains.batch.gradient_sum = GradientSumKind::kChains;
  const MemoryEstimate other = EstimateMemory(chains, layout, arena, plan.schedule);
  constexpr double kWorthALine = 0.9;
  if (other.total() > kWorthALine * estimate.total()) return;
  std::printf("  batch.gradient_sum: chains would need %s of gradients (other bits: choose it before a run begins)\n",
              FormatBytes(other.gradients).c_str());
}

absl::StatusOr<int> Validate(const ConfigArguments& arguments) {
  HF_ASSIGN_OR_RETURN(const Config config, arguments.Load());
  std::printf("%s\n", PrintConfig(config).c_str());
  HF_ASSIGN_OR_RETURN(const auto device, MakeDevice(config.train));
  HF_ASSIGN_OR_RETURN(const auto model, MakeModel(config, *device));
  PrintParameters(model->layout());

  const BatchConfig& batch = config.batch;
  const PassPlan plan = PlanTraining(*model, batch.microbatch_size, batch.sequence_length);
  HF_ASSIGN_OR_RETURN(const size_t arena, ArenaBytes(*model, config.model.vocab_size, batch.microbatch_size,
                                                     batch.sequence_length, /*training=*/true));
  const MemoryEstimate estimate = EstimateMemory(config, model->layout(), arena, plan.schedule);
  PrintMemory(estimate, config.elastic.workers);
  PrintGradientSumAdvice(config, model->layout(), plan, arena, estimate);

  HF_ASSIGN_OR_RETURN(const double rate, MeasureMatmulRate(*device, model->compute_dtype()));
  const auto tokens = static_cast<double>(batch.step_tokens());
  const double step_flops = plan.flops * static_cast<double>(batch.microbatches);
  std::printf("work\n");
  PrintRow("tokens per step", FormatCount(tokens));
  PrintRow("FLOPs per token", FormatCount(step_flops / tokens));
  PrintRow("measured matmul rate", absl::StrFormat("%.0f GFLOP/s on %s", rate / 1e9, device->name()));
  PrintRow("estimated step", FormatDuration(step_flops / rate) + " (matrix products alone, one worker)");
  PrintRow("estimated run", FormatDuration(step_flops / rate * static_cast<double>(config.train.steps)));
  return kExitDone;
}

}  // namespace

void AddValidateCommand(CLI::App& parent, CommandBody& body) {
  CLI::App* command = parent.add_subcommand("validate", "Check a config and print what it means");
  auto arguments = std::make_shared<ConfigArguments>();
  arguments->AddTo(*command);
  command->callback([arguments, &body] { body = [arguments] { return Validate(*arguments); }; });
}

}  // namespace holdfast
