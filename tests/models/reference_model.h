#pragma once
// The transformer again, in double precision, one value at a time and with nothing of models/ or of the kernels but the
// random numbers: the loss that gradients are checked against by central differences.

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/config/config.h"
#include "framework/nn/layout.h"
#include "kernels/philox.h"
#include "tests/models/test_models.h"

namespace holdfast {

class ReferenceModel {
 public:
  using Row = std::vector<double>;
  using Rows = std::vector<Row>;  // one per token

  ReferenceModel(const ModelConfig& config, const ParameterLayout& layout) : c_(config), layout_(layout) {}

  /// Losses (B * T), 0 where not counted.
  std::vector<double> Losses(const std::vector<double>& weights, const Tokens& tokens) {
    const Rows logits = Logits(weights, tokens);
    std::vector<double> losses;
    for (size_t r = 0; r < logits.size(); ++r) {
      double sum = 0;
      for (double logit : logits[r]) sum += std::exp(logit);
      losses.push_back(tokens.targets[r] < 0 ? 0.0 : std::log(sum) - logits[r][tokens.targets[r]]);
    }
    return losses;
  }

  /// What the routers of the last pass add to the mean of its losses.
  double auxiliary() const { return auxiliary_; }

  Rows Logits(const std::vector<double>& weights, const Tokens& tokens) {
    auxiliary_ = 0;
    weights_ = &weights;
    sequence_ = tokens.sequence;
    begins_ = tokens.begins.empty() ? std::vector<int32_t>(tokens.inputs.size()) : tokens.begins;
    Rows x(tokens.inputs.size(), Row(c_.hidden_size));
    for (size_t r = 0; r < x.size(); ++r) {
      for (int64_t j = 0; j < c_.hidden_size; ++j) {
        x[r][j] = At("embedding.tokens.weight", tokens.inputs[r] * c_.hidden_size + j);
        if (c_.scale_embeddings) x[r][j] *= std::sqrt(c_.hidden_size);
        if (c_.position == PositionKind::kLearned) {
          x[r][j] += At("embedding.positions.weight", (r % sequence_ - begins_[r]) * c_.hidden_size + j);
        }
      }
    }
    Drop(&x, 0);
    for (int64_t l = 0; l < c_.num_layers; ++l) {
      const std::string block = absl::StrCat("blocks.", l, ".");
      const bool both = c_.norm_position == NormPosition::kBoth, after = c_.norm_position == NormPosition::kAfter;
      const auto before = [&](const char* norm) { return after ? x : Norm(block + norm, x); };
      const auto behind = [&](const char* norm, Rows y) {
        return after || both ? Norm(block + norm + (both ? "_after" : ""), std::move(y)) : y;
      };
      AddDropped(&x, behind("norm1", Attention(block, l, before("norm1"))), (l + 1) * 8 + 2);
      const Rows in = before("norm2");
      const bool dense = Find(block + "experts.router.weight") == nullptr;
      AddDropped(&x, behind("norm2", dense ? Mlp(block, in) : Experts(block + "experts.", in)), (l + 1) * 8 + 3);
    }
    if (c_.router_balance == RouterBalanceKind::kPooled) {
      const double rows = static_cast<double>(c_.NumExpertLayers() * tokens.inputs.size());
      for (const Pooled& expert : pooled_) {
        auxiliary_ += c_.router_balance_loss * c_.num_experts * (expert.load / rows) * (expert.probability / rows);
      }
    }
    pooled_.clear();
    first_ = false;
    x = Norm("final_norm", x);
    return Linear(c_.tie_embeddings ? "embedding.tokens" : "head", x, c_.vocab_size);
  }

 private:
  double At(const std::string& name, int64_t i) const {
    return (*weights_)[layout_.parameters()[layout_.Find(name)].offset + i];
  }
  const double* Find(const std::string& name) const {
    const int p = layout_.Find(name);
    return p < 0 ? nullptr : &(*weights_)[layout_.parameters()[p].offset];
  }

  double DropFactor(int64_t site, uint64_t element) const {
    if (c_.dropout == 0) return 1;
    const auto rate = static_cast<float>(c_.dropout);
    kernels::RandomKey key = kTestKey;
    key.site = static_cast<uint32_t>(site);
    return kernels::PhiloxWord(key, element) >= kernels::DropoutThreshold(rate) ? 1 / (1 - c_.dropout) : 0;
  }
  void Drop(Rows* x, int64_t site) const {
    for (size_t r = 0; r < x->size(); ++r) {
      for (size_t j = 0; j < (*x)[r].size(); ++j) (*x)[r][j] *= DropFactor(site, r * (*x)[r].size() + j);
    }
  }
  void AddDropped(Rows* x, Rows branch, int64_t site) const {
    Drop(&branch, site);
    for (size_t r = 0; r < x->size(); ++r) {
      for (size_t j = 0; j < (*x)[r].size(); ++j) (*x)[r][j] += branch[r][j];
    }
  }

