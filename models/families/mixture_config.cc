#include "models/families/mixture_config.h"

#include <vector>

#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

using nlohmann::ordered_json;

/// The layers of mlp_only_layers, which counts from 0, as flags.
std::vector<bool> ReadDenseLayers(ConfigFields& in, int64_t num_layers) {
  std::vector<bool> dense(static_cast<size_t>(num_layers), false);
  in.Ignore({"mlp_only_layers"});
  if (!in.Has("mlp_only_layers")) return dense;
  const nlohmann::json& layers = in["mlp_only_layers"];
  if (!layers.is_array()) return in.Invalid("mlp_only_layers", "is not a list"), dense;
  for (const nlohmann::json& layer : layers) {
    const bool fits = layer.is_number_integer() && layer >= 0 && layer < num_layers;
    if (!fits)
      return in.Invalid("mlp_only_layers", absl::StrCat("is not a list of layers 0 to ", num_layers - 1)), dense;
    dense[layer.get<size_t>()] = true;
  }
  return dense;
}

}  // namespace

std::string MixtureLike::Inexpressible(const ModelConfig& c) const {
  return FirstKey({{LlamaLike::Inexpressible(c)},
                   {"num_experts", c.num_experts == 0},
                   {"router_score", c.router_score != RouterScoreKind::kSoftmax},
                   {"router_scale", c.router_scale != 1},
                   {"router_groups", c.router_groups != 1},
                   {"router_bias", c.router_bias}});
}

TensorNames MixtureLike::NamesWith(const ModelConfig& c, const std::string& shared) const {
  TensorNames names = NamesBesidesExperts(c);
  const int64_t width = c.expert_intermediate_size, shared_width = c.shared_expert_intermediate_size;
  const std::string mlp = "layers.#.mlp.";
  names.rules.insert(
      names.rules.end(),
      {{.ours = "blocks.#.experts.router", .theirs = {{mlp + "gate"}}},
       {.ours = "blocks.#.experts.#.gate_up",
        .theirs = {{mlp + "experts.#.gate_proj", width}, {mlp + "experts.#.up_proj", width}},
        .stacked = mlp + "experts.gate_up_proj",
        .stack = c.num_experts},
       {.ours = "blocks.#.experts.#.down",
        .theirs = {{mlp + "experts.#.down_proj"}},
        .stacked = mlp + "experts.down_proj",
        .stack = c.num_experts},
       {.ours = "blocks.#.experts.shared.gate_up",
        .theirs = {{mlp + shared + ".gate_proj", shared_width}, {mlp + shared + ".up_proj", shared_width}}},
       {.ours = "blocks.#.experts.shared.down", .theirs = {{mlp + shared + ".down_proj"}}},
       {.ours = "blocks.#.experts.shared.gate", .theirs = {{mlp + shared + "_gate"}}}});
  return names;
}

void MixtureLike::ReadExperts(ConfigFields& in, const ExpertDefaults& defaults, ModelConfig* c) const {
  // The auxiliary loss belongs to a run, not to weights.
  in.Ignore({"output_router_logits", "router_aux_loss_coef"});
  // Published files and transformers use either name; both may be there.
  const int64_t local = in.Size("num_local_experts", defaults.num_experts);
  c->num_experts = in.Size("num_experts", local);
  if (in.Has("num_experts") && in.Has("num_local_experts") && c->num_experts != local) {
    in.Invalid("num_experts", absl::StrCat("is ", c->num_experts, ", but num_local_experts is ", local));
  }
  c->experts_per_token = in.Size("num_experts_per_tok", defaults.num_experts_per_tok);
  c->expert_intermediate_size = defaults.moe_intermediate_size > 0
                                    ? in.Size("moe_intermediate_size", defaults.moe_intermediate_size)
                                    : c->intermediate_size;
}

void MixtureLike::WriteExperts(const ModelConfig& c, ordered_json* object) const {
  (*object)["num_experts"] = c.num_experts;
  (*object)["num_local_experts"] = c.num_experts;
  (*object)["num_experts_per_tok"] = c.experts_per_token;
}

std::string FirstDenseLayerKey(const ModelConfig& c) {
  return FirstKey({{"first_expert_layer", c.first_expert_layer > 1},
                   {"expert_layer_step", c.expert_layer_step > 1 && c.NumExpertLayers() < c.num_layers}});
}

void ReadExpertLayers(ConfigFields& in, ModelConfig* c) {
  const int64_t step = in.Size("decoder_sparse_step", 1);
  const std::vector<bool> dense = ReadDenseLayers(in, c->num_layers);
  const auto has_experts = [&](int64_t layer) {  // from 1
    return layer % step == 0 && !dense[static_cast<size_t>(layer - 1)];
  };
  std::vector<int64_t> layers;
  for (int64_t layer = 1; layer <= c->num_layers; ++layer) {
    if (has_experts(layer)) layers.push_back(layer);
  }
  if (layers.empty()) {
    return in.Invalid("decoder_sparse_step",
                      absl::StrCat("= ", step, " and mlp_only_layers leave no layer with experts"));
  }
  c->first_expert_layer = layers.front();
  c->expert_layer_step = layers.size() > 1 ? layers[1] - layers[0] : c->num_layers - layers[0] + 1;
  for (int64_t layer = 1; layer <= c->num_layers; ++layer) {
    if (c->HasExperts(layer) != has_experts(layer)) return in.Unsupported("mlp_only_layers");
  }
}

void WriteExpertLayers(const ModelConfig& c, ordered_json* object) {
  std::vector<int64_t> dense;
  for (int64_t layer = 1; layer <= c.num_layers; ++layer) {
    if (!c.HasExperts(layer)) dense.push_back(layer - 1);
  }
  (*object)["decoder_sparse_step"] = 1;
  (*object)["mlp_only_layers"] = dense;
}

}  // namespace holdfast
