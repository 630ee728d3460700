#include "models/runtime/adapter_files.h"

#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/model_directory.h"
#include "checkpoint/saved_model.h"
#include "framework/base/log.h"
#include "framework/base/status.h"
#include "framework/data/tokenizer.h"
#include "models/runtime/adapted_layers.h"
#include "models/runtime/adapter_config.h"
#include "models/runtime/saved_model_files.h"

namespace holdfast {
namespace {

/// As PEFT has it: the rows of A that an adapter has, and the columns of B, are `rank` for each expert.
std::vector<AdapterTensor> TensorsOf(const std::vector<AdaptedLayer>& adapted, const ParameterLayout& layout,
                                     int64_t rank) {
  std::vector<AdapterTensor> tensors;
  std::map<std::string, size_t> places;
  const auto cols = [&](int parameter) { return layout.parameters()[static_cast<size_t>(parameter)].shape.cols(); };
  const auto add = [&](const std::string& name, const Shape& shape, const AdapterTensor::Piece& piece) {
    const auto [place, added] = places.emplace(name, tensors.size());
    if (added) tensors.push_back({.name = absl::StrCat(kAdapterPrefix, name), .shape = shape});
    tensors[place->second].pieces.push_back(piece);
  };
  for (const AdaptedLayer& layer : adapted) {
    const int64_t in = cols(layer.a), ranks = layer.num_experts * rank;
    add(layer.module + kAdapterA, {ranks, in},
        {layer.a, layer.first_row_of_a, rank, ElementsOfA(layer.expert, rank * in)});
    const int64_t rows = layer.rows / layer.parts;
    for (int64_t part = 0; part < layer.parts; ++part) {
      add(layer.module + kAdapterB, {layer.rows, ranks},
          {layer.b, layer.first_row_of_b + part * rows, rows,
           ElementsOfB(layer.expert, layer.num_experts, rank, part, layer.parts)});
    }
  }
  return tensors;
}

/// Of the run's tokenizer, where it is not the one that lies beside the model which the adapters are for: else that
/// one's tokens and chat template would be taken. One that cannot be read is no reason to lose the adapters.
std::map<std::string, std::string> TokenizerFiles(const std::string& directory, const Config& config, FileDType dtype) {
  const std::string& tokenizer = config.data.tokenizer;
  std::error_code error;
  if (tokenizer == "bytes" ||
      std::filesystem::equivalent(TokenizerFileOf(tokenizer), absl::StrCat(config.train.init_from, "/", kTokenizerFile),
                                  error)) {
    return {};
  }
  auto files = MakeSavedModelFiles(config.model, tokenizer, dtype);
  if (!files.ok()) {
    LogWarning("the tokenizer is not saved with the adapters: ", files.status().message());
    return {};
  }
  if (!HasChatTemplate(*files)) KeepChatTemplate(directory, &*files);
  return std::move(files->others);
}

absl::Status ReadTensor(const AdapterTensor& tensor, const ParameterLayout& layout, const ReadWeightsFn& read,
                        absl::Span<float> out) {
  std::vector<float> piece_values;
  for (const AdapterTensor::Piece& piece : tensor.pieces) {
    const ParameterSpec& spec = layout.parameters()[static_cast<size_t>(piece.parameter)];
    const int64_t cols = spec.shape.cols();
    piece_values.resize(static_cast<size_t>(piece.rows * cols));
    RETURN_IF_ERROR(read(spec.offset + piece.first_row * cols, absl::MakeSpan(piece_values)));
    for (size_t i = 0; i < piece_values.size(); ++i) {
      out[static_cast<size_t>(piece.elements.At(static_cast<int64_t>(i)))] = piece_values[i];
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<AdapterTensor>> AdapterTensors(const Config& config, const ParameterLayout& layout) {
  ASSIGN_OR_RETURN(const std::vector<AdaptedLayer> adapted, AdaptedLayers(config, layout));
  return TensorsOf(adapted, layout, config.lora.rank);
}

absl::StatusOr<std::optional<int64_t>> LengthOfAdapter(const std::string& directory) {
  ASSIGN_OR_RETURN(const auto file, SafetensorsReader::Open(absl::StrCat(directory, "/", kAdapterWeightsFile)));
  const auto said = file->metadata().find(kMaxSequenceLengthKey);
  if (said == file->metadata().end()) return std::nullopt;
  int64_t length = 0;
  if (absl::SimpleAtoi(said->second, &length)) return length;
  return absl::InvalidArgumentError(
      absl::StrCat(file->path(), ": the metadata ", kMaxSequenceLengthKey, " is no number"));
}

absl::Status SaveAdapter(const std::string& directory, const Config& config, const ParameterLayout& layout,
                         const ReadWeightsFn& read, FileDType dtype, const std::function<absl::Status()>& may_replace) {
  ASSIGN_OR_RETURN(const std::vector<AdaptedLayer> adapted, AdaptedLayers(config, layout));
  AdapterFiles files{.config_json = AdapterConfigJson(config, adapted), .metadata = {{"format", "pt"}}};
  if (!config.train.init_digest.empty()) files.metadata[kBaseDigestKey] = config.train.init_digest;
  if (config.model.rope_scaling == RopeScaling::kLongRope) {
    files.metadata[kMaxSequenceLengthKey] = absl::StrCat(config.model.max_sequence_length);
  }
  for (AdapterTensor& tensor : TensorsOf(adapted, layout, config.lora.rank)) {
    const Shape shape = tensor.shape;
    files.tensors.push_back({.name = tensor.name, .shape = shape, .read = [&, tensor](absl::Span<float> out) {
                               return ReadTensor(tensor, layout, read, out);
                             }});
  }
  files.others = TokenizerFiles(directory, config, dtype);
  files.may_replace = may_replace;
  return SaveAdapterFiles(directory, files, dtype);
}

}  // namespace holdfast
