#pragma once
// model_type "holdfast": the config.json of any transformer, under our own names. Tensors then have their own names,
// too.

#include <nlohmann/json.hpp>

#include "framework/config/config.h"
#include "framework/nn/layout.h"
#include "framework/nn/tensor_map.h"
#include "models/families/config_fields.h"

namespace holdfast {

inline constexpr char kOwnFormat[] = "holdfast";

ModelConfig ReadOwnConfig(ConfigFields& in);
nlohmann::ordered_json WriteOwnConfig(const ModelConfig& config);
TensorMap OwnTensorMap(const ParameterLayout& layout);

}  // namespace holdfast
