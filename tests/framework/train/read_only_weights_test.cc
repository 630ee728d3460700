// Proves that weights that are only read are what was read of them, in the dtype of passes, also where a parameter is
// read in several pieces and others lie between those that are wanted.

#include "framework/train/read_only_weights.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>

#include "framework/tensor/device.h"

namespace holdfast {
namespace {

/// A whole number that bf16 holds.
float ValueAt(int64_t offset) { return static_cast<float>(offset % 251); }

TEST(ReadOnlyWeights, AreWhatWasReadHoweverManyPiecesItTook) {
  const ParameterLayout model({{.name = "small", .shape = {3, 5}, .frozen = true},
                               {.name = "trained", .shape = {7}},
                               {.name = "large", .shape = {4100, 1030}, .frozen = true}},  // more than 4 Mi elements
                              {"all"});
  const auto device = MakeCpuDevice(1);
  const auto stream = device->CreateStream().value();
  int pieces = 0;
  const auto read = [&](int64_t first, absl::Span<float> out) {
    ++pieces;
    for (float& value : out) value = ValueAt(first++);
    return absl::OkStatus();
  };
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    pieces = 0;
    const auto frozen = ReadOnlyWeights::Load(model, ReadOnlyWeights::Frozen, dtype, *device, *stream, read);
    ASSERT_TRUE(frozen.ok()) << frozen.status();
    EXPECT_GT(pieces, 2) << "the large one is read at once";
    EXPECT_EQ(frozen->tensors()[1].data, nullptr);
    for (const int parameter : {0, 2}) {
      const ParameterSpec& spec = model.parameters()[static_cast<size_t>(parameter)];
      const Tensor& tensor = frozen->tensors()[static_cast<size_t>(parameter)];
      ASSERT_EQ(tensor.dtype, dtype);
      int64_t wrong = 0;
      for (int64_t i = 0; i < spec.shape.elements(); ++i) {
        const float value = dtype == DType::kF32 ? tensor.f32()[i]
                                                 : std::bit_cast<float>(static_cast<uint32_t>(tensor.bf16()[i]) << 16);
        wrong += static_cast<int64_t>(value != ValueAt(spec.offset + i));
      }
      EXPECT_EQ(wrong, 0) << spec.name;
    }
  }
}

}  // namespace
}  // namespace holdfast
