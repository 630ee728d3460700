#include "models/families/llama_config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/config/enums.h"
#include "models/rotary.h"

namespace holdfast {
namespace {

using nlohmann::ordered_json;

constexpr char kDynamicRope[] =
    ": angles change with the length of the whole sequence; up to max_position_embeddings tokens they are not scaled, "
    "so for those the model is the same without this object";
constexpr char kFull[] = "full_attention", kSliding[] = "sliding_attention";
constexpr char kGeluKey[] = "hidden_activation", kTanhGelu[] = "gelu_pytorch_tanh";
constexpr char kWindowTheta[] = "rope_local_base_freq";
constexpr char kOriginalLength[] = "original_max_position_embeddings";

/// Rotary angles, as one of the places says them.
struct Rope {
  double theta = 10000.0;
  double window_theta = 0;  // in layers with a window, of a family in which it may be another
  double part = 1;          // of a head that is turned
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_length = 8192;
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;
  double attention_factor = 0;
  std::vector<double> short_factors{}, long_factors{};

  bool HasOriginalLength() const { return scaling != RopeScaling::kNone && scaling != RopeScaling::kLinear; }
  bool operator==(const Rope&) const = default;
};

/// partial_rotary_factor. `otherwise`: 0 where the family has no such key, and must not have it.
double ReadPart(ConfigFields& in, double otherwise) {
  if (otherwise > 0) return in.Positive("partial_rotary_factor", otherwise);
  in.Only("partial_rotary_factor", {1});
  return otherwise;
}

std::optional<RopeScaling> ScalingOf(const std::string& word, bool longrope) {
  if (word == "default") return RopeScaling::kNone;
  if (longrope) {
    const bool is_known = word == Name(RopeScaling::kLongRope) || word == "su" || word == "yarn";  // first "su", "yarn"
    return is_known ? std::optional(RopeScaling::kLongRope) : std::nullopt;
  }
  for (const RopeScaling scaling : {RopeScaling::kLlama3, RopeScaling::kLinear, RopeScaling::kYarn}) {
    if (word == Name(scaling)) return scaling;
  }
  return std::nullopt;
}

/// transformers before 4.43 has the word as "type". If both are there, "rope_type" counts.
RopeScaling ReadRopeType(ConfigFields& fields, bool longrope) {
  RopeScaling scaling = RopeScaling::kNone;
  for (const char* key : {"type", "rope_type"}) {
    const std::string word = fields.String(key, "default");
    if (!fields.Has(key)) continue;
    if (const auto known = ScalingOf(word, longrope); known.has_value()) {
      scaling = *known;
    } else {
      fields.Unsupported(key, word == "dynamic" ? kDynamicRope : "");
    }
  }
  return scaling;
}

void ReadYarn(ConfigFields& fields, int64_t original_length, Rope* rope) {
  rope->factor = fields.RequiredPositive("factor");
  rope->original_length = fields.Size(kOriginalLength, original_length);
  rope->beta_fast = fields.Positive("beta_fast", rope->beta_fast);
  rope->beta_slow = fields.Positive("beta_slow", rope->beta_slow);
  rope->truncate = fields.Bool("truncate", rope->truncate);
  const double m = fields.NotNegative("mscale", 0), m_of_all = fields.NotNegative("mscale_all_dim", 0);
  const double of_both =
      m > 0 && m_of_all > 0 ? YarnAttentionFactor(rope->factor, m) / YarnAttentionFactor(rope->factor, m_of_all) : 0;
  rope->attention_factor = fields.Positive("attention_factor", of_both);
  fields.Ignore({"finetuned"});  // in the first files with this scaling
}

/// What the factor of LongRoPE is where a file does not say it.
double LongRopeFactor(int64_t max_position_embeddings, int64_t original_length) {
  return std::max(static_cast<double>(max_position_embeddings) / static_cast<double>(original_length), 1.0);
}

void ReadLongRope(ConfigFields& fields, int64_t original_length, int64_t max_position_embeddings, Rope* rope) {
  rope->original_length = fields.Size(kOriginalLength, original_length);
  rope->factor = fields.Positive("factor", LongRopeFactor(max_position_embeddings, rope->original_length));
  rope->attention_factor = fields.Positive("attention_factor", 0);
  rope->short_factors = fields.Numbers("short_factor");
  rope->long_factors = fields.Numbers("long_factor");
}

/// The object of "rope_parameters" or "rope_scaling". `otherwise`: base and part where it does not say them;
/// `original_length`: the same of that.
Rope ReadRopeObject(ConfigFields& in, const std::string& key, const Rope& otherwise, const LlamaDefaults& defaults,
                    int64_t original_length, int64_t max_position_embeddings) {
  ConfigFields fields(in[key], in.Path(key));
  Rope rope{.theta = fields.Positive("rope_theta", otherwise.theta),
            .window_theta = otherwise.window_theta,
            .part = ReadPart(fields, otherwise.part)};
  if (in.Has("rope_theta") && rope.theta != otherwise.theta) {
    in.Invalid(key, absl::StrCat("has rope_theta ", rope.theta, ", but rope_theta beside it is ", otherwise.theta));
  }
  if (in.Has("partial_rotary_factor") && rope.part != otherwise.part) {
    in.Invalid(key, absl::StrCat("has partial_rotary_factor ", rope.part, ", but partial_rotary_factor beside it is ",
                                 otherwise.part));
  }
  rope.scaling = ReadRopeType(fields, defaults.longrope);
  if (rope.scaling == RopeScaling::kLinear) rope.factor = fields.RequiredPositive("factor");
  if (rope.scaling == RopeScaling::kYarn) ReadYarn(fields, original_length, &rope);
  if (rope.scaling == RopeScaling::kLongRope) ReadLongRope(fields, original_length, max_position_embeddings, &rope);
  if (rope.scaling == RopeScaling::kLlama3) {
    rope.factor = fields.RequiredPositive("factor");
    rope.low_freq_factor = fields.RequiredPositive("low_freq_factor");
    rope.high_freq_factor = fields.RequiredPositive("high_freq_factor");
    rope.original_length = fields.Size(kOriginalLength);
  }
  if (fields.status().ok()) fields.RefuseUnknown();  // of a type that is refused, every other key is unknown
  in.Add(fields.status());
  return rope;
}

/// rope_parameters with an object for each kind of layer: what it says of layers without a window, and the base of
/// those with one, whose angles must not be scaled. Of a family without window_rope_theta it must be the same.
Rope ReadRopeOfLayerTypes(ConfigFields& in, const Rope& outside, const LlamaDefaults& defaults,
                          int64_t max_position_embeddings) {
  const char* const key = "rope_parameters";
  ConfigFields kinds(in[key], in.Path(key));
  const auto read = [&](const char* kind, const Rope& otherwise) {
    kinds.Ignore({kind});
    if (!kinds.Has(kind) || !kinds[kind].is_object()) return kinds.Invalid(kind, "is not an object"), otherwise;
    return ReadRopeObject(kinds, kind, otherwise, defaults, max_position_embeddings, max_position_embeddings);
  };
  const bool may_differ = defaults.window_rope_theta > 0;
  Rope full = read(kFull, outside);
  const Rope sliding =
      read(kSliding, {.theta = may_differ ? outside.window_theta : defaults.rope_theta, .part = outside.part});
  if (may_differ) full.window_theta = sliding.theta;
  kinds.RefuseUnknown();
  if (kinds.status().ok() && sliding != Rope{.theta = may_differ ? sliding.theta : full.theta, .part = full.part}) {
    in.Unsupported(key, may_differ ? "; angles of layers with a window must not be scaled"
                                   : "; layers with a window must have the base of those without, unscaled");
  }
  if (in.Has(kWindowTheta) && full.window_theta != outside.window_theta) {
    in.Invalid(key, absl::StrCat("has rope_theta ", full.window_theta, " of sliding_attention, but ", kWindowTheta,
                                 " beside it is ", outside.window_theta));
  }
  if (in.Has("rope_theta") && full.theta != outside.theta) {
    in.Invalid(key, absl::StrCat("has rope_theta ", full.theta, ", but rope_theta beside it is ", outside.theta));
  }
  in.Add(kinds.status());
  return full;
}

/// transformers 5 keeps both base and scaling in "rope_parameters", earlier ones in "rope_theta" and "rope_scaling".
Rope ReadRope(ConfigFields& in, const LlamaDefaults& defaults, int64_t max_position_embeddings) {
  const double window_theta = defaults.window_rope_theta;
  const Rope outside{.theta = in.Positive("rope_theta", defaults.rope_theta),
                     .window_theta = window_theta > 0 ? in.Positive(kWindowTheta, window_theta) : 0,
                     .part = ReadPart(in, defaults.partial_rotary_factor)};
  // Version 5 takes this one for the length inside, whatever that is. Angles without it have none.
  in.Ignore({kOriginalLength});
  const int64_t original_length = defaults.longrope ? in.Size(kOriginalLength, 4096) : max_position_embeddings;
  std::optional<Rope> found;
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    in.Ignore({key});
    if (!in.Has(key)) continue;
    if (!in[key].is_object()) {
      in.Invalid(key, "is not an object");
      continue;
    }
    const bool of_layer_types = defaults.rope_of_layer_types && std::string_view(key) == "rope_parameters";
    const Rope rope = of_layer_types ? ReadRopeOfLayerTypes(in, outside, defaults, max_position_embeddings)
                                     : ReadRopeObject(in, key, found.value_or(outside), defaults, original_length,
                                                      max_position_embeddings);
    if (found.has_value() && *found != rope) in.Invalid(key, "says something else than rope_parameters");
    found = rope;
  }
  Rope rope = found.value_or(outside);
  const int64_t beside = defaults.longrope ? original_length : rope.original_length;
  if (rope.HasOriginalLength() && in.Size(kOriginalLength, beside) != rope.original_length) {
    in.Invalid(kOriginalLength,
               absl::StrCat("differs from ", rope.original_length, ", which the scaling of rotary angles has"));
  }
  return rope;
}

/// LongRoPE as transformers before 5 wants it: with nothing but these keys, or else refused.
ordered_json OldLongRopeJson(const ModelConfig& c) {
  ordered_json object = {
      {"type", Name(c.rope_scaling)}, {"short_factor", c.rope_short_factors}, {"long_factor", c.rope_long_factors}};
  if (c.rope_factor != LongRopeFactor(c.max_sequence_length, c.rope_original_length)) object["factor"] = c.rope_factor;
  if (c.rope_attention_factor > 0) object["attention_factor"] = c.rope_attention_factor;
  return object;
}

/// As ReadRopeObject reads it, without the base.
ordered_json RopeJson(const ModelConfig& c) {
  if (c.rope_scaling == RopeScaling::kNone) return {{"rope_type", "default"}};
  ordered_json object = {{"rope_type", Name(c.rope_scaling)}, {"factor", c.rope_factor}};
  if (c.rope_scaling == RopeScaling::kLlama3) {
    object["low_freq_factor"] = c.rope_low_freq_factor;
    object["high_freq_factor"] = c.rope_high_freq_factor;
  }
  if (c.rope_scaling != RopeScaling::kLinear) object[kOriginalLength] = c.rope_original_length;
  if (c.rope_scaling == RopeScaling::kLongRope) {
    object["short_factor"] = c.rope_short_factors;
    object["long_factor"] = c.rope_long_factors;
    if (c.rope_attention_factor > 0) object["attention_factor"] = c.rope_attention_factor;
  }
  if (c.rope_scaling != RopeScaling::kYarn) return object;
  object["beta_fast"] = c.rope_beta_fast;
  object["beta_slow"] = c.rope_beta_slow;
  object["truncate"] = c.rope_truncate;
  if (c.rope_attention_factor > 0) object["attention_factor"] = c.rope_attention_factor;
  return object;
}

}  // namespace

