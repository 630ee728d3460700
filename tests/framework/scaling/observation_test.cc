// Proves that runs are read from CSV as they are written, and that each kind of bad line is refused by file and line.
#include "framework/scaling/observation.h"

#include "absl/strings/str_cat.h"
#include "framework/storage/atomic_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  return std::string(ParseObservations(text, "runs.csv").status().message());
}

TEST(Observations, ColumnsInAnyOrder) {
  const auto runs = ParseObservations(
      "# a sweep\n\n loss, tokens, parameters ,name,active_parameters,learning_rate\r\n"
      "2.5,1e10,4e9,small,1e9,3e-4\r\n3,2e9,1e8,,,\n",
      "runs.csv");
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_EQ(runs->size(), 2u);
  const Observation &first = (*runs)[0], &second = (*runs)[1];
  EXPECT_EQ(first.name, "small");
  EXPECT_EQ(first.size.parameters, 4e9);
  EXPECT_EQ(first.size.active, 1e9);
  EXPECT_EQ(first.flops, 6e19);
  EXPECT_EQ(first.learning_rate, 3e-4);
  EXPECT_EQ(first.batch_tokens, std::nullopt);
  EXPECT_EQ(second.name, "line 5");
  EXPECT_EQ(second.size.active, 1e8);
  EXPECT_EQ(second.learning_rate, std::nullopt);
}

TEST(Observations, AByteOrderMarkIsPassedOver) {
  const auto runs = ParseObservations("\xef\xbb\xbfparameters,tokens,loss\r\n1e8,1e9,3\r\n", "runs.csv");
  ASSERT_TRUE(runs.ok()) << runs.status();
  EXPECT_EQ((*runs)[0].size.parameters, 1e8);
}

TEST(Observations, WrittenAndReadBack) {
  const std::vector<Observation> runs = {{.name = "a",
                                          .size = {3e8, 1e8, 1e9 / 3},
                                          .flops = 7e17,
                                          .loss = 3.14159265358979,
                                          .learning_rate = 0.1 / 3,
                                          .batch_tokens = {}},
                                         {.name = "b",
                                          .size = {3e8, 3e8, 1e9},
                                          .flops = 1,
                                          .loss = 2,
                                          .learning_rate = {},
                                          .batch_tokens = 524288,
                                          .data_tokens = 1e9 / 7}};
  const auto read = ParseObservations(ToCsv(runs), "again");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(DigestOf(*read), DigestOf(runs));
  EXPECT_EQ((*read)[0].name, "a");
  EXPECT_EQ((*read)[0].data_tokens, std::nullopt);
  EXPECT_EQ((*read)[1].data_tokens, 1e9 / 7);
  for (const auto change :
       {+[](Observation& run) { run.loss += 1e-15; }, +[](Observation& run) { run.batch_tokens = 3; }}) {
    std::vector<Observation> other = runs;
    change(other[0]);
    EXPECT_NE(DigestOf(other), DigestOf(runs));
  }
}

TEST(Observations, BadLinesAreNamed) {
  const std::string header = "parameters,tokens,loss\n";
  EXPECT_THAT(ErrorOf(""), HasSubstr("runs.csv: no line that names the columns"));
  EXPECT_THAT(ErrorOf(header), HasSubstr("runs.csv: no runs"));
  EXPECT_THAT(ErrorOf("parameters,tokens\n"), HasSubstr("runs.csv:1: column 'loss' is missing"));
  EXPECT_THAT(ErrorOf("parameters,tokens,loss,loss\n"), HasSubstr("runs.csv:1: column 'loss' is there twice"));
  EXPECT_THAT(ErrorOf("parameters,tokens,lost\n"), HasSubstr("runs.csv:1: there is no column 'lost'"));
  EXPECT_THAT(ErrorOf("\x1b[2J\xff\n"), HasSubstr(R"(runs.csv:1: there is no column '\x1b[2J\xff':)"));
  EXPECT_THAT(ErrorOf(std::string(70, 'x') + "\n"), HasSubstr("no column '" + std::string(60, 'x') + "...'"));
  EXPECT_THAT(ErrorOf(header + "1e8,\x1b,3\n"), HasSubstr(R"(runs.csv:2: tokens '\x1b' is no number)"));
  EXPECT_THAT(ErrorOf(header + "1e8,1e9\n"), HasSubstr("runs.csv:2: 3 values are expected, there are 2"));
  EXPECT_THAT(ErrorOf(header + "1e8,1e9,3\n1e8,many,3\n"), HasSubstr("runs.csv:3: tokens 'many' is no number"));
  EXPECT_THAT(ErrorOf(header + "1e8,1e9,\n"), HasSubstr("runs.csv:2: loss is empty"));
  for (const char* loss : {"0", "-1", "nan", "inf", "1e300"}) {
    EXPECT_THAT(ErrorOf(absl::StrCat(header, "1e8,1e9,", loss, "\n")),
                HasSubstr("runs.csv:2: loss has to be a positive number, not"));
  }
  EXPECT_THAT(ErrorOf("parameters,active_parameters,tokens,loss\n1e8,2e8,1e9,3\n"),
              HasSubstr("active_parameters 2e+08 are more than all parameters, 1e+08"));
  std::string many = header;
  for (size_t i = 0; i <= kMaxObservations; ++i) many += "1,1,1\n";
  EXPECT_THAT(ErrorOf(many), HasSubstr("more than 20000 runs"));
}

TEST(Observations, FilesAreBounded) {
  const TemporaryDirectory directory;
  EXPECT_TRUE(absl::IsNotFound(ReadObservations(directory / "none.csv").status()));
  ASSERT_TRUE(WriteFileAtomically(directory / "large.csv", std::string(kMaxObservationBytes + 1, '#')).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(ReadObservations(directory / "large.csv").status()));
}

}  // namespace
}  // namespace holdfast