  Rows Linear(const std::string& name, const Rows& x, int64_t out) const {
    const double* weight = Find(name + ".weight");
    const double* bias = Find(name + ".bias");
    Rows y(x.size(), Row(out));
    for (size_t r = 0; r < x.size(); ++r) {
      for (int64_t o = 0; o < out; ++o) {
        double sum = bias == nullptr ? 0 : bias[o];
        for (size_t i = 0; i < x[r].size(); ++i) sum += weight[o * x[r].size() + i] * x[r][i];
        y[r][o] = sum;
      }
    }
    return y;
  }

  Rows Norm(const std::string& name, Rows x) const {
    const double* weight = Find(name + ".weight");
    const double* bias = Find(name + ".bias");
    const bool layer_norm = c_.norm == NormType::kLayerNorm;
    for (Row& row : x) {
      double mean = 0, square = 0;
      for (double v : row) mean += layer_norm ? v / row.size() : 0;
      for (double v : row) square += (v - mean) * (v - mean) / row.size();
      for (size_t j = 0; j < row.size(); ++j) {
        row[j] = (row[j] - mean) / std::sqrt(square + c_.norm_eps) * weight[j] + (layer_norm ? bias[j] : 0);
      }
    }
    return x;
  }

  /// The logarithm of how often a frequency turns in the original length falls linearly with i.
  double YarnFrequency(int64_t i, double frequency, double theta) const {
    const double of_first = std::log(c_.rope_original_length / (2 * M_PI)), fall = 2 * std::log(theta) / c_.TurnedDim();
    double low = (of_first - std::log(c_.rope_beta_fast)) / fall,
           high = (of_first - std::log(c_.rope_beta_slow)) / fall;
    if (c_.rope_truncate) low = std::floor(low), high = std::ceil(high);
    const double divided = std::clamp((i - std::max(low, 0.0)) / (high - std::max(low, 0.0)), 0.0, 1.0);
    return frequency * (1 - divided + divided / c_.rope_factor);
  }

  /// theta^(-2i/D), and what Llama 3.1 makes of it, in terms of wavelengths.
  double Frequency(int64_t i, double theta, bool scaled) const {
    const double frequency = std::pow(theta, -2.0 * i / c_.TurnedDim()), wavelength = 2 * M_PI / frequency;
    if (c_.rope_scaling == RopeScaling::kNone || !scaled) return frequency;
    if (c_.rope_scaling == RopeScaling::kLinear) return frequency / c_.rope_factor;
    if (c_.rope_scaling == RopeScaling::kYarn) return YarnFrequency(i, frequency, theta);
    if (c_.rope_scaling == RopeScaling::kLongRope) {
      const bool longer = c_.rope_original_length < c_.max_sequence_length;
      return frequency / (longer ? c_.rope_long_factors[i] : c_.rope_short_factors[i]);
    }
    const double length = c_.rope_original_length, low = c_.rope_low_freq_factor, high = c_.rope_high_freq_factor;
    if (wavelength < length / high) return frequency;
    if (wavelength > length / low) return frequency / c_.rope_factor;
    const double smooth = (length / wavelength - low) / (high - low);
    return (1 - smooth) * frequency / c_.rope_factor + smooth * frequency;
  }

  /// All heads of the query, key and value of row `r`, normalised and limited.
  Row Heads(const std::string& block, size_t r, const Row& qkv) {
    const int64_t d = c_.head_dim;
    Row heads = qkv;
    for (int64_t head = 0; c_.qk_norm && head < c_.num_heads + c_.num_kv_heads; ++head) {
      const bool query = head < c_.num_heads, joint = c_.qk_norm_joint;
      const double* weight = Find(block + (query ? "attention.q_norm.weight" : "attention.k_norm.weight"));
      const int64_t first = joint ? (query ? 0 : c_.num_heads) : head;
      const int64_t together = joint ? (query ? c_.num_heads : c_.num_kv_heads) : 1;
      double square = 0;
      for (int64_t i = first * d; i < (first + together) * d; ++i) square += qkv[i] * qkv[i] / (together * d);
      for (int64_t i = 0; i < d; ++i) {
        heads[head * d + i] *= weight[(head - first) * d + i] / std::sqrt(square + c_.norm_eps);
      }
    }
    if (c_.clip_qkv == 0) return heads;
    std::vector<bool>& beyond = beyond_[absl::StrCat(block, r)];
    for (const double v : heads) {
      if (first_) beyond.push_back(std::abs(v) > c_.clip_qkv);
    }
    for (size_t i = 0; i < heads.size(); ++i) heads[i] = beyond[i] ? std::copysign(c_.clip_qkv, heads[i]) : heads[i];
    return heads;
  }

