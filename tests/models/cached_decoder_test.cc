// Proves that a decoder which keeps keys and values gives the logits of LastLogits over the whole sequence, bit by bit:
// for every family, in both dtypes, with any number of threads; whatever else is decoded beside a sequence, was there
// before it, or how long prompts are; and that what is there is not computed again.

#include "models/cached_decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/models/test_models.h"

namespace holdfast {
namespace {

constexpr int64_t kContext = 11;  // of the tiny models

class CachedDecoderTest : public ::testing::TestWithParam<NamedConfig> {
 protected:
  const ModelConfig& config() const { return GetParam().config; }
  std::vector<int32_t> Sequence(uint64_t seed) const {
    return RandomTokens(config().vocab_size, 1, config().max_sequence_length, seed).inputs;
  }
  std::unique_ptr<CachedDecoder> MakeDecoder(TestModel& model, int64_t sequences) const {
    return CachedDecoder::Create(model.model(), config(), model.device(), model.stream(), model.store(),
                                 {.sequences = sequences, .capacity = config().max_sequence_length})
        .value();
  }
  std::vector<float> LastLogits(TestModel& model, const std::vector<int32_t>& tokens, int64_t length) const {
    const Tokens prefix{
        .batch = 1, .sequence = length, .inputs = {tokens.begin(), tokens.begin() + length}, .targets = {}};
    return model.LastLogits(prefix, config().vocab_size);
  }

  std::vector<float> weights_ = RandomWeights(TransformerLayout(config()), 7);
};

TEST_P(CachedDecoderTest, GivesTheBitsOfTheWholeSequence) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    TestModel model(config(), {.compute_dtype = dtype}, 2, weights_);
    const std::vector<int32_t> tokens = Sequence(3);
    for (const int64_t prompt : {int64_t{0}, int64_t{1}, int64_t{6}, kContext - 1}) {
      const auto decoder = MakeDecoder(model, 1);  // each its own: what one holds it does not compute again
      ASSERT_TRUE(decoder->Begin({{0, absl::MakeConstSpan(tokens).first(prompt)}}).ok());
      for (int64_t length = prompt + 1; length <= kContext; ++length) {
        const auto logits = decoder->Add({{0, tokens[length - 1]}});
        ASSERT_TRUE(logits.ok()) << logits.status();
        EXPECT_EQ(std::vector<float>(logits->begin(), logits->end()), LastLogits(model, tokens, length))
            << "after " << length << " tokens of which " << prompt << " were the prompt";
      }
    }
  }
}

// Sequences come and go, each with a prompt of its own length.
TEST_P(CachedDecoderTest, WhatIsBesideASequenceChangesNoBit) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int threads : {1, 3}) {
      TestModel model(config(), {.compute_dtype = dtype}, threads, weights_);
      TestModel reference(config(), {.compute_dtype = dtype}, 2, weights_);
      constexpr int64_t kSequences = 5;
      const auto decoder = MakeDecoder(model, kSequences);
      std::vector<std::vector<int32_t>> tokens(kSequences);
      std::vector<int64_t> lengths(kSequences, kContext);
      std::mt19937 random(5);
      for (int step = 0; step < 12; ++step) {
        std::vector<Decoder::Beginning> beginnings;
        std::vector<Decoder::Token> next;
        for (int64_t s = kSequences; s-- > 0;) {
          if (lengths[s] == kContext) {
            tokens[s] = Sequence(random());
            lengths[s] = static_cast<int64_t>(random() % kContext);
            beginnings.push_back({s, absl::MakeConstSpan(tokens[s]).first(lengths[s])});
          }
          if (random() % 4 > 0) next.push_back({s, tokens[s][lengths[s]++]});
        }
        ASSERT_TRUE(decoder->Begin(beginnings).ok());
        if (next.empty()) continue;
        const auto logits = decoder->Add(next);
        ASSERT_TRUE(logits.ok()) << logits.status();
        for (size_t i = 0; i < next.size(); ++i) {
          const auto row = logits->subspan(i * config().vocab_size, config().vocab_size);
          const int64_t s = next[i].sequence;
          ASSERT_EQ(std::vector<float>(row.begin(), row.end()), LastLogits(reference, tokens[s], lengths[s]))
              << "sequence " << s << " after " << lengths[s];
        }
      }
    }
  }
}

