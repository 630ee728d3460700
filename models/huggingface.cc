#include "models/huggingface.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/status.h"
#include "models/huggingface_format.h"

namespace holdfast {
namespace {

constexpr char kBlocks[] = "blocks", kHead[] = "lm_head.weight";

/// One module of ours and the modules of theirs that its rows are made of, in order.
struct Rule {
  std::string ours;  // "embedding.tokens", or without the block's prefix "attention.qkv"
  struct Part {
    std::string name;
    int64_t rows = 0;  // 0 = all
  };
  std::vector<Part> theirs;
  bool transposed = false;  // matrices are (in, out)
};

/// How one family names things. A block's modules are "<prefix><blocks>.<layer>.<name>", others "<prefix><name>",
/// but the head never has the prefix. Files saved from the model without its head lack it everywhere.
struct Names {
  std::string prefix, blocks;
  std::vector<Rule> rules;
};

Names Gpt2Names() {
  return {"transformer.",
          "h",
          {{"embedding.tokens", {{"wte"}}},
           {"embedding.positions", {{"wpe"}}},
           {"norm1", {{"ln_1"}}},
           {"attention.qkv", {{"attn.c_attn"}}, true},
           {"attention.out", {{"attn.c_proj"}}, true},
           {"norm2", {{"ln_2"}}},
           {"mlp.up", {{"mlp.c_fc"}}, true},
           {"mlp.down", {{"mlp.c_proj"}}, true},
           {"final_norm", {{"ln_f"}}},
           {"head", {{"lm_head"}}}}};
}

Names LlamaNames(const ModelConfig& config) {
  const int64_t query = config.num_heads * config.head_dim, key = config.num_kv_heads * config.head_dim;
  const int64_t intermediate = config.intermediate_size;
  return {"model.",
          "layers",
          {{"embedding.tokens", {{"embed_tokens"}}},
           {"norm1", {{"input_layernorm"}}},
           {"attention.qkv", {{"self_attn.q_proj", query}, {"self_attn.k_proj", key}, {"self_attn.v_proj", key}}},
           {"attention.out", {{"self_attn.o_proj"}}},
           {"norm2", {{"post_attention_layernorm"}}},
           {"mlp.gate_up", {{"mlp.gate_proj", intermediate}, {"mlp.up_proj", intermediate}}},
           {"mlp.down", {{"mlp.down_proj"}}},
           {"final_norm", {{"norm"}}},
           {"head", {{"lm_head"}}}}};
}

/// "blocks.3.mlp.up.weight" -> {"3", "mlp.up", "weight"}; "final_norm.weight" -> {"", "final_norm", "weight"}.
struct ParsedName {
  std::string layer, module, kind;
};

ParsedName Parse(const std::string& name) {
  const size_t dot = name.rfind('.');
  ParsedName parsed{.layer = {}, .module = name.substr(0, dot), .kind = name.substr(dot + 1)};
  const std::pair<std::string, std::string> first = absl::StrSplit(parsed.module, absl::MaxSplits('.', 1));
  if (first.first == kBlocks) {
    const std::pair<std::string, std::string> second = absl::StrSplit(first.second, absl::MaxSplits('.', 1));
    parsed.layer = second.first;
    parsed.module = second.second;
  }
  return parsed;
}

void AppendParameter(const Names& names, const ParameterSpec& spec, int parameter, TensorMap* map) {
  const ParsedName parsed = Parse(spec.name);
  const auto rule = std::find_if(names.rules.begin(), names.rules.end(),
                                 [&](const Rule& candidate) { return candidate.ours == parsed.module; });
  HF_CHECK(rule != names.rules.end());
  const int64_t all_rows = spec.is_matrix() ? spec.shape.rows() : spec.shape.elements();
  int64_t first_row = 0;
  for (const Rule::Part& part : rule->theirs) {
    ExternalTensor tensor{.name = {}, .parameter = parameter, .first_row = first_row, .shape = {}};
    tensor.num_rows = part.rows == 0 ? all_rows : part.rows;
    tensor.transposed = rule->transposed && spec.is_matrix();
    const std::string block = parsed.layer.empty() ? "" : absl::StrCat(names.blocks, ".", parsed.layer, ".");
    const std::string bare = absl::StrCat(block, part.name, ".", parsed.kind);
    const bool is_head = parsed.module == "head";
    tensor.name = is_head ? bare : names.prefix + bare;
    if (!is_head) tensor.alias = bare;
    const int64_t rows = tensor.num_rows, cols = spec.shape.cols();
    tensor.shape = !spec.is_matrix() ? Shape{rows} : tensor.transposed ? Shape{cols, rows} : Shape{rows, cols};
    first_row += rows;
    map->push_back(std::move(tensor));
  }
  HF_CHECK(first_row == all_rows);
}

TensorMap OwnTensorMap(const ParameterLayout& layout) {
  TensorMap map;
  for (const ParameterSpec& spec : layout.parameters()) {
    map.push_back({.name = spec.name,
                   .parameter = static_cast<int>(map.size()),
                   .num_rows = spec.is_matrix() ? spec.shape.rows() : spec.shape.elements(),
                   .shape = spec.shape});
  }
  return map;
}

}  // namespace

ExternalFormat FormatOf(const ModelConfig& c) {
  const bool gpt2 = c.position == PositionKind::kLearned && c.norm == NormType::kLayerNorm &&
                    c.activation == ActivationKind::kGelu && c.bias && c.num_kv_heads == c.num_heads &&
                    c.num_heads * c.head_dim == c.hidden_size;
  if (gpt2) return ExternalFormat::kGpt2;
  const bool llama =
      c.position == PositionKind::kRope && c.norm == NormType::kRmsNorm && c.activation == ActivationKind::kSwiglu;
  return llama ? ExternalFormat::kLlama : ExternalFormat::kHoldfast;
}

TensorMap HuggingFaceTensorMap(const ModelConfig& config, const ParameterLayout& layout) {
  const ExternalFormat format = FormatOf(config);
  if (format == ExternalFormat::kHoldfast) return OwnTensorMap(layout);
  const Names names = format == ExternalFormat::kGpt2 ? Gpt2Names() : LlamaNames(config);
  TensorMap map;
  for (size_t p = 0; p < layout.parameters().size(); ++p) {
    AppendParameter(names, layout.parameters()[p], static_cast<int>(p), &map);
  }
  if (config.tie_embeddings) map.front().duplicate = kHead;  // the token table comes first
  return map;
}

bool IsIgnorableHuggingFaceTensor(const ModelConfig& config, const std::string& name) {
  switch (FormatOf(config)) {
    case ExternalFormat::kGpt2:
      // Causal masks that files of 2019 to 2022 carry: "h.0.attn.bias", "h.0.attn.masked_bias".
      return absl::EndsWith(name, ".attn.bias") || absl::EndsWith(name, ".attn.masked_bias") ||
             (config.tie_embeddings && name == kHead);
    case ExternalFormat::kLlama:
      return absl::EndsWith(name, ".rotary_emb.inv_freq") || (config.tie_embeddings && name == kHead);
    case ExternalFormat::kHoldfast:
      return false;
  }
  return false;
}

}  // namespace holdfast