ModelConfig LlamaLike::preset() const {
  return {.family = name(),
          .position = PositionKind::kRope,
          .norm = NormType::kRmsNorm,
          .activation = ActivationKind::kSwiglu,
          .bias = false,
          .tie_embeddings = false};
}

std::string LlamaLike::NoLlama(const ModelConfig& c) const {
  return FirstKey({{"position", c.position != PositionKind::kRope},
                   {"norm", c.norm != NormType::kRmsNorm},
                   {"norm_position", c.norm_position != preset().norm_position},
                   {"window_rope_theta", c.window_rope_theta > 0 && c.window_rope_theta != c.rope_theta},
                   {"rope_scaling_layers",
                    c.rope_scaling != RopeScaling::kNone && c.rope_scaling_layers != preset().rope_scaling_layers},
                   {"activation", c.activation != preset().activation},
                   {"scale_embeddings", c.scale_embeddings != preset().scale_embeddings}});
}

std::string LlamaLike::Inexpressible(const ModelConfig& c) const {
  return FirstKey(
      {{NoLlama(c)}, {"rope_dim", c.rope_dim > 0}, {"rope_scaling", c.rope_scaling == RopeScaling::kLongRope}});
}

TensorNames LlamaLike::Names(const ModelConfig& c) const {
  const int64_t query = c.num_heads * c.head_dim, key = c.num_kv_heads * c.head_dim;
  const bool after = c.norm_position == NormPosition::kAfter;  // as OLMo 2 names them
  const char* const norm1 = after ? "layers.#.post_attention_layernorm" : "layers.#.input_layernorm";
  const char* const norm2 = after ? "layers.#.post_feedforward_layernorm" : "layers.#.post_attention_layernorm";
  return {
      "model.",
      {{"embedding.tokens", {{"embed_tokens"}}},
       {"blocks.#.norm1", {{norm1}}},
       {"blocks.#.attention.qkv",
        {{"layers.#.self_attn.q_proj", query}, {"layers.#.self_attn.k_proj", key}, {"layers.#.self_attn.v_proj", key}}},
       {"blocks.#.attention.q_norm", {{"layers.#.self_attn.q_norm"}}},
       {"blocks.#.attention.k_norm", {{"layers.#.self_attn.k_norm"}}},
       {"blocks.#.attention.out", {{"layers.#.self_attn.o_proj"}}},
       {"blocks.#.norm2", {{norm2}}},
       {"blocks.#.mlp.gate_up",
        {{"layers.#.mlp.gate_proj", c.intermediate_size}, {"layers.#.mlp.up_proj", c.intermediate_size}}},
       {"blocks.#.mlp.down", {{"layers.#.mlp.down_proj"}}},
       {"final_norm", {{"norm"}}},
       {"head", {{"lm_head"}}, false, false}}};
}

