#pragma once
// Reads a config file and --set overrides into a Config; reports every error at once.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/config/config.h"
#include "framework/config/validate.h"

namespace holdfast {

/// The model whose weights a run starts from, as its own files describe it (dropout aside).
struct InitialModel {
  ModelConfig model;
  std::string file;       // that says so
  std::string tokenizer;  // its own, as data.tokenizer names one; empty if it has none
};

/// Reads that model; `init_from` is train.init_from, empty if it is not set. Nothing if the run starts from none.
using InitialModelFn = std::function<absl::StatusOr<std::optional<InitialModel>>(const std::string& init_from)>;

/// A value of model.family, and a model of which position, norm, norm_position, activation, bias, attention_bias,
/// qkv_bias, qk_norm, qk_norm_joint, attention_sinks, tie_embeddings, scale_embeddings, rope_scaling_layers,
/// num_experts, experts_per_token, expert_bias, swiglu_limit, router_score, router_normalize, router_bias and
/// shared_expert_gate are what it presets.
struct FamilyPreset {
  std::string name;
  ModelConfig model;
};

/// What is known of models elsewhere: this room knows no family and reads no saved model.
struct ModelSources {
  absl::Span<const FamilyPreset> families;
  InitialModelFn initial_model = nullptr;
  /// What of a resolved config, which is otherwise right, does not fit the model's parameters.
  std::function<std::vector<Violation>(const Config&)> check_parameters = nullptr;
};

/// Defaults < family preset < initial model (and its tokenizer) < file < overrides ("section.key=value"). On any error:
/// InvalidArgument whose message has one line per error, "file:line: section.key: what is wrong (did you mean 'x'?)",
/// all of them, in file order; overrides are reported as "--set section.key=value: what is wrong". A value is YAML, so
/// lists work: "data.train=[a.bin, b.bin]"; the last of two overrides of a key counts. Zeros that stand for a derived
/// value (head_dim, num_kv_heads, intermediate_size, expert_intermediate_size) are resolved in the result;
/// train.threads and schedule.decay_steps stay as they are. A file that is not there is NotFound,
/// one that may not be read PermissionDenied, a directory or a pipe with a name InvalidArgument.
///
/// With an initial model, a key of `model` that decides its arithmetic and has another value there is such an error. If
/// it cannot be read and nothing else is wrong, that error is returned as it is.
absl::StatusOr<Config> LoadConfig(const std::string& path, absl::Span<const std::string> overrides,
                                  const ModelSources& models);

/// The text of a config file, or as much of it as shows that it is too large. Errors as above.
absl::StatusOr<std::string> ReadConfigFile(const std::string& path);

/// As LoadConfig, from text; `name` is used in messages.
absl::StatusOr<Config> ParseConfig(const std::string& text, const std::string& name,
                                   absl::Span<const std::string> overrides, const ModelSources& models);

/// The same of a config that a run has kept in its directory or in a checkpoint. Keys that nothing reads
/// (unused_keys.h) may have any value: earlier builds did not refuse them.
absl::StatusOr<Config> LoadStoredConfig(const std::string& path, absl::Span<const FamilyPreset> families);
absl::StatusOr<Config> ParseStoredConfig(const std::string& text, const std::string& name,
                                         absl::Span<const FamilyPreset> families);

/// The resolved config as YAML that LoadConfig reads back to the same values.
std::string PrintConfig(const Config& config);

/// Of a printed config, "section.key" -> "value", a list as "item, item".
std::map<std::string, std::string> ValuesByKey(const std::string& printed);

}  // namespace holdfast
