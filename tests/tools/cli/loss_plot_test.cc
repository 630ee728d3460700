// What the curve of a run shows of its validations.

#include "tools/cli/loss_plot.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/metrics/run_directory.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

/// Of a run of eight steps with these lines in events.jsonl: those of its validations, and the legend's.
size_t PointsOf(const std::string& lines) {
  const TemporaryDirectory root;
  const RunDirectory run(root / "run");
  EXPECT_TRUE(run.Create(false).ok());
  std::ofstream metrics(run.metrics());
  for (int64_t step = 1; step <= 8; ++step) {
    StepMetrics line;
    line.step = step;
    line.loss = 3;
    metrics << line.ToJson() << "\n";
  }
  metrics.close();
  std::ofstream(run.events()) << lines;
  EXPECT_TRUE(PlotLoss(run).ok());
  std::ifstream file(run.loss_plot());
  const std::string svg{std::istreambuf_iterator<char>(file), {}};
  size_t points = 0;
  for (size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) ++points;
  return points;
}

std::string ValidationLine(int64_t step, const std::string& loss) {
  return absl::StrCat(R"({"event":"validation","step":)", step, R"(,"loss":)", loss, "}\n");
}

TEST(PlotLoss, ShowsNoValidationThatWasGivenUpOrIsNotFinite) {
  std::string lines;
  for (const auto& [step, loss] :
       {std::pair(2, "3.5"), {4, "3.25"}, {6, "3.125"}, {4, "null"}, {4, "3.0"}, {8, "2.0"}}) {
    lines += ValidationLine(step, loss);
  }
  EXPECT_EQ(PointsOf(lines), 3 + 1) << "steps 2, 4 and 8";
}

TEST(PlotLoss, PassesOverEventsWithFieldsOfAnotherType) {
  EXPECT_EQ(PointsOf(ValidationLine(2, "3.5") + R"({"event":7,"step":4,"loss":3}
{"event":null,"step":4,"loss":3}
{"event":["validation"],"step":4,"loss":3}
{"event":"validation","step":"4","loss":3}
{"event":"validation","step":{},"loss":3}
{"event":"validation","step":4,"loss":"3"}
["validation"]
)" + ValidationLine(8, "2.0")),
            2 + 1)
      << "steps 2 and 8";
}

TEST(PlotLoss, ShowsTheNumberOfWorkersWhereItChanged) {
  const TemporaryDirectory root;
  const RunDirectory run(root / "run");
  ASSERT_TRUE(run.Create(false).ok());
  const auto plot = [&](int last_world) {
    std::ofstream metrics(run.metrics());
    for (int64_t step = 1; step <= 3; ++step) {
      StepMetrics line;
      line.step = step;
      line.loss = 3;
      line.world_size = step < 3 ? 4 : last_world;
      metrics << line.ToJson() << "\n";
    }
    metrics.close();
    EXPECT_TRUE(PlotLoss(run).ok());
    std::ifstream file(run.loss_plot());
    return std::string{std::istreambuf_iterator<char>(file), {}};
  };
  EXPECT_EQ(plot(4).find(">workers</text>"), std::string::npos);
  EXPECT_NE(plot(3).find(">workers</text>"), std::string::npos);
}

}  // namespace
}  // namespace holdfast