bool LlamaLike::IsIgnorable(const ModelConfig&, const std::string& tensor) const {
  return absl::EndsWith(tensor, ".rotary_emb.inv_freq");
}

ModelConfig LlamaLike::ReadShared(ConfigFields& in, const char* causal_model, const char* bare_model,
                                  const LlamaDefaults& defaults) const {
  ModelConfig c = preset();
  in.Strings("architectures", {causal_model, bare_model});
  in.Ignore({"attention_dropout"});
  c.vocab_size = in.Size("vocab_size");
  c.max_sequence_length = in.Size("max_position_embeddings", defaults.max_position_embeddings);
  c.hidden_size = in.Size("hidden_size");
  c.num_layers = in.Size("num_hidden_layers");
  c.num_heads = in.Size("num_attention_heads");
  const int64_t groups = defaults.num_key_value_heads;
  c.num_kv_heads =
      in.Size("num_key_value_heads", groups > 0 && !in.IsNull("num_key_value_heads") ? groups : c.num_heads);
  if (c.num_heads % c.num_kv_heads != 0) in.Invalid("num_attention_heads", "is not a multiple of num_key_value_heads");
  const int64_t width = defaults.head_dim;
  c.head_dim = in.Size("head_dim", width > 0 && !in.IsNull("head_dim") ? width : c.hidden_size / c.num_heads);
  c.intermediate_size = in.Size("intermediate_size");
  c.norm_eps = in.Positive("rms_norm_eps", defaults.rms_norm_eps);
  c.init_std = in.NotNegative("initializer_range", 0.02);
  c.tie_embeddings = in.Bool("tie_word_embeddings", defaults.tie_word_embeddings);
  if (c.activation == ActivationKind::kGeglu) {
    in.Only(kGeluKey, {kTanhGelu});
  } else {
    in.Only("hidden_act", {"silu", "swish"});
  }
  const Rope rope = ReadRope(in, defaults, c.max_sequence_length);
  if (defaults.partial_rotary_factor > 0) {
    c.rope_dim = static_cast<int64_t>(static_cast<double>(c.head_dim) * std::min(rope.part, 2.0));
    if (c.rope_dim < 1) in.Invalid("partial_rotary_factor", "turns nothing of a head");
    if (c.rope_dim == c.head_dim) c.rope_dim = 0;
  }
  c.rope_theta = rope.theta;
  c.window_rope_theta = rope.window_theta;
  c.rope_scaling = rope.scaling;
  c.rope_factor = rope.factor;
  c.rope_low_freq_factor = rope.low_freq_factor;
  c.rope_high_freq_factor = rope.high_freq_factor;
  c.rope_original_length = rope.original_length;
  c.rope_beta_fast = rope.beta_fast;
  c.rope_beta_slow = rope.beta_slow;
  c.rope_truncate = rope.truncate;
  c.rope_attention_factor = rope.attention_factor;
  c.rope_short_factors = rope.short_factors;
  c.rope_long_factors = rope.long_factors;
  return c;
}

