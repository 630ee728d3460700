// Proves that a table of matrix products reads back as it was written, and that one which cannot be used says why and
// changes nothing.

#include "kernels/gemm_table.h"

#include <gtest/gtest.h>

namespace holdfast::kernels {
namespace {

constexpr size_t kVersion = 130100;

GemmTable Example() {
  GemmTable table;
  table.Pin("m8_n16_k24_ntn", {0, 1, 0xffffffffffffffff, 3, 4, 5, 6, 7});
  table.Pin("m1_n1_k1_nn", {8});
  table.PinApart("m2_n1_k1_nn_gelu");
  return table;
}

TEST(GemmTable, ReadsBackAsItWasWritten) {
  GemmTable read;
  EXPECT_EQ(read.Parse(Example().Print(kVersion), kVersion), "");
  EXPECT_EQ(read, Example());
  ASSERT_NE(read.Find("m1_n1_k1_nn"), nullptr);
  EXPECT_EQ((*read.Find("m1_n1_k1_nn"))[0], 8u);
  EXPECT_EQ(read.Find("m1_n1_k1_tn"), nullptr);
  EXPECT_EQ(read.Find("m2_n1_k1_nn_gelu"), nullptr);
  EXPECT_TRUE(read.IsApart("m2_n1_k1_nn_gelu"));
  EXPECT_FALSE(read.IsApart("m1_n1_k1_nn"));
  EXPECT_FALSE(read.IsApart("m1_n1_k1_tn"));
  EXPECT_EQ(read.Parse(GemmTable().Print(kVersion), kVersion), "");
  EXPECT_EQ(read.size(), 0u);
}

TEST(GemmTable, ReadsTheFirstVersion) {
  const std::string line = "m1_n1_k1_nn 8 0 0 0 0 0 0 0\n", apart = "m2_n1_k1_nn_gelu apart\n";
  GemmTable read;
  EXPECT_EQ(read.Parse("holdfast-gemm 1 cublasLt 130100\n" + line, kVersion), "");
  ASSERT_NE(read.Find("m1_n1_k1_nn"), nullptr);
  EXPECT_EQ(read.Parse("holdfast-gemm 1 cublasLt 130100\n" + apart, kVersion), "line 2 is malformed");
  EXPECT_EQ(read.Parse("holdfast-gemm 2 cublasLt 130100\n" + apart, kVersion), "");
}

TEST(GemmTable, SaysWhatIsWrong) {
  const std::string good = Example().Print(kVersion);
  const std::string last = good.substr(good.rfind('m'));
  const struct {
    std::string text, problem;
  } cases[] = {
      {"", "its first line is not that of a table of matrix products"},
      {"train: {steps: 1}\n", "its first line is not that of a table of matrix products"},
      {Example().Print(120900), "it is for version 120900 of cuBLASLt, this is version 130100"},
      {"holdfast-gemm 1 cuBLAS 130100\n", "its first line is not that of a table of matrix products"},
      {"holdfast-gemm 2 cublasLt 130100 7\n", "its first line is not that of a table of matrix products"},
      {"holdfast-gemm 3 cublasLt 130100\n", "it is of format 3, this build reads 1 to 2"},
      {good.substr(0, good.size() - 20), "line 4 is malformed"},  // words are missing
      {good + "m2 1 2 3 4 5 6 7 8 9\n", "line 5 is malformed"},
      {good + "m2 1 2 3 4 5 6 7 x\n", "line 5 is malformed"},
      {good + "m2 apart 1\n", "line 5 is malformed"},
      {good + "\n", "line 5 is malformed"},
      {good + last, "line 5 is there twice"},
  };
  for (const auto& [text, problem] : cases) {
    GemmTable table = Example();
    EXPECT_EQ(table.Parse(text, kVersion), problem) << text;
    EXPECT_EQ(table, Example());
  }
}

}  // namespace
}  // namespace holdfast::kernels
