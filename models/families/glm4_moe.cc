// GLM-4.5 (GLM-4.5 Team 2025, arXiv 2508.06471): Glm4MoeForCausalLM. A part of each head is turned; experts are chosen
// and balanced as DeepSeek V3's, in layers behind some dense ones, beside a shared one without a gate.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "models/families/families.h"
#include "models/families/mixture_config.h"

namespace holdfast {
namespace {

class Glm4Moe final : public MixtureLike {
 public:
  const char* name() const override { return "glm4_moe"; }

  ModelConfig preset() const override {
    ModelConfig c = LlamaLike::preset();
    c.num_experts = 128;
    c.experts_per_token = 8;
    c.router_score = RouterScoreKind::kSigmoid;
    c.router_bias = true;
    return c;
  }

  Windows windows() const override { return Windows::kNone; }

  std::string Inexpressible(const ModelConfig& c) const override {
    const int64_t width = c.expert_intermediate_size, shared = c.shared_expert_intermediate_size;
    return FirstKey({{NoLlama(c)},
                     {"rope_scaling", c.rope_scaling == RopeScaling::kLongRope},
                     {"num_experts", c.num_experts == 0},
                     {"router_score", c.router_score != RouterScoreKind::kSigmoid},
                     {"router_bias", !c.router_bias},
                     {"bias", c.bias},
                     {"attention_bias", c.attention_bias},
                     {"qk_norm_joint", c.qk_norm_joint},
                     {"clip_qkv", c.clip_qkv > 0},
                     {"expert_layer_step", c.expert_layer_step > 1 && c.NumExpertLayers() > 1},
                     {"shared_expert_gate", c.shared_expert_gate},
                     {"shared_expert_intermediate_size", shared == 0 || shared % width != 0}});
  }

  ModelConfig ReadConfig(ConfigFields& in) const override {
    ModelConfig c = ReadShared(in, "Glm4MoeForCausalLM", "Glm4MoeModel",
                               {.max_position_embeddings = 131072,
                                .num_key_value_heads = 8,
                                .rms_norm_eps = 1e-5,
                                .partial_rotary_factor = 0.5});
    in.Ignore({"output_router_logits", "router_aux_loss_coef"});
    c.num_experts = in.Size("n_routed_experts", 128);
    c.experts_per_token = in.Size("num_experts_per_tok", 8);
    c.expert_intermediate_size = in.Size("moe_intermediate_size", 1408);
    c.shared_expert_intermediate_size = in.Size("n_shared_experts", 1) * c.expert_intermediate_size;
    c.first_expert_layer = in.Whole("first_k_dense_replace", 1) + 1;
    c.router_groups = in.Size("n_group", 1);
    c.router_groups_chosen = in.Size("topk_group", 1);
    c.router_normalize = in.Bool("norm_topk_prob", true);
    c.router_scale = in.Positive("routed_scaling_factor", 1);
    c.qkv_bias = in.Bool("attention_bias", false);
    c.qk_norm = in.Bool("use_qk_norm", false);
    // Layers behind the last, which guess further tokens; they are left out (IsIgnorable).
    in.Ignore({"num_nextn_predict_layers", "num_mtp_layers"});
    return c;
  }

  nlohmann::ordered_json WriteConfig(const ModelConfig& c) const override {
    nlohmann::ordered_json object = WriteShared(c, "Glm4MoeForCausalLM");
    WriteTurnedPart(c, &object);
    object["n_routed_experts"] = c.num_experts;
    object["num_experts_per_tok"] = c.experts_per_token;
    object["moe_intermediate_size"] = c.expert_intermediate_size;
    object["n_shared_experts"] = c.shared_expert_intermediate_size / c.expert_intermediate_size;
    object["first_k_dense_replace"] = c.first_expert_layer - 1;
    object["n_group"] = c.router_groups;
    object["topk_group"] = c.router_groups_chosen;
    object["norm_topk_prob"] = c.router_normalize;
    object["routed_scaling_factor"] = c.router_scale;
    object["attention_bias"] = c.qkv_bias;
    object["use_qk_norm"] = c.qk_norm;
    object["num_nextn_predict_layers"] = 0;
    return object;
  }

  TensorNames Names(const ModelConfig& c) const override {
    TensorNames names = NamesWith(c, "shared_experts");
    names.rules.push_back(
        {.ours = "blocks.#.experts", .theirs = {{"layers.#.mlp.gate"}}, .kind = ".e_score_correction_bias"});
    return names;
  }

  bool IsIgnorable(const ModelConfig& c, const std::string& tensor) const override {
    const std::vector<std::string> words = absl::StrSplit(tensor, '.');
    const size_t at = words.front() == "model" ? 1 : 0;
    int64_t layer = 0;
    const bool of_layer = words.size() > at + 1 && words[at] == "layers" && absl::SimpleAtoi(words[at + 1], &layer);
    return (of_layer && layer >= c.num_layers) || LlamaLike::IsIgnorable(c, tensor);
  }
};

}  // namespace

const Family& Glm4MoeFamily() {
  static const Glm4Moe family;
  return family;
}

}  // namespace holdfast
