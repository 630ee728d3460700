// Errors keep their code and gain context; errno becomes the code that says what to do.

#include "framework/base/status.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>

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

// A run that waits for room says it, and may be helped without being started again.
TEST(StatusTest, ALimitOfTheProcessIsSaidWithWhatRaisesIt) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit low = before;
  low.rlim_cur = std::min<rlim_t>(rlim_t{1} << 30, before.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  const absl::Status size = ErrnoToStatus(EFBIG, "f");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(size.message(),
            absl::StrCat("f: File too large: this process may write files of ", low.rlim_cur,
                         " bytes; raise that by `prlimit --pid ", getpid(), " --fsize=unlimited`",
                         low.rlim_max == RLIM_INFINITY ? "" : " as root", ", or `ulimit -f` before it is started"));
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  const std::string open = absl::StrCat("f: Too many open files: this process may have ", files.rlim_cur, " open; ");
  if (files.rlim_cur != RLIM_INFINITY) {
    EXPECT_EQ(ErrnoToStatus(EMFILE, "f").message().substr(0, open.size()), open);
  }
  EXPECT_EQ(ErrnoToStatus(ENOSPC, "f").message(), "f: No space left on device") << "no limit of the process";
}

// `ulimit -f` sets both limits, of which nobody else may raise the hard one.
TEST(StatusDeathTest, AHardLimitIsForRootToRaise) {
  const auto meet_it = [] {
    const rlimit hard = {100, 100};
    if (setrlimit(RLIMIT_FSIZE, &hard) != 0) _exit(2);
    const absl::Status met = ErrnoToStatus(EFBIG, "f");
    _exit(met.message().find("--fsize=unlimited` as root, or ") != absl::string_view::npos ? 0 : 1);
  };
  EXPECT_EXIT(meet_it(), ::testing::ExitedWithCode(0), "");
}

TEST(StatusDeathTest, CheckSaysWhere) { EXPECT_DEATH(HOLDFAST_CHECK(1 + 1 == 3), "status_test.cc.*1 \\+ 1 == 3"); }

}  // namespace
}  // namespace holdfast
