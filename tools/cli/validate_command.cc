#include "tools/cli/validate_command.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "framework/base/counted.h"
#include "framework/base/format_bytes.h"
#include "framework/base/processors.h"
#include "framework/base/seconds.h"
#include "framework/base/status.h"
#include "framework/config/enums.h"
#include "framework/config/load.h"
#include "framework/config/validate.h"
#include "framework/metrics/progress.h"
#include "framework/nn/trained_part.h"
#include "models/expert_bytes.h"
#include "models/experts.h"
#include "models/families/families.h"
#include "models/families/family.h"
#include "models/parametrization.h"
#include "models/plan.h"
#include "models/runtime/initial_weights.h"
#include "models/runtime/make_model.h"
#include "models/runtime/memory_estimate.h"
#include "models/runtime/pass_plans.h"
#include "models/runtime/run_device.h"

namespace holdfast {
namespace {

/// FLOP/s of a square matrix product in the compute dtype on one stream of `device`: the median of a few.
absl::StatusOr<double> MeasureMatmulRate(Device& device, DType dtype) {
  constexpr int64_t kSize = 1024;
  constexpr int kRepeats = 7;
  ASSIGN_OR_RETURN(const auto stream, device.CreateStream());
  ASSIGN_OR_RETURN(Arena arena, Arena::Create(device, 3 * kSize * kSize * sizeof(float)));
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
    RETURN_IF_ERROR(stream->Synchronize());
    seconds.push_back(SecondsSince(start));
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRepeats / 2, seconds.end());
  return 2.0 * kSize * kSize * kSize / seconds[kRepeats / 2];
}

void PrintRow(const std::string& label, const std::string& value) {
  std::printf("  %-28s %s\n", label.c_str(), value.c_str());
}

void PrintParameter(const ParameterSpec& p) {
  std::printf("    %-40s %-18s %s%s\n", p.name.c_str(), p.shape.ToString().c_str(),
              FormatCount(static_cast<double>(p.shape.elements())).c_str(), p.frozen ? "  frozen" : "");
}

/// Of blocks that are alike the first, of the experts of a block the first.
void PrintParameters(const ModelConfig& config, const ParameterLayout& layout) {
  std::printf("parameters by module\n");
  std::set<std::tuple<bool, int64_t, int64_t>> printed;  // whether experts, elements, elements that are frozen
  int64_t block_elements = 0;
  for (const Unit& unit : layout.units()) {
    const bool block = absl::StartsWith(unit.name, "blocks."), experts = block && absl::EndsWith(unit.name, ".experts");
    if (block) block_elements += unit.elements;
    const auto parameters = layout.parameters().subspan(static_cast<size_t>(unit.first_parameter),
                                                        static_cast<size_t>(unit.num_parameters));
    int64_t frozen = 0;
    for (const ParameterSpec& p : parameters) frozen += p.frozen ? p.shape.elements() : 0;
    if (block && !printed.emplace(experts, unit.elements, frozen).second) continue;
    PrintRow(experts ? absl::StrCat("the ", config.num_experts, " experts of one")
                     : (block ? absl::StrCat("a block as ", unit.name) : unit.name),
             FormatCount(static_cast<double>(unit.elements)));
    const int shown = experts ? unit.num_parameters / static_cast<int>(config.num_experts) : unit.num_parameters;
    for (const ParameterSpec& p : parameters.first(static_cast<size_t>(shown))) PrintParameter(p);
  }
  PrintRow(Counted(config.num_layers, "block"), FormatCount(static_cast<double>(block_elements)));
  PrintRow("total", FormatCount(static_cast<double>(layout.elements())));
  const auto trained = static_cast<double>(TrainedLayout(layout).elements());
  if (trained < static_cast<double>(layout.elements())) {
    PrintRow("trained", absl::StrFormat("%s (%.3g %%)", FormatCount(trained),
                                        100 * trained / static_cast<double>(layout.elements())));
  }
  if (config.num_experts == 0) return;
  PrintRow("active for a token", FormatCount(static_cast<double>(ActiveParameters(config))));
}

void PrintSavedForm(const ModelConfig& model, bool adapters) {
  const Family* family = FindFamily(model.family);
  const std::string key = family == nullptr ? "family" : family->InexpressibleKey(model);
  if (!key.empty()) {
    PrintRow("saved as", absl::StrCat(adapters ? "adapters" : "a model",
                                      " of Holdfast's own, which transformers does not load, by model.", key));
    return;
  }
  const std::string refused = family->RefusedBecause(model);
  const char* const article = absl::StartsWith(model.family, "o") ? "an " : "a ";
  PrintRow("saved as", absl::StrCat(adapters ? "adapters of PEFT for " : "", article, model.family, " of transformers",
                                    refused.empty() ? "" : ", which version 5 refuses to load: ", refused));
}

/// What the parametrization makes of each kind of parameter that the model has.
void PrintParametrization(const ModelConfig& model, OptimizerKind optimizer) {
  const bool experts = model.NumExpertLayers() > 0;
  const bool ends_with_bias = model.HasAttentionOutBias() || model.HasMlpBias() || model.expert_bias;
  const struct {
    ParameterRole role;
    const char* name;
    bool there;
  } kinds[] = {{ParameterRole::kEmbedding, "embeddings", true},
               {ParameterRole::kHidden, "matrices in blocks", true},
               {ParameterRole::kBranchOutput, "those that end a branch", true},
               {ParameterRole::kRouter, "routers, shared gates", experts},
               {ParameterRole::kVector, "norms, biases in blocks", true},
               {ParameterRole::kQueryNorm, "norms of query", model.qk_norm},
               {ParameterRole::kBranchBias, "biases that end a branch", ends_with_bias},
               {ParameterRole::kFinalNorm, "final norm", true},
               {ParameterRole::kHead, "head", !model.tie_embeddings}};
  std::printf("parametrization %s: times what a standard model has\n", Name(model.parametrization));
  PrintRow("", absl::StrFormat("%-12s %-12s %-12s %s", "init", "lr", "weight decay", "eps"));
  for (const auto& [role, name, there] : kinds) {
    if (!there) continue;
    const ParameterFactors f = FactorsOf(role, model, optimizer);
    PrintRow(name, absl::StrFormat("%-12.4g %-12.4g %-12.4g %.4g", f.init, f.lr, f.decay, f.eps));
  }
}

/// Parameters by learning rate and whether they are decayed, in the model's order of the first of each.
void PrintGroups(const OptimizerConfig& optimizer, const ParameterLayout& layout) {
  struct Group {
    float factor;
    bool decay;
    int64_t tensors = 0, elements = 0;
  };
  std::vector<Group> groups;
  for (const ParameterSpec& p : layout.parameters()) {
    if (p.frozen || p.balance.has_value()) continue;
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const Group& g) { return g.factor == p.lr_factor && g.decay == p.decay; });
    if (group == groups.end()) group = groups.insert(groups.end(), {.factor = p.lr_factor, .decay = p.decay});
    ++group->tensors;
    group->elements += p.shape.elements();
  }
  std::printf("learning rates\n");
  for (const Group& g : groups) {
    PrintRow(absl::StrFormat("%.4g (lr * %.4g)", optimizer.lr * static_cast<double>(g.factor), g.factor),
             absl::StrFormat("%s in %s%s", FormatCount(static_cast<double>(g.elements)), Counted(g.tensors, "tensor"),
                             g.decay ? "" : ", no decay"));
  }
}