ordered_json LlamaLike::WriteShared(const ModelConfig& c, const char* causal_model) const {
  const bool gelu = c.activation == ActivationKind::kGeglu;
  ordered_json parameters = {{"rope_theta", c.rope_theta}};
  parameters.update(RopeJson(c));
  ordered_json object = {{"architectures", {causal_model}},
                         {"model_type", model_type()},
                         {"vocab_size", c.vocab_size},
                         {"max_position_embeddings", c.max_sequence_length},
                         {"hidden_size", c.hidden_size},
                         {"intermediate_size", c.intermediate_size},
                         {"num_hidden_layers", c.num_layers},
                         {"num_attention_heads", c.num_heads},
                         {"num_key_value_heads", c.num_kv_heads},
                         {"head_dim", c.head_dim},
                         {gelu ? kGeluKey : "hidden_act", gelu ? kTanhGelu : "silu"},
                         {"rms_norm_eps", c.norm_eps},
                         {"rope_theta", c.rope_theta},  // where transformers before 5 look
                         {"rope_parameters", parameters}};
  if (c.rope_scaling == RopeScaling::kLongRope) {
    object[kOriginalLength] = c.rope_original_length;
    object["rope_scaling"] = OldLongRopeJson(c);
  } else if (c.rope_scaling != RopeScaling::kNone) {
    object["rope_scaling"] = RopeJson(c);  // likewise
  }
  object["attention_dropout"] = c.dropout;
  object["initializer_range"] = c.init_std;
  object["tie_word_embeddings"] = c.tie_embeddings;
  return object;
}

