// Errors keep their code and gain context; errno becomes the code that says what to do.

#include "framework/base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

namespace holdfast {
namespace {

absl::StatusOr<std::unique_ptr<int>> MakeInt(bool ok) {
  if (!ok) return absl::NotFoundError("no int");
  return std::make_unique<int>(7);
}

absl::StatusOr<int> Twice(bool ok) {
  ASSIGN_OR_RETURN(const std::unique_ptr<int> a, MakeInt(true));
  ASSIGN_OR_RETURN(const std::unique_ptr<int> b, MakeInt(ok));
  return *a + *b;
}

absl::Status Counted(int& calls, const absl::Status& status) {
  RETURN_IF_ERROR((++calls, status));
  return absl::InternalError("went on");
}

TEST(StatusTest, AssignOrReturnMovesValuesAndPassesErrors) {
  EXPECT_EQ(*Twice(true), 14);
  EXPECT_EQ(Twice(false).status(), absl::NotFoundError("no int"));
}

TEST(StatusTest, ReturnIfErrorEvaluatesOnce) {
  int calls = 0;
  EXPECT_EQ(Counted(calls, absl::AbortedError("x")), absl::AbortedError("x"));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(Counted(calls, absl::OkStatus()), absl::InternalError("went on"));
}

TEST(StatusTest, AnnotateKeepsTheCode) {
  EXPECT_EQ(Annotate(absl::DataLossError("short"), "file"), absl::DataLossError("file: short"));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "file").ok());
}

TEST(StatusTest, ErrnoBecomesACode) {
  EXPECT_EQ(ErrnoToStatus(ENOENT, "open f"), absl::NotFoundError("open f: No such file or directory"));
  EXPECT_TRUE(absl::IsPermissionDenied(ErrnoToStatus(EROFS, "")));
  EXPECT_TRUE(absl::IsResourceExhausted(ErrnoToStatus(ENOSPC, "")));
  EXPECT_TRUE(absl::IsResourceExhausted(ErrnoToStatus(EFBIG, "")));
  EXPECT_TRUE(absl::IsAlreadyExists(ErrnoToStatus(EEXIST, "")));
  EXPECT_TRUE(absl::IsInvalidArgument(ErrnoToStatus(EISDIR, "")));
  EXPECT_TRUE(absl::IsUnavailable(ErrnoToStatus(EIO, "")));
}

TEST(StatusDeathTest, CheckSaysWhere) { EXPECT_DEATH(HOLDFAST_CHECK(1 + 1 == 3), "status_test.cc.*1 \\+ 1 == 3"); }

}  // namespace
}  // namespace holdfast