void PrintMemory(const MemoryEstimate& estimate, int64_t workers, const std::string& where = "") {
  std::printf("memory of one worker of %d%s\n", static_cast<int>(workers), where.c_str());
  PrintRow("weights", FormatBytes(estimate.weights));
  if (estimate.frozen > 0) PrintRow("frozen weights", FormatBytes(estimate.frozen));
  PrintRow("gradients", FormatBytes(estimate.gradients));
  PrintRow("optimizer", FormatBytes(estimate.optimizer));
  PrintRow("activations", FormatBytes(estimate.activations));
  if (estimate.kernels > 0) PrintRow("kernels' working memory", FormatBytes(estimate.kernels));
  if (estimate.digests > 0) PrintRow("digests", FormatBytes(estimate.digests));
  PrintRow("total", FormatBytes(estimate.total()));
}

/// Of a mixture of experts: where its experts are computed, why, and what the other way would take.
void PrintExpertPlacement(const Config& config, const ParameterLayout& layout, const PassPlans& plans) {
  const ExpertBytes bytes = ExpertBytesOf(config);
  const bool move = MovesTokens(config), automatic = config.parallel.experts == ExpertPlacement::kAuto;
  const char* const why = config.trains_part() ? ", as a part is frozen" : ", which sends fewer bytes";
  std::printf("experts\n");
  PrintRow("parallel.experts", absl::StrCat(Name(config.parallel.experts),
                                            automatic ? move ? ": move" : ": gather" : "", automatic ? why : ""));
  if (!config.trains_part()) {
    const std::string among = absl::StrCat(" a microbatch, among ", Counted(bytes.workers, "worker"), ": its ");
    PrintRow("gather, a layer sends", absl::StrCat(FormatBytes(bytes.gather), among, "experts"));
    PrintRow("move, a layer sends",
             absl::StrCat(FormatBytes(bytes.move), among, "tokens, if all experts are chosen alike"));
  }
  const int64_t tokens = config.batch.microbatch_tokens(), room = ExpertCapacity(config.model, tokens);
  PrintRow("an expert takes", room > 0 && room < tokens
                                  ? absl::StrCat("up to ", room, " of a microbatch's ", tokens, " tokens in training")
                                  : "all tokens that choose it");
  if (config.parallel.overlap_microbatches) {
    PrintRow("microbatches", OverlapsMicrobatches(config) ? "two of a worker take turns while tokens travel"
                             : !ComputesInParts(config)   ? "one at a time, as no tokens travel"
                                                          : "one at a time, as no worker has two in a step");
  }
  Config other = config;
  other.parallel.experts = move ? ExpertPlacement::kGather : ExpertPlacement::kMove;
  if (ComputesInParts(config) == ComputesInParts(other)) return;  // weights are not sharded
  PrintMemory(EstimateMemory(other, layout, plans), config.elastic.workers,
              move ? " with parallel.experts: gather" : " with parallel.experts: move");
}

