#pragma once
// The weight files of a saved model directory as one set of named tensors, whether in one file or in shards.

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/safetensors.h"

namespace holdfast {

inline constexpr char kWeightsFile[] = "model.safetensors";
inline constexpr char kWeightsIndexFile[] = "model.safetensors.index.json";
inline constexpr char kConfigFile[] = "config.json";
inline constexpr char kTokenizerFile[] = "tokenizer.json";
inline constexpr char kTokenizerConfigFile[] = "tokenizer_config.json";
inline constexpr char kGenerationConfigFile[] = "generation_config.json";
inline constexpr char kChatTemplateFile[] = "chat_template.jinja";
inline constexpr char kChatTemplateDirectory[] = "additional_chat_templates";  // *.jinja: those with names
inline constexpr char kAdapterConfigFile[] = "adapter_config.json";
inline constexpr char kAdapterWeightsFile[] = "adapter_model.safetensors";
/// What else a saved model may have: one left over from an older model would be taken for the new one's.
inline constexpr std::array kOtherFiles = {
    kTokenizerFile,      kTokenizerConfigFile, kGenerationConfigFile, "special_tokens_map.json",
    "added_tokens.json", kChatTemplateFile,    kAdapterConfigFile,    kAdapterWeightsFile};

/// Whether config.json and weights of a model lie in `directory`.
bool HoldsConfigAndWeights(const std::string& directory);

/// Thread-safe.
class ModelDirectory {
 public:
  /// Opens model.safetensors or, if there is none, every shard of the index. Shards must be files of this directory (or
  /// links to blobs of the Hugging Face cache it belongs to), and index and shards must name the same tensors.
  /// NotFound if neither is there; InvalidArgument where the weights are in a pytorch_model.bin instead.
  static absl::StatusOr<ModelDirectory> Open(const std::string& directory);

  /// Tensor -> the file that holds it.
  const std::map<std::string, const SafetensorsReader*>& tensors() const { return tensors_; }
  /// Null if there is no such tensor.
  const SafetensorsEntry* Find(const std::string& name) const;

 private:
  ModelDirectory() = default;
  absl::Status OpenShards(const std::string& directory);
  absl::Status CheckIndex(const std::map<std::string, std::string>& weight_map,
                          const std::map<std::string, const SafetensorsReader*>& shards);

  std::vector<std::unique_ptr<SafetensorsReader>> files_;
  std::map<std::string, const SafetensorsReader*> tensors_;
};

}  // namespace holdfast
