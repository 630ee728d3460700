#include "models/runtime/initial_weights.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/saved_model_reader.h"
#include "framework/base/status.h"
#include "framework/nn/trained_part.h"
#include "models/families/huggingface.h"
#include "models/runtime/initial_model.h"
#include "models/transformer.h"

#define XXH_INLINE_ALL
#include "xxhash.h"

namespace holdfast {
namespace {

constexpr int64_t kPieceElements = int64_t{1} << 20;  // hashed at a time, or a row

struct XxhState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

std::string DigestText(XXH64_hash_t digest) { return absl::StrCat(absl::Hex(digest, absl::kZeroPad16)); }

/// A saved model, by the names of our parameters.
class SavedWeights {
 public:
  static absl::StatusOr<std::shared_ptr<const SavedWeights>> Open(const Config& config) {
    ModelConfig model = config.model;
    if (model.router_bias) {
      ASSIGN_OR_RETURN(const HuggingFaceConfig saved, ReadModelConfig(config.train.init_from));
      model.router_bias = saved.model.router_bias;
    }
    ParameterLayout layout = TransformerLayout(model);
    const auto ignorable = [&](const std::string& name) { return IsIgnorableHuggingFaceTensor(model, name); };
    ASSIGN_OR_RETURN(SavedModelReader reader, SavedModelReader::Open(config.train.init_from, layout,
                                                                     HuggingFaceTensorMap(model, layout), ignorable));
    return std::shared_ptr<const SavedWeights>(new SavedWeights(std::move(layout), std::move(reader)));
  }

  const ParameterLayout& layout() const { return layout_; }
  absl::Status Read(int64_t first, absl::Span<float> out) const { return reader_.Read(first, out); }

  /// Of all values in fp32, whatever files and dtype they are kept in.
  absl::StatusOr<std::string> Digest() const {
    const std::unique_ptr<XXH3_state_t, XxhState> state(XXH3_createState());
    XXH3_64bits_reset(state.get());
    std::vector<float> values;
    for (const ParameterSpec& spec : layout_.parameters()) {
      const int64_t cols = spec.shape.cols(), step = std::max<int64_t>(1, kPieceElements / cols) * cols;
      for (int64_t first = 0; first < spec.shape.elements(); first += step) {
        values.resize(static_cast<size_t>(std::min(step, spec.shape.elements() - first)));
        RETURN_IF_ERROR(Read(spec.offset + first, absl::MakeSpan(values)));
        XXH3_64bits_update(state.get(), values.data(), values.size() * sizeof(float));
      }
    }
    return DigestText(XXH3_64bits_digest(state.get()));
  }

 private:
  SavedWeights(ParameterLayout layout, SavedModelReader reader)
      : layout_(std::move(layout)), reader_(std::move(reader)) {}

  ParameterLayout layout_;
  SavedModelReader reader_;
};

absl::Status CheckDigest(const Config& config, const SavedWeights& saved) {
  if (config.train.init_digest.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string digest, saved.Digest());
  if (digest == config.train.init_digest) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the weights in ", config.train.init_from, " have the digest ", digest, ", but train.init_digest is ",
      config.train.init_digest, ": this is another model than the run began with; bring that one back"));
}

}  // namespace

absl::StatusOr<ReadWeightsFn> OpenInitialWeights(const Config& config, const ParameterLayout& layout) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const SavedWeights> saved, SavedWeights::Open(config));
  RETURN_IF_ERROR(CheckDigest(config, *saved));
  std::vector<int> in_saved;
  for (const ParameterSpec& spec : layout.parameters()) in_saved.push_back(saved->layout().Find(spec.name));
  return [saved, layout, in_saved](int64_t first, absl::Span<float> out) {
    const auto parameter = static_cast<size_t>(ParameterAt(layout, first));
    if (in_saved[parameter] < 0) {  // a bias of a router
      std::fill(out.begin(), out.end(), 0.0f);
      return absl::OkStatus();
    }
    const ParameterSpec& spec = saved->layout().parameters()[static_cast<size_t>(in_saved[parameter])];
    return saved->Read(spec.offset + first - layout.parameters()[parameter].offset, out);
  };
}

absl::Status CheckInitialWeights(const Config& config) {
  return config.train.init_from.empty() ? absl::OkStatus() : SavedWeights::Open(config).status();
}

absl::Status ReadInitialWeights(const Config& config) {
  if (config.train.init_from.empty() || config.trains_part()) return absl::OkStatus();
  return Annotate(InitialWeightsDigest(config).status(), "train.init_from");
}

absl::StatusOr<std::string> InitialWeightsDigest(const Config& config) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const SavedWeights> saved, SavedWeights::Open(config));
  return saved->Digest();
}

absl::Status ResolveInitDigest(Config* config) {
  if (!config->trains_part()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::shared_ptr<const SavedWeights> saved, SavedWeights::Open(*config));
  if (!config->train.init_digest.empty()) return CheckDigest(*config, *saved);
  ASSIGN_OR_RETURN(config->train.init_digest, saved->Digest());
  return absl::OkStatus();
}

}  // namespace holdfast
