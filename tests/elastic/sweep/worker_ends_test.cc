// Proves what counts as an end of a worker: whole lines that came since, up to the next committed step.

#include "elastic/sweep/worker_ends.h"

#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "tests/framework/storage/test_directory.h"

namespace holdfast {
namespace {

class WorkerEndsTest : public ::testing::Test {
 protected:
  static std::string End(const std::string& worker, const std::string& cause) {
    return R"({"time":1.5,"event":"worker_exited","worker":")" + worker + R"(","cause":")" + cause +
           R"(","restarting":1})" + "\n";
  }
  void Write(const std::string& events) const { std::ofstream(run_.events(), std::ios::app) << events; }
  void Commit(int64_t step) const {
    StepMetrics line;
    line.step = step;
    std::ofstream(run_.metrics(), std::ios::app) << line.ToJson() << "\n";
  }

  TestDirectory directory_;
  const RunDirectory run_{directory_.path()};
};

TEST_F(WorkerEndsTest, AreCountedFromTheBeginningOn) {
  Write(End("a", "old"));
  WorkerEnds ends(run_);
  ends.Look();
  EXPECT_EQ(ends.Of("a").count, 0);
  Write(End("a", "one") + "no event\n" + R"({"time":2,"event":"run_started"})" + "\n" + End("b", "two"));
  const std::string last = End("a", "three");
  Write(last.substr(0, 20));
  ends.Look();
  EXPECT_EQ(ends.Of("a").count, 1);
  EXPECT_EQ(ends.Of("b").cause, "two");
  Write(last.substr(20));
  ends.Look();
  ends.Look();
  EXPECT_EQ(ends.Of("a").count, 2);
  EXPECT_EQ(ends.Of("a").cause, "three");
}

// A full disk, say, for which the run waits, with all steps done.
TEST_F(WorkerEndsTest, WhyTheRunHasPausedIsKnown) {
  Write(R"({"time":1,"event":"paused","cause":"old"})"
        "\n");
  WorkerEnds ends(run_);
  ends.Look();
  EXPECT_EQ(ends.pause(), "");
  Write(R"({"time":2,"event":"paused","cause":"no space left"})"
        "\n");
  Commit(9);
  ends.Look();
  EXPECT_EQ(ends.pause(), "no space left");
  EXPECT_EQ(ends.Of("a").count, 0);
}

TEST_F(WorkerEndsTest, OnlyAStepThatIsBeyondAllBeforeForgivesThem) {
  Commit(7);
  WorkerEnds ends(run_);
  Write(End("a", "one"));
  Commit(6);  // it was taken back to an earlier one
  ends.Look();
  Commit(7);
  ends.Look();
  EXPECT_EQ(ends.Of("a").count, 1);
  Commit(8);
  ends.Look();
  EXPECT_EQ(ends.Of("a").count, 0);
  Write(End("a", "two"));
  ends.Look();
  EXPECT_EQ(ends.Of("a").count, 1);
}

TEST_F(WorkerEndsTest, WithoutFilesThereAreNone) {
  WorkerEnds ends(run_);
  ends.Look();
  EXPECT_EQ(ends.Of("a").count, 0);
  Write(End("a", "one"));
  ends.Look();
  EXPECT_EQ(ends.Of("a").count, 1);
}

}  // namespace
}  // namespace holdfast
