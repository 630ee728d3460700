#include "checkpoint/admin/model_upcycle.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "checkpoint/admin/new_directory.h"
#include "checkpoint/model_directory.h"
#include "checkpoint/saved_model.h"
#include "checkpoint/saved_model_reader.h"
#include "framework/base/counted.h"
#include "framework/base/status.h"
#include "framework/config/validate.h"
#include "framework/tensor/device.h"
#include "models/families/families.h"
#include "models/families/huggingface.h"
#include "models/runtime/initial_model.h"
#include "models/runtime/saved_model_files.h"
#include "models/transformer.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;

/// Where the values of a parameter come from.
enum class Origin : uint8_t { kDense, kNormal, kZeros };

/// What the parameter is called in the dense model: "blocks.3.experts.17.down.weight" is "blocks.3.mlp.down.weight".
std::string DenseName(const std::string& name) {
  std::vector<std::string> parts = absl::StrSplit(name, '.');
  if (parts.size() < 4 || parts[2] != "experts") return name;
  parts[2] = "mlp";
  parts.erase(parts.begin() + 3);
  return absl::StrJoin(parts, ".");
}

Origin OriginOf(const std::string& name) {
  if (absl::StrContains(name, ".experts.router.")) return Origin::kNormal;
  const bool shared = absl::StrContains(name, ".experts.shared.");
  if (shared && !absl::StrContains(name, ".gate_up.")) return Origin::kZeros;
  return Origin::kDense;
}

/// The values of the model with experts, in pieces.
class UpcycledValues {
 public:
  UpcycledValues(const ParameterLayout& layout, const ParameterLayout& dense_layout, const SavedModelReader& dense,
                 uint64_t seed, Stream& stream)
      : layout_(layout), dense_layout_(dense_layout), dense_(dense), seed_(seed), stream_(stream) {}

  /// Of one parameter.
  absl::Status Read(int64_t first, absl::Span<float> out) const {
    const auto after = std::upper_bound(layout_.parameters().begin(), layout_.parameters().end(), first,
                                        [](int64_t at, const ParameterSpec& p) { return at < p.offset; });
    const ParameterSpec& parameter = *(after - 1);
    const int64_t inside = first - parameter.offset;
    switch (OriginOf(parameter.name)) {
      case Origin::kZeros:
        std::fill(out.begin(), out.end(), 0.0f);
        return absl::OkStatus();
      case Origin::kNormal: {
        const auto site = static_cast<uint32_t>(after - 1 - layout_.parameters().begin());
        stream_.ops().FillNormal(out.data(), static_cast<int64_t>(out.size()), inside, parameter.init_std,
                                 {.seed = seed_, .site = site});
        return stream_.Synchronize();
      }
      case Origin::kDense:
        break;
    }
    const int dense = dense_layout_.Find(DenseName(parameter.name));
    HOLDFAST_CHECK(dense >= 0);
    const ParameterSpec& copied = dense_layout_.parameters()[static_cast<size_t>(dense)];
    HOLDFAST_CHECK(copied.shape == parameter.shape);
    return dense_.Read(copied.offset + inside, out);
  }

 private:
  const ParameterLayout& layout_;
  const ParameterLayout& dense_layout_;
  const SavedModelReader& dense_;
  uint64_t seed_;
  Stream& stream_;
};

/// Of all the model's tensors, if it is one; else fp32.
absl::StatusOr<FileDType> DTypeOf(const std::string& directory) {
  ASSIGN_OR_RETURN(const ModelDirectory model, ModelDirectory::Open(directory));
  std::optional<FileDType> common;
  for (const auto& [name, file] : model.tensors()) {
    const FileDType dtype = file->entries().at(name).dtype;
    if (dtype == FileDType::kOther) continue;
    if (common.value_or(dtype) != dtype) return FileDType::kF32;
    common = dtype;
  }
  return common.value_or(FileDType::kF32);
}

/// `tokenizer`: the dense model's tokenizer.json, where it takes one to say all of its tokenizer.
absl::StatusOr<SavedModelFiles> FilesOf(const ModelConfig& config, const std::string& tokenizer, bool byte_tokenizer,
                                        FileDType dtype) {
  if (!tokenizer.empty()) return MakeSavedModelFiles(config, tokenizer, dtype);
  if (byte_tokenizer) return MakeSavedModelFiles(config, "bytes", dtype);
  return SavedModelFiles{.config_json = HuggingFaceConfigJson(config, {}, TorchName(dtype)), .others = {}};
}

