#include "models/runtime/adapter_files.h"

#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/saved_model.h"
#include "framework/base/status.h"
#include "models/runtime/adapted_layers.h"
#include "models/runtime/adapter_config.h"

namespace holdfast {
namespace {

TensorMap TensorMapOf(const std::vector<AdaptedLayer>& adapted, const ParameterLayout& layout, int64_t rank) {
  TensorMap map;
  const auto add = [&](const std::string& name, int parameter, int64_t first_row, int64_t rows) {
    const int64_t cols = layout.parameters()[static_cast<size_t>(parameter)].shape.cols();
    map.push_back({.name = absl::StrCat(kAdapterPrefix, name),
                   .parameter = parameter,
                   .first_row = first_row,
                   .num_rows = rows,
                   .shape = {rows, cols}});
  };
  for (const AdaptedLayer& layer : adapted) {
    add(layer.module + kAdapterA, layer.a, layer.first_row_of_a, rank);
    add(layer.module + kAdapterB, layer.b, layer.first_row_of_b, layer.rows);
  }
  return map;
}

}  // namespace

absl::StatusOr<TensorMap> AdapterTensorMap(const Config& config, const ParameterLayout& layout) {
  ASSIGN_OR_RETURN(const std::vector<AdaptedLayer> adapted, AdaptedLayers(config, layout));
  return TensorMapOf(adapted, layout, config.lora.rank);
}

absl::Status SaveAdapter(const std::string& directory, const Config& config, const ParameterLayout& layout,
                         const ReadWeightsFn& read, FileDType dtype) {
  ASSIGN_OR_RETURN(const std::vector<AdaptedLayer> adapted, AdaptedLayers(config, layout));
  AdapterFiles files{.config_json = AdapterConfigJson(config, adapted), .metadata = {{"format", "pt"}}};
  if (!config.train.init_digest.empty()) files.metadata[kBaseDigestKey] = config.train.init_digest;
  return SaveAdapterFiles(directory, layout, TensorMapOf(adapted, layout, config.lora.rank), read, dtype, files);
}

}  // namespace holdfast