/// What the other order of adding gradients would save, where that is worth a line.
void PrintGradientSumAdvice(const Config& config, const ParameterLayout& layout, const PassPlans& plans,
                            const MemoryEstimate& estimate) {
  Config chains = config;
  chains.batch.gradient_sum = GradientSumKind::kChains;
  const MemoryEstimate other = EstimateMemory(chains, layout, plans);
  constexpr double kWorthALine = 0.9;
  if (other.total() > kWorthALine * estimate.total()) return;
  std::printf("  batch.gradient_sum: chains would need %s of gradients (other bits: choose it before a run begins)\n",
              FormatBytes(other.gradients).c_str());
}

/// Of a run whose workers are all on this machine: what is said if they do not fit here, or "". It may be validated on
/// another machine than it is to run on.
std::string MemoryWarning(const Config& config, const MemoryEstimate& estimate, int64_t workers_given) {
  const bool all_here = workers_given > 0 || config.elastic.workers == 1;
  if (!all_here || config.train.device != DeviceKind::kCpu) return "";
  return std::string(CheckHostMemory(estimate, config, config.elastic.workers).message());
}

}  // namespace

absl::StatusOr<int> ValidateCommand::Run() const {
  ConfigArguments what = config;
  what.SetWorkers(workers);
  ASSIGN_OR_RETURN(const Config checked, what.LoadBeforeData());
  std::printf("%s\n", PrintConfig(checked).c_str());
  ASSIGN_OR_RETURN(const auto device, MakeDevice(checked.train));
  ASSIGN_OR_RETURN(const auto model, MakeModel(checked, *device));
  PrintParameters(checked.model, model->layout());
  PrintSavedForm(checked.model, checked.lora.rank > 0);
  if (checked.model.parametrization != Parametrization::kStandard) {
    PrintParametrization(checked.model, checked.optimizer.name);
  }
  if (checked.optimizer.has_groups()) PrintGroups(checked.optimizer, model->layout());

  const BatchConfig& batch = checked.batch;
  const bool has_experts = checked.model.NumExpertLayers() > 0;
  PassPlans plans = PlanPasses(*model, batch.microbatch_size, batch.sequence_length, has_experts);
  if (device->is_cpu()) {
    ASSIGN_OR_RETURN(plans.scratch_bytes, CpuScratchBytes(checked, *model, std::max<int64_t>(1, workers)));
  }
  const MemoryEstimate estimate = EstimateMemory(checked, model->layout(), plans);
  PrintMemory(estimate, checked.elastic.workers);
  PrintGradientSumAdvice(checked, model->layout(), plans, estimate);
  if (has_experts) PrintExpertPlacement(checked, model->layout(), plans);

  ASSIGN_OR_RETURN(const double rate, MeasureMatmulRate(*device, model->compute_dtype()));
  const auto tokens = static_cast<double>(batch.step_tokens());
  const double step_flops = plans.training.flops * static_cast<double>(batch.microbatches);
  std::printf("work\n");
  PrintRow("tokens per step", FormatCount(tokens));
  PrintRow("FLOPs per token", FormatCount(step_flops / tokens));
  PrintRow("measured matmul rate", absl::StrFormat("%.0f GFLOP/s on %s", rate / 1e9, device->name()));
  PrintRow("estimated step", FormatDuration(step_flops / rate) + " (matrix products alone, one worker)");
  PrintRow("estimated run", checked.train.steps == 0
                                ? "unknown, as is how many steps train.epochs is: data.train cannot be used"
                                : FormatDuration(step_flops / rate * static_cast<double>(checked.train.steps)));
  for (const std::string& warning :
       {IdleWorkersWarning(checked), UntrainedPositionsWarning(checked), LongFactorsWarning(checked),
        MemoryWarning(checked, estimate, workers),
        TooManyThreadsWarning("train.threads", checked.train.threads, std::max<int64_t>(1, workers))}) {
    if (!warning.empty()) std::printf("warning: %s\n", warning.c_str());
  }
  RETURN_IF_ERROR(CheckHeads(checked));  // at the end, as what follows: sizes are of use before there is data
  RETURN_IF_ERROR(CheckInitialWeights(checked));
  RETURN_IF_ERROR(CheckDataOf(checked));
  RETURN_IF_ERROR(CheckAlertsOf(checked));
  return kExitDone;
}

void ValidateCommand::AddTo(CLI::App& command) {
  config.AddTo(command);
  AddWorkersOption(command, workers, "what it means for so many workers, as train has it; default elastic.workers");
}

}  // namespace holdfast