/// Of the families with experts that there are.
std::string WhyNoExperts(const ModelConfig& dense) {
  if (dense.activation != ActivationKind::kSwiglu) return ", as experts are SwiGLU layers (model.activation)";
  if (dense.norm_position != NormPosition::kBefore) return ", as none has norms at the end of branches";
  if (dense.family == "phi3") return ", as Phi's own (PhiMoE), with LayerNorm and other routers, is not supported";
  return "";
}

absl::Status CheckPlace(const std::string& output) {
  if (IsAbsentOrEmpty(output)) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(output, ": there is something already; name a new directory"));
}

}  // namespace

absl::StatusOr<ModelConfig> UpcycledConfig(const ModelConfig& dense, int64_t experts, int64_t experts_per_token) {
  if (dense.num_experts > 0) {
    return absl::InvalidArgumentError(absl::StrCat("the model has ", Counted(dense.num_experts, "expert"), " already"));
  }
  const Family* family = FindFamily(dense.family);
  const Family* target = family == nullptr ? nullptr : family->with_experts();
  if (target == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("there is no family with experts for a model of family ",
                                                   dense.family, WhyNoExperts(dense),
                                                   "; there is one for llama, mistral, qwen2 and qwen3"));
  }
  ModelConfig config = dense;
  config.family = target->name();
  config.num_experts = experts;
  config.experts_per_token = experts_per_token;
  config.expert_intermediate_size = dense.intermediate_size;
  config.router_normalize = true;
  if (target->preset().shared_expert_gate) {
    config.shared_expert_intermediate_size = dense.intermediate_size;
    config.shared_expert_gate = true;
  }
  RETURN_IF_ERROR(CheckModel(config));
  const std::string key = target->InexpressibleKey(config);
  if (key.empty() || ExactFamily(dense) == nullptr) return config;
  return absl::InvalidArgumentError(
      absl::StrCat("model.", key, " has a value that a ", target->name(), " cannot have"));
}

absl::StatusOr<ModelConfig> UpcycleModel(const UpcycleOptions& options, const ByteProgress& progress) {
  RETURN_IF_ERROR(CheckPlace(options.output));
  ASSIGN_OR_RETURN(const std::optional<InitialModel> initial, ReadInitialModel(options.dense));
  if (!initial.has_value()) return absl::InvalidArgumentError("the name of the dense model is empty");
  ASSIGN_OR_RETURN(const HuggingFaceConfig dense, ReadModelConfig(options.dense));
  absl::StatusOr<ModelConfig> config = UpcycledConfig(dense.model, options.experts, options.experts_per_token);
  if (!config.ok()) return Annotate(config.status(), options.dense);
  const ParameterLayout dense_layout = TransformerLayout(dense.model), layout = TransformerLayout(*config);
  const auto ignorable = [&](const std::string& name) { return IsIgnorableHuggingFaceTensor(dense.model, name); };
  ASSIGN_OR_RETURN(
      const SavedModelReader reader,
      SavedModelReader::Open(options.dense, dense_layout, HuggingFaceTensorMap(dense.model, dense_layout), ignorable));
  ASSIGN_OR_RETURN(const FileDType own_dtype, DTypeOf(options.dense));
  const FileDType dtype = options.dtype.value_or(own_dtype);
  ASSIGN_OR_RETURN(const SavedModelFiles files, FilesOf(*config, initial->tokenizer, dense.byte_tokenizer, dtype));

  const std::unique_ptr<Device> device = MakeCpuDevice(1);
  ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device->CreateStream());
  const UpcycledValues values(layout, dense_layout, reader, options.seed, *stream);
  ByteCounter counter(static_cast<uint64_t>(layout.elements()) * sizeof(float), progress);
  const auto read = [&](int64_t first, absl::Span<float> out) {
    if (options.stop.stop_requested()) return absl::CancelledError("stopped");
    RETURN_IF_ERROR(values.Read(first, out));
    counter.Add(out.size() * sizeof(float));
    return absl::OkStatus();
  };
  const absl::Status saved = SaveModel(options.output, layout, HuggingFaceTensorMap(*config, layout), read, dtype,
                                       files, options.max_file_bytes);
  if (saved.ok()) return *config;
  std::error_code ignored;
  fs::remove(options.output, ignored);  // if it is empty
  return saved;
}

}  // namespace holdfast