void LlamaLike::WriteTurnedPart(const ModelConfig& c, ordered_json* object) {
  const auto turned = static_cast<double>(c.TurnedDim()), width = static_cast<double>(c.head_dim);
  double part = turned / width;  // which times head_dim is rounded down
  if (width * part < turned) part = std::nextafter(part, 1.0);
  (*object)["partial_rotary_factor"] = (*object)["rope_parameters"]["partial_rotary_factor"] = part;
}

std::optional<std::vector<std::string>> ReadLayerTypes(ConfigFields& in, int64_t num_layers,
                                                       std::initializer_list<const char*> known) {
  const char* const key = "layer_types";
  auto types = in.Strings(key, known);
  if (types.has_value() && static_cast<int64_t>(types->size()) != num_layers) {
    in.Invalid(key, absl::StrCat("has length ", types->size(), ", num_hidden_layers is ", num_layers));
    types.reset();
  }
  return types;
}

void SetWindows(ConfigFields& in, const std::vector<std::string>& types, int64_t window, ModelConfig* c) {
  const auto first = std::find(types.begin(), types.end(), kSliding);
  if (first == types.end()) return;
  if (window == 0) return in.Unsupported("layer_types", ": there is no window for sliding_attention");
  c->sliding_window = window;
  c->first_window_layer = first - types.begin() + 1;
  const auto full = std::find(first, types.end(), kFull);
  c->full_attention_step = full == types.end() ? 0 : full - first + 1;
  const std::vector<std::string> sayable = LayerTypes(*c);
  const auto differs = std::mismatch(types.begin(), types.end(), sayable.begin(), sayable.end());
  if (differs.first == types.end()) return;
  in.Unsupported(
      "layer_types",
      absl::StrCat(": sliding_attention may be all layers from some layer on, or all of these but every n-th; "
                   "after the layers before it, layer ",
                   differs.first - types.begin() + 1, " would be ", *differs.second));
}