// Turns of a conversation: a beginning shares some of its tokens with what the sequence held, none, or all.
TEST_P(CachedDecoderTest, WhatASequenceHeldIsUsedAgainAndChangesNoBit) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    TestModel model(config(), {.compute_dtype = dtype}, 2, weights_);
    const auto decoder = MakeDecoder(model, 1);
    std::vector<int32_t> tokens = Sequence(3);
    ASSERT_TRUE(decoder->Begin({{0, absl::MakeConstSpan(tokens).first(kContext)}}).ok());
    for (const int64_t shared : {int64_t{9}, int64_t{4}, int64_t{0}, int64_t{6}}) {
      const auto vocabulary = static_cast<int32_t>(config().vocab_size);
      for (int64_t i = shared; i < kContext; ++i) tokens[i] = (tokens[i] + 1) % vocabulary;
      for (const int64_t length : {shared + 2, shared + 1, shared + 2}) {
        ASSERT_TRUE(decoder->Begin({{0, absl::MakeConstSpan(tokens).first(length - 1)}}).ok());
        const auto logits = decoder->Add({{0, tokens[length - 1]}});
        ASSERT_TRUE(logits.ok()) << logits.status();
        EXPECT_EQ(std::vector<float>(logits->begin(), logits->end()), LastLogits(model, tokens, length))
            << length << " tokens, of which " << shared << " were there";
      }
    }
  }
}

TEST_P(CachedDecoderTest, WhatASequenceHoldsIsNotComputedAgain) {
  TestModel model(config(), {}, 2, weights_);
  const auto decoder = MakeDecoder(model, 1);
  const std::vector<int32_t> tokens = Sequence(3);
  ASSERT_TRUE(decoder->Begin({{0, absl::MakeConstSpan(tokens).first(6)}}).ok());
  ASSERT_TRUE(decoder->Add({{0, tokens[6]}}).ok());
  model.store().FailAtCall(1);
  EXPECT_TRUE(decoder->Begin({{0, absl::MakeConstSpan(tokens).first(7)}}).ok());
  EXPECT_TRUE(decoder->Begin({{0, absl::MakeConstSpan(tokens).first(3)}}).ok());
  EXPECT_FALSE(decoder->Begin({{0, absl::MakeConstSpan(tokens).first(4)}}).ok());
}

INSTANTIATE_TEST_SUITE_P(Models, CachedDecoderTest, ::testing::ValuesIn(TinyModels()),
                         [](const auto& tested) { return tested.param.name; });

// More tokens of prompts than one pass takes, more keys than a tile holds, and a window across tiles.
TEST(CachedDecoderLongTest, GivesTheBitsOfTheWholeSequence) {
  ModelConfig config = TinyMistral();
  config.max_sequence_length = 400;
  config.sliding_window = 130;
  const std::vector<float> weights = RandomWeights(TransformerLayout(config), 7);
  TestModel model(config, {.compute_dtype = DType::kBF16}, 2, weights);
  const auto decoder = CachedDecoder::Create(model.model(), config, model.device(), model.stream(), model.store(),
                                             {.sequences = 3, .capacity = 400})
                           .value();
  std::vector<std::vector<int32_t>> tokens;
  std::vector<Decoder::Beginning> beginnings;
  for (int64_t s = 0; s < 3; ++s) tokens.push_back(RandomTokens(config.vocab_size, 1, 400, s).inputs);
  for (int64_t s = 0; s < 3; ++s) beginnings.push_back({s, absl::MakeConstSpan(tokens[s]).first(390 - 10 * s)});
  ASSERT_TRUE(decoder->Begin(beginnings).ok());
  for (int64_t step = 0; step < 10; ++step) {
    std::vector<Decoder::Token> next;
    for (int64_t s = 0; s < 3; ++s) next.push_back({s, tokens[s][390 - 10 * s + step]});
    const auto logits = decoder->Add(next);
    ASSERT_TRUE(logits.ok()) << logits.status();
    for (int64_t s = 0; s < 3; ++s) {
      const int64_t length = 391 - 10 * s + step;
      const Tokens prefix{
          .batch = 1, .sequence = length, .inputs = {tokens[s].begin(), tokens[s].begin() + length}, .targets = {}};
      const auto row = logits->subspan(s * config.vocab_size, config.vocab_size);
      EXPECT_EQ(std::vector<float>(row.begin(), row.end()), model.LastLogits(prefix, config.vocab_size));
    }
  }
}

}  // namespace
}  // namespace holdfast
