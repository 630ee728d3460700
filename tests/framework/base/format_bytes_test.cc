// Proves how sizes are printed.

#include "framework/base/format_bytes.h"

#include <limits>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(FormatBytes, InBinaryUnits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(600'000), "585.9 KiB");
  EXPECT_EQ(FormatBytes(1024.0 * 1024 - 1), "1.0 MiB");
  EXPECT_EQ(FormatBytes(3.5 * 1024 * 1024 * 1024), "3.5 GiB");
  EXPECT_EQ(FormatBytes(std::numeric_limits<double>::infinity()), "?");
}

}  // namespace
}  // namespace holdfast
