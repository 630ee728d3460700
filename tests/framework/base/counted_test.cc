// Proves that one of a thing is not said in the plural.

#include "framework/base/counted.h"

#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(Counted, OneOrSeveral) {
  EXPECT_EQ(Counted(0, "document"), "0 documents");
  EXPECT_EQ(Counted(1, "document"), "1 document");
  EXPECT_EQ(Counted(2, "document"), "2 documents");
  EXPECT_EQ(Counted(1, "microbatch"), "1 microbatch");
  EXPECT_EQ(Counted(2, "microbatch"), "2 microbatches");
  EXPECT_EQ(Counted(1, "loss"), "1 loss");
  EXPECT_EQ(Counted(3, "loss"), "3 losses");
}

}  // namespace
}  // namespace holdfast