  /// One of them, a query or a key rotated to its position by the angles of the layer, which counts from 0.
  Row HeadOf(const Row& heads, int64_t head, int64_t position, int64_t layer) const {
    const bool scaled = c_.rope_scaling_layers == RopeScalingLayers::kAll || !HasWindow(layer);
    const double theta = HasWindow(layer) && c_.window_rope_theta > 0 ? c_.window_rope_theta : c_.rope_theta;
    const int64_t d = c_.head_dim;
    const Row v(heads.begin() + head * d, heads.begin() + (head + 1) * d);
    if (c_.position != PositionKind::kRope || head >= c_.num_heads + c_.num_kv_heads) return v;
    Row rotated = v;
    const int64_t half = c_.TurnedDim() / 2;
    double factor = 1;
    if (scaled && c_.rope_scaling == RopeScaling::kYarn) factor = 0.1 * std::log(c_.rope_factor) + 1;
    if (scaled && c_.rope_scaling == RopeScaling::kLongRope) {
      factor = std::sqrt(1 + std::log(c_.rope_factor) / std::log(c_.rope_original_length));
    }
    if (scaled && c_.rope_attention_factor > 0) factor = c_.rope_attention_factor;
    for (int64_t i = 0; i < half; ++i) {
      const double angle = position * Frequency(i, theta, scaled);
      rotated[i] = factor * (v[i] * std::cos(angle) - v[i + half] * std::sin(angle));
      rotated[i + half] = factor * (v[i + half] * std::cos(angle) + v[i] * std::sin(angle));
    }
    return rotated;
  }

  /// `layer` counts from 0.
  bool HasWindow(int64_t layer) const {
    bool has = false;
    for (int64_t l = c_.first_window_layer - 1, since_full = 0; l <= layer; ++l) {
      has = ++since_full != c_.full_attention_step;
      if (!has) since_full = 0;
    }
    return has && c_.sliding_window > 0;
  }

  Rows Attention(const std::string& block, int64_t layer, const Rows& x) {
    const int64_t heads = c_.num_heads, kv = c_.num_kv_heads, d = c_.head_dim, t = sequence_;
    Rows qkv = Linear(block + "attention.qkv", x, (heads + 2 * kv) * d);
    for (size_t r = 0; r < x.size(); ++r) qkv[r] = Heads(block, r, qkv[r]);
    Rows out(x.size(), Row(heads * d));
    for (size_t r = 0; r < x.size(); ++r) {
      const int64_t b = r / t, i = r % t;
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t group = h / (heads / kv);
        const int64_t begin = begins_[r];
        const Row q = HeadOf(qkv[r], h, i - begin, layer);
        const int64_t first = !HasWindow(layer) ? begin : std::max(begin, i - c_.sliding_window + 1);
        Row p(i + 1);
        double sum = c_.attention_sinks ? std::exp(At(block + "attention.sinks", h)) : 0;
        for (int64_t j = first; j <= i; ++j) {
          const Row k = HeadOf(qkv[b * t + j], heads + group, j - begin, layer);
          double score = 0;
          for (int64_t e = 0; e < d; ++e) score += q[e] * k[e];
          sum += p[j] = std::exp(score / std::sqrt(static_cast<double>(d)));
        }
        for (int64_t j = first; j <= i; ++j) {
          const double factor = p[j] / sum * DropFactor((layer + 1) * 8 + 1, ((b * heads + h) * t + i) * t + j);
          const Row v = HeadOf(qkv[b * t + j], heads + kv + group, j - begin, layer);
          for (int64_t e = 0; e < d; ++e) out[r][h * d + e] += factor * v[e];
        }
      }
    }
    return Linear(block + "attention.out", out, c_.hidden_size);
  }

