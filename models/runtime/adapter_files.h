#pragma once
// Adapters (models/adapter.h) as PEFT keeps them: a directory of adapter_config.json and adapter_model.safetensors.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/safetensors.h"
#include "framework/config/config.h"
#include "framework/nn/layout.h"
#include "framework/nn/tensor_map.h"
#include "framework/train/weight_exchange.h"

namespace holdfast {

/// The name of a matrix in adapter_model.safetensors is kAdapterPrefix, the layer's, and one of these.
inline constexpr char kAdapterPrefix[] = "base_model.model.", kAdapterA[] = ".lora_A.weight",
                      kAdapterB[] = ".lora_B.weight";
/// In its metadata: of the weights that the adapters are for (WeightsDigest).
inline constexpr char kBaseDigestKey[] = "base_digest";

/// Writes the adapters of a config with lora, whose model has `layout`; `read` gives their values. The files get their
/// names when all of them are on the disk.
absl::Status SaveAdapter(const std::string& directory, const Config& config, const ParameterLayout& layout,
                         const ReadWeightsFn& read, FileDType dtype);

/// Which tensor of adapter_model.safetensors is which rows of a parameter of `layout`, the layout of a config with
/// lora.
absl::StatusOr<TensorMap> AdapterTensorMap(const Config& config, const ParameterLayout& layout);

}  // namespace holdfast
