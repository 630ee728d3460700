// A worker knows of which run it is before it joins: its agent has said so when it started it, or says it later.

#include "elastic/launch/run_of_agent.h"

#include <unistd.h>

#include <cstdlib>
#include <future>
#include <string>

#include "elastic/agent/agent.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

class RunOfAgentTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(pipe(input_), 0); }
  void TearDown() override {
    unsetenv(kRunVariable);
    for (const int fd : input_) close(fd);
  }
  void Write(const std::string& text) const {
    ASSERT_EQ(write(input_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  absl::StatusOr<uint64_t> Run() const { return RunOfAgent(input_[0]); }

  int input_[2] = {-1, -1};
};

TEST_F(RunOfAgentTest, IsInTheEnvironmentOrNotKnown) {
  EXPECT_EQ(Run().value(), 0u) << "who starts a worker by hand says nothing";
  setenv(kRunVariable, "18446744073709551615", 1);
  EXPECT_EQ(Run().value(), 18446744073709551615u);
  for (const char* wrong : {"", "0", "-1", "a run"}) {
    setenv(kRunVariable, wrong, 1);
    EXPECT_TRUE(absl::IsInvalidArgument(Run().status())) << wrong;
  }
}

TEST_F(RunOfAgentTest, ComesOnInput) {
  setenv(kRunVariable, kRunOnInput, 1);
  auto run = std::async(std::launch::async, [this] { return Run(); });
  Write("1");
  Write("7\n");
  EXPECT_EQ(run.get().value(), 17u);
  Write("no number\n");
  EXPECT_TRUE(absl::IsInvalidArgument(Run().status()));
  Write("\x1b[2J\xff\n");
  EXPECT_EQ(Run().status().message(), R"("\x1b[2J\xff" is not the number of a run)") << "no bytes for a terminal";
  Write(std::string(100, '1'));
  EXPECT_TRUE(absl::IsInvalidArgument(Run().status())) << "a line without end";
}

TEST_F(RunOfAgentTest, IsNotWaitedForWithoutAnAgent) {
  setenv(kRunVariable, kRunOnInput, 1);
  close(input_[1]);
  input_[1] = dup(input_[0]);
  EXPECT_TRUE(absl::IsUnavailable(Run().status()));
}

}  // namespace
}  // namespace holdfast
