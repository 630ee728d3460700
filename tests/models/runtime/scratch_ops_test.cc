// Proves the scratch memory that kernels are said to take by what passes leave.
#include "models/runtime/scratch_ops.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/models/test_models.h"

namespace holdfast {
namespace {

// Of 1 x 1024; of a sequence too long for the backward pass to pack all queries of a group; of a mixture no less, as no
// expert has all rows.
TEST(ScratchOpsTest, ItIsWhatKernelsHoldAfterPasses) {
  ModelConfig usual = TinyGpt2(), with_window = TinyLlama();
  usual.max_sequence_length = 1024;
  usual.head_dim = 64;
  with_window.max_sequence_length = 7000;
  with_window.num_layers = 1;
  with_window.sliding_window = 8;
  with_window.head_dim = 128;
  for (const auto& [config, sequence] : {std::pair{usual, 1024}, {with_window, 7000}, {TinyMixtral(), 9}}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Tokens tokens = RandomTokens(config.vocab_size, 1, sequence, 1);
      TestModel model(config, {.compute_dtype = dtype}, 1, RandomWeights(TransformerLayout(config), 1));
      model.Train(tokens, 1);
      model.Evaluate(tokens);
      const size_t planned = PlanScratch(model.model(), 1, sequence, kernels::Arithmetic::kPortable, 1);
      EXPECT_GE(planned, model.stream().scratch_bytes()) << config.family;
      EXPECT_TRUE(config.num_experts > 0 || planned == model.stream().scratch_bytes())
          << planned << " " << model.stream().scratch_bytes();
    }
  }
}

}  // namespace
}  // namespace holdfast
