#include "framework/config/model_size.h"

#include <initializer_list>

namespace holdfast {
namespace {

int64_t Product(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (factor == 0) return 0;
    if (__builtin_mul_overflow(product, factor, &product)) product = INT64_MAX;
  }
  return product;
}

int64_t Sum(std::initializer_list<int64_t> terms) {
  int64_t sum = 0;
  for (const int64_t term : terms) {
    if (__builtin_add_overflow(sum, term, &sum)) return INT64_MAX;
  }
  return sum;
}

}  // namespace

std::vector<MatrixKind> MatrixKindsOf(const ModelConfig& m) {
  const int64_t hidden = m.hidden_size, expert_layers = m.NumExpertLayers(),
                dense_layers = m.num_layers - expert_layers;
  const int64_t positions = m.position == PositionKind::kLearned ? m.max_sequence_length : 0;
  const int64_t rows = Sum({Product({m.tie_embeddings ? 1 : 2, m.vocab_size}), positions});
  const int64_t heads = Sum({m.num_heads, m.num_kv_heads});                      // query and output; key and value
  const int64_t of_expert = Sum({1, Product({3, m.expert_intermediate_size})});  // with its row of the router
  const int64_t of_shared = Sum({Product({3, m.shared_expert_intermediate_size}), m.shared_expert_gate ? 1 : 0});
  const int64_t of_mlp = Product({m.HasMlpGate() ? 3 : 2, m.intermediate_size});
  return {{"the embeddings", Product({rows, hidden}), {{"vocab_size", m.vocab_size}, {"hidden_size", hidden}}},
          {"attention",
           Product({m.num_layers, 2, heads, m.head_dim, hidden}),
           {{"num_layers", m.num_layers},
            {"num_heads", m.num_heads},
            {"num_kv_heads", m.num_kv_heads},
            {"head_dim", m.head_dim},
            {"hidden_size", hidden}}},
          {"the MLPs",
           Product({dense_layers, of_mlp, hidden}),
           {{"num_layers", m.num_layers}, {"intermediate_size", m.intermediate_size}, {"hidden_size", hidden}}},
          {"the experts",
           Product({expert_layers, m.num_experts, of_expert, hidden}),
           {{"num_layers", m.num_layers},
            {"num_experts", m.num_experts},
            {"expert_intermediate_size", m.expert_intermediate_size},
            {"hidden_size", hidden}}},
          {"the shared experts",
           Product({expert_layers, of_shared, hidden}),
           {{"num_layers", m.num_layers},
            {"shared_expert_intermediate_size", m.shared_expert_intermediate_size},
            {"hidden_size", hidden}}}};
}

int64_t MatrixElements(const ModelConfig& model) {
  int64_t elements = 0;
  for (const MatrixKind& kind : MatrixKindsOf(model)) elements = Sum({elements, kind.elements});
  return elements;
}

}  // namespace holdfast
