// A saved model read chunk by chunk gives the values of the whole, also where a chunk spans several tensors of the file
// or is some rows of one that is stored transposed.

#include "checkpoint/saved_model_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "checkpoint/saved_model.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

TEST(SavedModelReaderTest, ChunksAreTheWhole) {
  const ParameterLayout layout({{.name = "embedding", .shape = {700, 96}},
                                {.name = "qkv", .shape = {6, 4}, .unit = 1},
                                {.name = "norm", .shape = {9}, .unit = 1},
                                {.name = "mlp", .shape = {1100, 1300}, .unit = 1},
                                {.name = "expert", .shape = {400, 1500}, .unit = 1},
                                {.name = "other", .shape = {400, 1500}, .unit = 1}},
                               {"embedding", "block"});
  TensorMap map = {{"mlp", 3, 0, 1100, true, {1300, 1100}}, {"k", 1, 2, 2, false, {2, 4}},
                   {"q", 1, 0, 2, false, {2, 4}},           {"v", 1, 4, 2, true, {4, 2}},
                   {"norm", 2, 0, 9, false, {9}},           {"wte", 0, 0, 700, false, {700, 96}}};
  for (const int64_t part : {0, 1, 2, 3}) {  // of both experts, transposed, the rows of their halves in turns
    map.push_back({.name = "joined",
                   .parameter = static_cast<int>(4 + part / 2),
                   .first_row = part % 2 * 200,
                   .num_rows = 200,
                   .transposed = true,
                   .shape = {2, 1500, 400},
                   .file_row = part / 2 * 400 + part % 2,
                   .row_step = 2});
  }
  std::vector<float> values(static_cast<size_t>(layout.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const auto give = [&](int64_t first, absl::Span<float> out) {
    std::copy_n(values.begin() + first, out.size(), out.begin());
    return absl::OkStatus();
  };
  TemporaryDirectory directory;
  ASSERT_TRUE(SaveModel(directory / "model", layout, map, give, FileDType::kF32, {"{}", {}}).ok());

  const auto reader = SavedModelReader::Open(directory / "model", layout, map, nullptr);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<float> read(values.size(), NAN);
  for (const Chunk& chunk : layout.chunks()) {
    const auto out = absl::MakeSpan(read).subspan(chunk.offset, chunk.elements);
    ASSERT_TRUE(reader->Read(chunk.offset, out).ok());
  }
  EXPECT_EQ(read, values);
  std::fill(read.begin(), read.end(), NAN);
  ASSERT_TRUE(reader->Read(0, absl::MakeSpan(read)).ok());
  EXPECT_EQ(read, values);
}

}  // namespace
}  // namespace holdfast
