// Proves that a status keeps the ranks it blames, also through the macros that pass it on.

#include "framework/comm/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/base/status.h"

namespace holdfast {
namespace {

absl::Status PassOn(const absl::Status& status) {
  RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

TEST(Blame, TravelsWithTheStatus) {
  const absl::Status status = Blaming(absl::UnavailableError("ranks 1, 12 went away"), {1, 12});
  EXPECT_THAT(BlamedRanks(PassOn(status)), testing::ElementsAre(1, 12));
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(BlamedRanks(absl::UnavailableError("nobody")), testing::IsEmpty());
  EXPECT_THAT(BlamedRanks(absl::OkStatus()), testing::IsEmpty());
}

}  // namespace
}  // namespace holdfast
