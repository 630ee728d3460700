#pragma once
// A transformer that trains in milliseconds.

#include <cstdint>

#include "framework/config/config.h"

namespace holdfast {

inline ModelConfig TinyTransformer(int64_t vocab_size, int64_t max_sequence_length) {
  ModelConfig m;
  m.vocab_size = vocab_size;
  m.max_sequence_length = max_sequence_length;
  m.num_layers = 2;
  m.hidden_size = 32;
  m.num_heads = m.num_kv_heads = 4;
  m.head_dim = 8;
  m.intermediate_size = 64;
  return m;
}

}  // namespace holdfast