  Rows Mlp(const std::string& block, const Rows& x) const {
    const int64_t n = c_.intermediate_size;
    const bool gated = c_.activation != ActivationKind::kGelu;
    Rows act(x.size(), Row(n));
    const Rows up = Linear(block + (gated ? "mlp.gate_up" : "mlp.up"), x, gated ? 2 * n : n);
    for (size_t r = 0; r < x.size(); ++r) {
      for (int64_t j = 0; j < n; ++j) {
        const double v = up[r][j];
        act[r][j] = c_.activation == ActivationKind::kSwiglu
                        ? v / (1 + std::exp(-v))
                        : 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
        if (gated) act[r][j] *= up[r][n + j];
      }
    }
    return Linear(block + "mlp.down", act, c_.hidden_size);
  }

  /// The experts of a token, the best first, from the groups whose two best have the largest sum.
  std::vector<int64_t> Best(const std::string& name, const Row& scores) const {
    std::vector<std::pair<double, int64_t>> order, groups;
    const double* bias = Find(name + "router_bias");
    for (int64_t e = 0; e < c_.num_experts; ++e) order.emplace_back(-scores[e] - (bias ? bias[e] : 0), e);
    const int64_t size = c_.num_experts / c_.router_groups;
    for (int64_t g = 0; g < c_.router_groups; ++g) {
      std::vector<std::pair<double, int64_t>> own(order.begin() + g * size, order.begin() + (g + 1) * size);
      std::sort(own.begin(), own.end());
      groups.emplace_back(own[0].first + (size > 1 ? own[1].first : 0), g);
    }
    std::sort(groups.begin(), groups.end());
    for (int64_t g = c_.router_groups_chosen; g < c_.router_groups; ++g) {
      for (int64_t e = 0; e < size; ++e) order[groups[g].second * size + e].first = INFINITY;
    }
    std::sort(order.begin(), order.end());
    std::vector<int64_t> experts;
    for (int64_t j = 0; j < c_.experts_per_token; ++j) experts.push_back(order[j].second);
    return experts;
  }

  Row Swiglu(const std::string& name, const Row& x, int64_t width) const {
    const Row up = Linear(name + "gate_up", {x}, 2 * width)[0];
    Row act(width);
    for (int64_t j = 0; j < width; ++j) act[j] = up[j] / (1 + std::exp(-up[j])) * up[width + j];
    return Linear(name + "down", {act}, c_.hidden_size)[0];
  }

  /// Of an expert, for row `r`.
  Row Expert(const std::string& name, const Row& x, size_t r) {
    const int64_t width = c_.expert_intermediate_size;
    const double limit = c_.swiglu_limit;
    if (limit == 0) return Swiglu(name, x, width);
    Row up = Linear(name + "gate_up", {x}, 2 * width)[0], act(width);
    std::vector<bool>& beyond = beyond_[absl::StrCat(name, r)];
    for (int64_t j = 0; first_ && j < 2 * width; ++j) beyond.push_back((j < width ? up[j] : std::abs(up[j])) > limit);
    for (int64_t j = 0; j < 2 * width; ++j) up[j] = beyond[j] ? std::copysign(limit, up[j]) : up[j];
    for (int64_t j = 0; j < width; ++j) act[j] = up[j] / (1 + std::exp(-1.702 * up[j])) * (up[width + j] + 1);
    return Linear(name + "down", {act}, c_.hidden_size)[0];
  }

  Row Scores(const Row& logits) const {
    double all = 0;
    for (double logit : logits) all += std::exp(logit);
    Row scores(logits);
    for (double& v : scores) {
      v = c_.router_score == RouterScoreKind::kSoftmax ? std::exp(v) / all : 1 / (1 + std::exp(-v));
    }
    return scores;
  }

  /// The losses of a router, the number of tokens of each expert taken as constant. `pooled_` gathers
  /// what is needed where they are of all layers together.
  double Auxiliary(const Rows& logits, const Rows& scores, const std::vector<double>& load) {
    double balance = 0, z = 0;
    pooled_.resize(load.size());
    for (size_t r = 0; r < logits.size(); ++r) {
      double sum = 0, loaded = 0, exponentials = 0;
      for (size_t e = 0; e < load.size(); ++e) {
        sum += scores[r][e];
        loaded += load[e] * scores[r][e];
        exponentials += std::exp(logits[r][e]);
      }
      balance += loaded / sum;
      for (size_t e = 0; e < load.size(); ++e) pooled_[e].probability += scores[r][e] / sum;
      z += std::pow(std::log(exponentials), 2);
    }
    const double rows = logits.size();
    for (size_t e = 0; e < load.size(); ++e) pooled_[e].load += load[e];
    if (c_.router_balance == RouterBalanceKind::kPooled) balance = 0;
    return c_.router_balance_loss * c_.num_experts * balance / (rows * rows) + c_.router_z_loss * z / rows;
  }

