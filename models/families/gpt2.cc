// GPT-2 (Radford et al. 2019): GPT2LMHeadModel.

#include <array>

#include "absl/strings/match.h"
#include "models/families/families.h"

namespace holdfast {
namespace {

// Dropout belongs to a run. `summary_*` is a head for another task. Attention in fp32 is what ours is, always.
constexpr std::array kIgnored = {"resid_pdrop",
                                 "embd_pdrop",
                                 "attn_pdrop",
                                 "summary_type",
                                 "summary_use_proj",
                                 "summary_activation",
                                 "summary_proj_to_labels",
                                 "summary_first_dropout",
                                 "reorder_and_upcast_attn"};

class Gpt2 final : public Family {
 public:
  const char* name() const override { return "gpt2"; }

  ModelConfig preset() const override {
    return {.family = name(),
            .position = PositionKind::kLearned,
            .norm = NormType::kLayerNorm,
            .activation = ActivationKind::kGelu,
            .bias = true,
            .tie_embeddings = true};
  }

  Windows windows() const override { return Windows::kNone; }

  std::string Inexpressible(const ModelConfig& c) const override {
    return FirstKey({{"position", c.position != PositionKind::kLearned},
                     {"norm", c.norm != NormType::kLayerNorm},
                     {"norm_position", c.norm_position != NormPosition::kBefore},
                     {"scale_embeddings", c.scale_embeddings},
                     {"activation", c.activation != ActivationKind::kGelu},
                     {"bias", !c.bias},
                     {"qk_norm", c.qk_norm},
                     {"num_kv_heads", c.num_kv_heads != c.num_heads},
                     {"head_dim", c.num_heads * c.head_dim != c.hidden_size},
                     {"clip_qkv", c.clip_qkv > 0}});
  }

  ModelConfig ReadConfig(ConfigFields& in) const override {
    ModelConfig c = preset();
    in.Strings("architectures", {"GPT2LMHeadModel", "GPT2Model"});
    in.Ignore(kIgnored);
    c.vocab_size = in.Size("vocab_size");
    c.max_sequence_length = in.Size("n_positions");
    c.hidden_size = in.Size("n_embd");
    c.num_layers = in.Size("n_layer");
    c.num_heads = c.num_kv_heads = in.Size("n_head");
    c.head_dim = c.hidden_size / c.num_heads;
    if (c.head_dim * c.num_heads != c.hidden_size) in.Invalid("n_embd", "is not a multiple of n_head");
    c.intermediate_size = in.Size("n_inner", 4 * c.hidden_size);
    c.norm_eps = in.Positive("layer_norm_epsilon", 1e-5);
    c.init_std = in.NotNegative("initializer_range", 0.02);
    c.tie_embeddings = in.Bool("tie_word_embeddings", true);
    in.Only("n_ctx", {c.max_sequence_length});  // of 2019: the length of the causal mask
    in.Only("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
    in.Only("scale_attn_weights", {true});
    in.Only("scale_attn_by_inverse_layer_idx", {false});
    return c;
  }

  nlohmann::ordered_json WriteConfig(const ModelConfig& c) const override {
    return {{"architectures", {"GPT2LMHeadModel"}},
            {"model_type", name()},
            {"vocab_size", c.vocab_size},
            {"n_positions", c.max_sequence_length},
            {"n_embd", c.hidden_size},
            {"n_layer", c.num_layers},
            {"n_head", c.num_heads},
            {"n_inner", c.intermediate_size},
            {"activation_function", "gelu_new"},
            {"layer_norm_epsilon", c.norm_eps},
            {"resid_pdrop", c.dropout},
            {"embd_pdrop", c.dropout},
            {"attn_pdrop", c.dropout},
            {"initializer_range", c.init_std},
            {"tie_word_embeddings", c.tie_embeddings}};
  }

  TensorNames Names(const ModelConfig&) const override {
    return {"transformer.",
            {{"embedding.tokens", {{"wte"}}},
             {"embedding.positions", {{"wpe"}}},
             {"blocks.#.norm1", {{"h.#.ln_1"}}},
             {"blocks.#.attention.qkv", {{"h.#.attn.c_attn"}}, true},
             {"blocks.#.attention.out", {{"h.#.attn.c_proj"}}, true},
             {"blocks.#.norm2", {{"h.#.ln_2"}}},
             {"blocks.#.mlp.up", {{"h.#.mlp.c_fc"}}, true},
             {"blocks.#.mlp.down", {{"h.#.mlp.c_proj"}}, true},
             {"final_norm", {{"ln_f"}}},
             {"head", {{"lm_head"}}, false, false}}};
  }

  /// Causal masks that files of 2019 to 2022 carry: "h.0.attn.bias", "h.0.attn.masked_bias".
  bool IsIgnorable(const ModelConfig&, const std::string& tensor) const override {
    return absl::EndsWith(tensor, ".attn.bias") || absl::EndsWith(tensor, ".attn.masked_bias");
  }
};

}  // namespace

const Family& Gpt2Family() {
  static const Gpt2 family;
  return family;
}

}  // namespace holdfast