std::vector<std::string> LayerTypes(const ModelConfig& c) {
  std::vector<std::string> types;
  for (int64_t layer = 1; layer <= c.num_layers; ++layer) types.emplace_back(c.WindowOf(layer) > 0 ? kSliding : kFull);
  return types;
}

void ReadStepWindow(ConfigFields& in, int64_t otherwise, int64_t step, ModelConfig* c) {
  const int64_t window = in.Size("sliding_window", otherwise);
  if (in.IsNull("sliding_window")) in.Invalid("sliding_window", "is null");
  const auto types = ReadLayerTypes(in, c->num_layers, {kFull, kSliding});
  if (types.has_value()) return SetWindows(in, *types, window, c);
  if (in.Has("layer_types")) return;
  ModelConfig usual = *c;
  usual.sliding_window = window;
  usual.full_attention_step = step;
  SetWindows(in, LayerTypes(usual), window, c);
}

void ReadQwenWindow(ConfigFields& in, ModelConfig* c) {
  const bool used = in.Bool("use_sliding_window", false);
  const int64_t given = in.Whole("sliding_window", in.IsNull("sliding_window") ? 0 : 4096);
  const int64_t window = used ? given : 0, first = in.Whole("max_window_layers", 28);
  const auto types = ReadLayerTypes(in, c->num_layers, {kFull, kSliding});
  if (types.has_value()) return SetWindows(in, *types, window, c);
  if (in.Has("layer_types") || window == 0 || first >= c->num_layers) return;
  c->sliding_window = window;
  c->first_window_layer = first + 1;
}

void WriteQwenWindow(const ModelConfig& c, ordered_json* object) {
  const bool slides = c.sliding_window > 0;
  (*object)["use_sliding_window"] = slides;
  (*object)["sliding_window"] = slides ? ordered_json(c.sliding_window) : ordered_json(nullptr);
  // Versions without layer_types have a window in all layers from here on.
  (*object)["max_window_layers"] = slides ? c.first_window_layer - 1 : c.num_layers;
  (*object)["layer_types"] = LayerTypes(c);
}

}  // namespace holdfast