  /// Of each token its experts and what they weigh; `load`: the tokens that chose each expert.
  std::vector<std::map<int64_t, double>> Choose(const std::string& name, const Rows& all_scores,
                                                std::vector<double>* load) {
    std::vector<std::map<int64_t, double>> chosen(all_scores.size());
    std::map<int64_t, std::vector<std::pair<double, size_t>>> tokens;  // of each expert, the largest weight first
    for (size_t r = 0; r < all_scores.size(); ++r) {
      const Row& scores = all_scores[r];
      const std::vector<int64_t>& experts =
          choices_.try_emplace(absl::StrCat(name, r), Best(name, scores)).first->second;
      double sum = 0;
      for (const int64_t e : experts) sum += scores[e];
      for (const int64_t e : experts) {
        ++(*load)[e];
        chosen[r][e] = c_.router_scale * (c_.router_normalize ? scores[e] / sum : scores[e]);
        tokens[e].emplace_back(-chosen[r][e], r);
      }
    }
    if (c_.expert_capacity == 0) return chosen;
    const double even = static_cast<double>(all_scores.size() * c_.experts_per_token) / c_.num_experts;
    for (auto& [e, own] : tokens) {
      std::sort(own.begin(), own.end());
      auto& dropped = drops_.try_emplace(absl::StrCat(name, e)).first->second;
      for (size_t i = std::ceil(c_.expert_capacity * even); first_ && i < own.size(); ++i) {
        dropped.push_back(own[i].second);
      }
      for (const size_t r : dropped) chosen[r].erase(e);
    }
    return chosen;
  }

  /// What the router of "blocks.<l>.experts." sees.
  Rows Jittered(const std::string& name, Rows x) const {
    kernels::RandomKey key = kTestKey;
    key.site = static_cast<uint32_t>((std::stoi(name.substr(7)) + 1) * 8 + 4);
    for (size_t r = 0; r < x.size(); ++r) {
      for (size_t j = 0; j < x[r].size(); ++j) {
        const uint32_t word = kernels::PhiloxWord(key, r * x[r].size() + j);
        x[r][j] *= 1 + c_.router_jitter * (static_cast<double>(word >> 8) / 0x1p23 - 1);
      }
    }
    return x;
  }

  Rows Experts(const std::string& name, const Rows& x) {
    const Rows logits = Linear(name + "router", Jittered(name, x), c_.num_experts);
    Rows y(x.size(), Row(c_.hidden_size)), all_scores;
    std::vector<double> load(c_.num_experts);
    for (const Row& row : logits) all_scores.push_back(Scores(row));
    const std::vector<std::map<int64_t, double>> chosen = Choose(name, all_scores, &load);
    for (size_t r = 0; r < x.size(); ++r) {
      for (const auto& [e, weight] : chosen[r]) {
        const Row out = Expert(absl::StrCat(name, e, "."), x[r], r);
        for (int64_t j = 0; j < c_.hidden_size; ++j) y[r][j] += weight * out[j];
      }
      if (c_.shared_expert_intermediate_size == 0) continue;
      const double weight =
          c_.shared_expert_gate ? 1 / (1 + std::exp(-Linear(name + "shared.gate", {x[r]}, 1)[0][0])) : 1;
      const Row out = Swiglu(name + "shared.", x[r], c_.shared_expert_intermediate_size);
      for (int64_t j = 0; j < c_.hidden_size; ++j) y[r][j] += weight * out[j];
    }
    auxiliary_ += Auxiliary(logits, all_scores, load) / c_.NumExpertLayers();
    return y;
  }

  ModelConfig c_;
  const ParameterLayout& layout_;
  const std::vector<double>* weights_ = nullptr;
  // Of the first call: the loss jumps where a choice changes, and has a corner where a value reaches its limit.
  std::map<std::string, std::vector<int64_t>> choices_;
  std::map<std::string, std::vector<size_t>> drops_;  // rows, by expert
  std::map<std::string, std::vector<bool>> beyond_;   // of query, key and value, of gate and up, by row
  bool first_ = true;
  int64_t sequence_ = 0;
  std::vector<int32_t> begins_;  // of documents, by row
  double auxiliary_ = 0;
  /// Of an expert of every layer: the tokens that chose it and the sum of its probabilities.
  struct Pooled {
    double load = 0, probability = 0;
  };
  std::vector<Pooled> pooled_;
};

}  // namespace holdfast
