#pragma once
// Checks that need more than one key, and the values that follow from others. Pure.

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "framework/config/config.h"

namespace holdfast {

struct Violation {
  std::vector<std::string> keys;  // "section.key" of all keys involved, the likeliest culprit first
  std::string message;
};

/// Fills in what stands as 0 for a value derived from other keys: num_kv_heads, head_dim, intermediate_size,
/// and with experts expert_intermediate_size. A rope_dim that is all of head_dim becomes 0.
/// schedule.decay_steps and train.threads stay 0: they follow a later --set train.steps and the machine.
void ResolveDerived(ModelConfig* model);

/// An item of optimizer.lr_factors.
struct LrFactor {
  std::string pattern;
  double factor = 1;
};

/// "embedding.*=0.1"; none if it is something else, or the factor is not from 0 to 1000.
std::optional<LrFactor> ParseLrFactor(const std::string& text);

/// All violations of an unresolved or resolved config whose keys are each within their own range.
std::vector<Violation> ValidateConfig(const Config& config);

/// "1 of 3 workers has nothing to compute ..."; empty if each has a microbatch. They hold state, so that is allowed.
std::string IdleWorkersWarning(const Config& config);
/// "positions 65 to 1024 ... are never trained ..."; empty if all are, or follow from angles, or are those of a model.
std::string UntrainedPositionsWarning(const Config& config);
/// "... transformers takes model.rope_short_factors ..."; empty if it takes those that the run trains with.
std::string LongFactorsWarning(const Config& config);

/// InvalidArgument, naming every key, if a value of a resolved model is out of its range or does not fit the others.
/// For models that come from elsewhere than a config file.
absl::Status CheckModel(const ModelConfig& model);

struct ModelDifference {
  std::string key, ours, theirs;  // "norm_eps", "1e-05", "1e-06"
};

/// The keys of two resolved models with which the same weights make other numbers. Not among them: the family, which
/// only presets other keys, dropout, initial values and parametrization, what the router does in training only, and
/// what does not matter to the kind of position.
std::vector<ModelDifference> ArithmeticDifferences(const ModelConfig& ours, const ModelConfig& theirs);

}  // namespace holdfast
