// Proves that metrics.jsonl holds exactly what was put in, number for number and bit for bit, in the fields and order
// of the contract; that a torn line is dropped and any other damage is named with its line; and that Create never
// removes what is not a run's. By files in a temporary directory.
#include "framework/metrics/run_directory.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/framework/storage/syscalls.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class RunDirectoryTest : public ::testing::Test {
 protected:
  RunDirectoryTest() {
    std::string name = (fs::temp_directory_path() / "holdfast_run_XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  ~RunDirectoryTest() override { fs::remove_all(root_); }

  static void WriteText(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string ReadText(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  std::string root_;
};

StepMetrics Example(int64_t step = 7) {
  return {.step = step,
          .loss = 2.3f,
          .grad_norm = 0.1f,
          .lr = 3e-4,
          .tokens = 8192,
          .world_size = 1,
          .generation = 1,
          .step_seconds = 0.25,
          .tokens_per_second = 4096,
          .mfu = 0.5,
          .checkpoint_stall_seconds = 0,
          .time = 1763689553.125,
          .state_digest = 0xfedcba9876543210};
}

TEST(StepMetricsJson, HasExactlyTheFieldsOfTheContractInTheirOrder) {
  EXPECT_EQ(Example().ToJson(),
            "{\"step\":7,\"loss\":2.3,\"loss_bits\":\"40133333\",\"grad_norm\":0.1,\"grad_norm_bits\":\"3dcccccd\","
            "\"lr\":3e-04,\"tokens\":8192,\"world_size\":1,\"generation\":1,\"step_seconds\":0.25,"
            "\"tokens_per_second\":4096,\"mfu\":0.5,\"checkpoint_stall_seconds\":0,\"time\":1763689553.125,"
            "\"state_digest\":\"fedcba9876543210\"}");
}

TEST(StepMetricsJson, AValidationIsThatOfTheStepBefore) {
  StepMetrics m = Example();
  m.validation = {.step = 6, .loss = 1.0 / 3};
  EXPECT_THAT(m.ToJson(), testing::EndsWith("\"validation\":{\"step\":6,\"loss\":0.3333333333333333}}"));
  EXPECT_EQ(StepMetrics::FromJson(m.ToJson())->validation, m.validation);
  m.validation->loss = NAN;
  EXPECT_THAT(m.ToJson(), testing::EndsWith("\"loss\":null}}"));
  EXPECT_TRUE(std::isnan(StepMetrics::FromJson(m.ToJson())->validation->loss));
  const std::string text = Example().ToJson();
  for (const char* wrong : {"7", "{}", "{\"step\":6}", "{\"loss\":1}", "{\"step\":6,\"loss\":\"x\"}"}) {
    const std::string damaged = text.substr(0, text.size() - 1) + ",\"validation\":" + wrong + "}";
    EXPECT_EQ(StepMetrics::FromJson(damaged).status().code(), absl::StatusCode::kDataLoss) << damaged;
  }
}

TEST(StepMetricsJson, ADeepLineIsDamage) {
  std::string line = Example().ToJson();
  line.replace(line.find("7"), 1, std::string(200'000, '[') + std::string(200'000, ']'));
  EXPECT_EQ(StepMetrics::FromJson(line).status().code(), absl::StatusCode::kDataLoss);
}

TEST(StepMetricsJson, StatisticsAreNumbersAndLists) {
  StepMetrics m = Example();
  m.figures = {{.name = "aux \"loss\"", .values = {1.0 / 3}},
               {.name = "load", .values = {1, 2.5}, .is_list = true},
               {.name = "none", .values = {}, .is_list = true}};
  const std::string line = m.ToJson();
  EXPECT_THAT(line, testing::EndsWith("\"statistics\":{\"aux \\\"loss\\\"\":0.3333333333333333,"
                                      "\"load\":[1,2.5],\"none\":[]}}"));
  EXPECT_EQ(StepMetrics::FromJson(line)->figures, m.figures);
  m.figures[0].values[0] = NAN;
  EXPECT_TRUE(std::isnan(StepMetrics::FromJson(m.ToJson())->figures[0].values[0]));
  for (const char* wrong : {"7", "[]", "{\"a\":\"b\"}", "{\"a\":[1,{}]}"}) {
    const std::string text = Example().ToJson();
    const std::string damaged = text.substr(0, text.size() - 1) + ",\"statistics\":" + wrong + "}";
    EXPECT_TRUE(absl::IsDataLoss(StepMetrics::FromJson(damaged).status())) << wrong;
  }
}

TEST(StepMetricsJson, ExchangedBytesAreToldWhereThereAreAny) {
  StepMetrics m = Example();
  m.exchanged = {.in_node = 4096, .between_nodes = 12};
  const std::string line = m.ToJson();
  EXPECT_THAT(line, testing::HasSubstr(",\"exchanged_bytes\":{\"in_node\":4096,\"between_nodes\":12},"));
  EXPECT_EQ(StepMetrics::FromJson(line)->exchanged, m.exchanged);
  EXPECT_EQ(StepMetrics::FromJson(Example().ToJson())->exchanged, ExchangedBytes());
  for (const char* wrong : {"7", "[]", "{\"in_node\":1}", "{\"in_node\":1,\"between_nodes\":\"2\"}"}) {
    const std::string text = Example().ToJson();
    const std::string damaged = text.substr(0, text.size() - 1) + ",\"exchanged_bytes\":" + wrong + "}";
    EXPECT_TRUE(absl::IsDataLoss(StepMetrics::FromJson(damaged).status())) << wrong;
  }
}

TEST(StepMetricsJson, WithoutMfuAndDigest) {
  StepMetrics m = Example();
  m.mfu.reset();
  m.state_digest.reset();
  const auto json = nlohmann::json::parse(m.ToJson());
  EXPECT_TRUE(json["mfu"].is_null());
  EXPECT_FALSE(json.contains("state_digest"));
  const auto read = StepMetrics::FromJson(m.ToJson());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_FALSE(read->mfu.has_value());
  EXPECT_FALSE(read->state_digest.has_value());
}

TEST(StepMetricsJson, EveryBitPatternSurvives) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float loss : {0.0f, -0.0f, 1e-45f, 3.4028235e38f, infinity, -infinity, std::bit_cast<float>(0x7fc12345u),
                           std::nextafter(2.3f, 3.0f)}) {
    StepMetrics m = Example();
    m.loss = loss;
    m.grad_norm = -loss;
    const auto json = nlohmann::json::parse(m.ToJson());  // throws on what is not JSON, such as nan
    EXPECT_EQ(json["loss"].is_null(), !std::isfinite(loss));
    const auto read = StepMetrics::FromJson(m.ToJson());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(std::bit_cast<uint32_t>(read->loss), std::bit_cast<uint32_t>(loss));
    EXPECT_EQ(std::bit_cast<uint32_t>(read->grad_norm), std::bit_cast<uint32_t>(-loss));
    EXPECT_EQ(read->ToJson(), m.ToJson());
  }
}

TEST(StepMetricsJson, ReadsEveryFieldBack) {
  const auto read = StepMetrics::FromJson(Example().ToJson());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ToJson(), Example().ToJson());
}

TEST(StepMetricsJson, NamesTheBadField) {
  const std::string good = Example().ToJson();
  for (const auto& [from, to, message] : std::vector<std::array<std::string, 3>>{
           {"\"step\":7", "\"step\":7.5", "'step': expected an integer, found 7.5"},
           {"\"step\":7,", "", "'step' is missing"},
           {"\"step\":7", "\"step\":18446744073709551615", "'step': expected an integer of 64 bits"},
           {"\"lr\":3e-04", "\"lr\":\"high\"", "'lr': expected a number, found \"high\""},
           {"40133333", "4013333", "'loss_bits': expected 8 hexadecimal digits"},
           {"40133333", "4013333g", "'loss_bits': expected 8 hexadecimal digits"},
           {"40133333", "40133332", "'loss': expected 2.2999997, as 'loss_bits' says, found 2.3"},
           {"40133333", "7fc00000", "'loss': expected null, as 'loss_bits' says, found 2.3"},
           {"\"loss\":2.3", "\"loss\":null", "'loss': expected 2.3, as 'loss_bits' says, found null"},
           {"\"loss\":2.3,", "", "'loss' is missing"},
           {"\"grad_norm\":0.1", "\"grad_norm\":0.3", "'grad_norm': expected 0.1, as 'grad_norm_bits' says, found 0.3"},
           {"fedcba9876543210", "fedcba98", "'state_digest': expected 16 hexadecimal digits"},
           {"\"mfu\":0.5", "\"mfu\":[]", "'mfu': expected a number"},
           {"{", "[", "malformed JSON at byte"}}) {
    std::string bad = good;
    bad.replace(bad.find(from), from.size(), to);
    const auto read = StepMetrics::FromJson(bad);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss) << bad;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(message));
  }
}

TEST_F(RunDirectoryTest, WrittenLinesAreReadBack) {
  const RunDirectory run(root_);
  {
    auto writer = JsonLinesWriter::Open(run.metrics());
    ASSERT_TRUE(writer.ok()) << writer.status();
    JsonLinesWriter moved = std::move(*writer);
    for (int64_t step = 1; step <= 3; ++step) ASSERT_TRUE(moved.Write(Example(step).ToJson()).ok());
  }
  const auto steps = run.ReadMetrics();
  ASSERT_TRUE(steps.ok()) << steps.status();
  ASSERT_EQ(steps->size(), 3u);
  EXPECT_EQ((*steps)[2].ToJson(), Example(3).ToJson());
  EXPECT_EQ((**run.ReadLastMetrics()).ToJson(), Example(3).ToJson());
}

TEST_F(RunDirectoryTest, TornLastLineIsDroppedAndCutBeforeAppending) {
  const RunDirectory run(root_);
  const std::string whole = Example(1).ToJson() + "\n";
  const std::string next = Example(2).ToJson();
  for (const size_t torn : {size_t{1}, next.size() / 2, next.size()}) {
    WriteText(run.metrics(), whole + next.substr(0, torn));
    const auto steps = run.ReadMetrics();
    ASSERT_TRUE(steps.ok()) << steps.status();
    EXPECT_EQ(steps->size(), 1u);
    EXPECT_EQ((**run.ReadLastMetrics()).step, 1);

    auto writer = JsonLinesWriter::Open(run.metrics());
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ(ReadText(run.metrics()), whole);
    ASSERT_TRUE(writer->Write(next).ok());
    EXPECT_EQ(ReadText(run.metrics()), whole + next + "\n");
  }
}

TEST_F(RunDirectoryTest, TornLineLongerThanABlockIsCut) {
  const RunDirectory run(root_);
  for (const std::string whole : {"", "{}\n"}) {
    WriteText(run.events(), whole + std::string(10000, 'x'));
    ASSERT_TRUE(JsonLinesWriter::Open(run.events()).ok());
    EXPECT_EQ(ReadText(run.events()), whole);
  }
}

TEST_F(RunDirectoryTest, ALastLineThatDoesNotReadIsDroppedAsATornOne) {
  const RunDirectory run(root_);
  const std::string whole = Example(1).ToJson() + "\n" + Example(2).ToJson() + "\n";
  for (const char* last : {"garbage\n", "\n", "{}\n", "garbage\n{\"st"}) {
    WriteText(run.metrics(), whole + last);
    const auto steps = run.ReadMetrics();
    ASSERT_TRUE(steps.ok()) << steps.status();
    EXPECT_EQ(steps->size(), 2u);
    EXPECT_EQ((**run.ReadLastMetrics()).step, 2);
    ASSERT_TRUE(run.CutMetrics(2).ok());
    EXPECT_EQ(ReadText(run.metrics()), whole) << last;
  }
  WriteText(run.metrics(), "garbage\n");
  EXPECT_TRUE(run.ReadMetrics()->empty());
  EXPECT_FALSE(run.ReadLastMetrics()->has_value());
}

// As who was frozen before it could cut: another process has taken the run, and has put a copy in the file's place.
TEST_F(RunDirectoryTest, ARecordThatAnotherProcessHasTakenIsNotCut) {
  const RunDirectory run(root_);
  const std::string two = Example(1).ToJson() + "\n" + Example(2).ToJson() + "\n";
  WriteText(run.metrics(), two);
  EXPECT_TRUE(absl::IsAborted(run.CutMetrics(1, [] { return absl::AbortedError("taken"); })));
  EXPECT_EQ(ReadText(run.metrics()), two);
  const auto replace = [&] {
    std::filesystem::rename(run.metrics(), run.metrics() + ".old");
    WriteText(run.metrics(), two);
    return absl::OkStatus();
  };
  EXPECT_TRUE(run.CutMetrics(1, replace).ok());
  EXPECT_EQ(ReadText(run.metrics()), two) << "taken right after the look";
  EXPECT_TRUE(run.CutMetrics(1).ok());
  EXPECT_EQ(ReadText(run.metrics()), Example(1).ToJson() + "\n");
}

TEST_F(RunDirectoryTest, AnyOtherDamageIsNamedWithItsLine) {
  const RunDirectory run(root_);
  const std::string one = Example(1).ToJson() + "\n", three = Example(3).ToJson() + "\n";
  WriteText(run.metrics(), one + "garbage\n" + Example(2).ToJson() + "\n");
  EXPECT_EQ(run.ReadMetrics().status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(run.ReadMetrics().status().message()), HasSubstr("metrics.jsonl:2: malformed JSON at byte"));
  EXPECT_THAT(
      std::string(run.ReadMetrics().status().message()),
      ::testing::AllOf(HasSubstr("its newest checkpoint, with a record that begins there: mv " + run.metrics() + " "),
                       HasSubstr("cut the file off there: head -n 1 " + run.metrics() + " > ")));
  WriteText(run.metrics(), one + three);  // a lost step
  EXPECT_THAT(std::string(run.ReadMetrics().status().message()), HasSubstr("metrics.jsonl:2: step 3 follows step 1"));
  WriteText(run.metrics(), one + one);  // a repeated one
  EXPECT_THAT(std::string(run.ReadMetrics().status().message()), HasSubstr("metrics.jsonl:2: step 1 follows step 1"));
}

TEST_F(RunDirectoryTest, TheLastStepIsReadFromTheEnd) {
  const RunDirectory run(root_);
  std::string text(1 << 20, 'x');  // which only ReadMetrics sees
  for (int64_t step = 1; step <= 3; ++step) text += "\n" + Example(step).ToJson();
  WriteText(run.metrics(), text + "\n");
  EXPECT_FALSE(run.ReadMetrics().ok());
  EXPECT_EQ((**run.ReadLastMetrics()).step, 3);
  WriteText(run.metrics(), text + "\n\n");
  EXPECT_EQ((**run.ReadLastMetrics()).step, 3) << "behind it one that does not read";
  WriteText(run.metrics(), text + "\n\n\n");
  EXPECT_THAT(std::string(run.ReadLastMetrics().status().message()), HasSubstr("the end of " + run.metrics()));
  StepMetrics wide = Example(4);  // of many experts
  wide.figures = {{.name = "load", .values = std::vector<double>(50'000, 0.125), .is_list = true}};
  WriteText(run.metrics(), text + "\n" + wide.ToJson() + "\n");
  EXPECT_EQ((**run.ReadLastMetrics()).ToJson(), wide.ToJson());
  WriteText(run.metrics(), Example(1).ToJson() + "\n" + wide.ToJson());
  EXPECT_EQ((**run.ReadLastMetrics()).step, 1) << "behind it one that was cut off";
}

TEST_F(RunDirectoryTest, EmptyAndMissingFiles) {
  const RunDirectory run(root_);
  EXPECT_EQ(run.ReadMetrics().status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(run.ReadLastMetrics()->has_value());
  WriteText(run.metrics(), "");
  EXPECT_FALSE(run.ReadLastMetrics()->has_value());
  ASSERT_TRUE(run.ReadMetrics().ok());
  EXPECT_TRUE(run.ReadMetrics()->empty());
}

TEST_F(RunDirectoryTest, FullDiskIsReported) {
  auto writer = JsonLinesWriter::Open(root_ + "/events.jsonl");
  ASSERT_TRUE(writer.ok()) << writer.status();
  const SyscallWatch full({{.name = "write", .error = ENOSPC}});
  EXPECT_EQ(writer->Write("{}").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(JsonLinesWriter::Open(root_ + "/no/such/place").status().code(), absl::StatusCode::kNotFound);
}

// In a process of its own, whose files the system does not let grow beyond 100 bytes: the last write fits in part.
TEST_F(RunDirectoryTest, PartlyWrittenLineIsTakenBack) {
  const std::string path = root_ + "/metrics.jsonl";
  const auto write_until_full = [&path] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {100, 100};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    auto writer = JsonLinesWriter::Open(path);
    const std::string line(59, 'x');
    const bool first = writer->Write(line).ok();
    const absl::Status second = writer->Write(line);
    if (!first || !absl::IsResourceExhausted(second)) _exit(1);
    _exit(second.message().find("raise that by `prlimit") != absl::string_view::npos ? 0 : 3);  // what to do
  };
  EXPECT_EXIT(write_until_full(), ::testing::ExitedWithCode(0), "");
  EXPECT_EQ(ReadText(path), std::string(59, 'x') + "\n");
}

// As with a server that does not answer for a while, a part of a line or all of it cannot be cut off either.
TEST_F(RunDirectoryTest, ALineThatFailedIsTakenBackOnceThatIsPossible) {
  const std::string path = root_ + "/metrics.jsonl";
  auto writer = JsonLinesWriter::Open(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE(writer->WriteDurably("{}").ok());
  std::string whole = "{}\n";
  const std::vector<SyscallRule> half{{.name = "write"}, {.name = "write", .error = ENOSPC}};
  const std::vector<SyscallRule> unsynced{{.name = "fdatasync", .error = EIO}};
  for (std::vector<SyscallRule> faults : {half, unsynced}) {
    faults.push_back({.name = "ftruncate", .count = 2, .error = EIO});
    absl::Status first, second;
    {
      const SyscallWatch watch(faults);
      first = writer->WriteDurably(R"({"lost":1})");
      second = writer->WriteDurably(R"({"lost":2})");
    }
    EXPECT_TRUE(absl::IsResourceExhausted(first) || absl::IsUnavailable(first)) << first;
    EXPECT_TRUE(absl::IsUnavailable(second)) << second;
    EXPECT_THAT(second.message(), HasSubstr("cannot take the last line out of " + path));
    EXPECT_THAT(ReadText(path), HasSubstr(whole + R"({"lo)")) << faults[0].name;
    EXPECT_TRUE(writer->CheckInPlace().ok()) << writer->CheckInPlace();
    ASSERT_TRUE(writer->WriteDurably("{}").ok());
    whole += "{}\n";
    EXPECT_EQ(ReadText(path), whole) << faults[0].name;
  }
}

TEST_F(RunDirectoryTest, AWriterKnowsWhetherReadersFindItsFile) {
  const std::string path = root_ + "/metrics.jsonl", moved = root_ + "/moved";
  auto writer = JsonLinesWriter::Open(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(writer->WriteDurably("{}").ok());
  EXPECT_TRUE(writer->CheckInPlace().ok()) << writer->CheckInPlace();
  ASSERT_TRUE(writer->CutTo(6).ok());
  EXPECT_TRUE(writer->CheckInPlace().ok()) << "it has cut it off itself: " << writer->CheckInPlace();

  fs::rename(path, moved);
  EXPECT_TRUE(absl::IsUnavailable(writer->CheckInPlace())) << writer->CheckInPlace();
  EXPECT_THAT(std::string(writer->CheckInPlace().message()), HasSubstr("is missing"));
  fs::create_symlink(path, path);  // what is there cannot be seen
  EXPECT_TRUE(absl::IsUnavailable(writer->CheckInPlace())) << writer->CheckInPlace();
  EXPECT_THAT(std::string(writer->CheckInPlace().message()), HasSubstr("cannot look at " + path + ": Too many levels"));
  fs::remove(path);
  fs::copy(moved, path);
  EXPECT_TRUE(absl::IsUnavailable(writer->CheckInPlace())) << writer->CheckInPlace();
  fs::rename(moved, path);
  EXPECT_TRUE(writer->CheckInPlace().ok()) << writer->CheckInPlace();

  fs::resize_file(path, 3);
  EXPECT_TRUE(absl::IsFailedPrecondition(writer->CheckInPlace())) << writer->CheckInPlace();
  fs::resize_file(path, 6);
  fs::remove(path);
  EXPECT_TRUE(absl::IsFailedPrecondition(writer->CheckInPlace())) << writer->CheckInPlace();
  WriteText(path, "{}\n{}\n");
  EXPECT_TRUE(absl::IsFailedPrecondition(writer->CheckInPlace())) << writer->CheckInPlace();
}

TEST_F(RunDirectoryTest, AFileThatWasRemovedIsWrittenAnew) {
  const std::string path = root_ + "/metrics.jsonl", moved = root_ + "/moved";
  auto writer = JsonLinesWriter::Open(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  std::string whole = std::string(600'000, 'x') + "\n{}\n";
  for (const std::string& line : {std::string(600'000, 'x'), std::string("{}")}) {
    ASSERT_TRUE(writer->WriteDurably(line).ok());
  }
  EXPECT_TRUE(writer->KeepInPlace().ok());
  fs::remove(path);
  EXPECT_TRUE(writer->KeepInPlace().ok()) << writer->KeepInPlace();
  EXPECT_EQ(ReadText(path), whole);
  ASSERT_TRUE(writer->WriteDurably("[]").ok());
  whole += "[]\n";
  EXPECT_EQ(ReadText(path), whole);
  EXPECT_TRUE(writer->CheckInPlace().ok());

  fs::rename(path, moved);
  EXPECT_TRUE(absl::IsUnavailable(writer->KeepInPlace())) << "it may come back";
  EXPECT_FALSE(fs::exists(path));
  fs::remove(moved);
  WriteText(path, "another's");
  EXPECT_TRUE(absl::IsFailedPrecondition(writer->KeepInPlace()));
  EXPECT_EQ(ReadText(path), "another's");
  fs::remove(path);
  EXPECT_TRUE(writer->KeepInPlace().ok());
  EXPECT_EQ(ReadText(path), whole);
  fs::resize_file(path, 10);
  fs::remove(path);
  EXPECT_TRUE(absl::IsFailedPrecondition(writer->KeepInPlace())) << "its lines are lost";
  EXPECT_FALSE(fs::exists(path));
}

// A run would find out at its end, with all steps done.
TEST_F(RunDirectoryTest, AFileInThePlaceOfADirectoryIsRefusedAtOnce) {
  const RunDirectory run(root_);
  for (const std::string& path : {run.model(), run.logs()}) {
    WriteText(path, "");
    const absl::Status refused = run.CheckFiles();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(path + ": not a directory"));
    fs::remove(path);
    fs::create_directory(root_ + "/elsewhere");
    fs::create_directory_symlink(root_ + "/elsewhere", path);
    EXPECT_TRUE(run.CheckFiles().ok()) << run.CheckFiles();
    fs::remove(root_ + "/elsewhere");
    EXPECT_TRUE(absl::IsInvalidArgument(run.CheckFiles())) << "a link to nothing";
    fs::remove(path);
  }
}

// Opening a pipe would wait for somebody who writes into it.
TEST_F(RunDirectoryTest, APipeInThePlaceOfAFileIsRefusedAtOnce) {
  const RunDirectory run(root_);
  EXPECT_TRUE(run.CheckFiles().ok());
  WriteText(run.metrics(), "");
  EXPECT_TRUE(run.CheckFiles().ok());
  fs::remove(run.metrics());
  for (const std::string& path : {run.config(), run.metrics(), run.events(), run.coordinator_state(), run.lock()}) {
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    const absl::Status refused = run.CheckFiles();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(path + ": a pipe, not a regular file"));
    EXPECT_EQ(run.HoldsRun(), path == run.coordinator_state());
    fs::remove(path);
  }
  ASSERT_EQ(mkfifo(run.metrics().c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(run.ReadMetrics().status()));
  EXPECT_TRUE(absl::IsInvalidArgument(run.ReadLastMetrics().status()));
  EXPECT_TRUE(absl::IsInvalidArgument(JsonLinesWriter::Open(run.metrics()).status()));
}

TEST_F(RunDirectoryTest, CreateMakesParents) {
  const RunDirectory run(root_ + "/a/b");
  EXPECT_TRUE(run.Create(/*overwrite=*/false).ok());
  EXPECT_TRUE(fs::is_directory(run.root()));
  EXPECT_TRUE(fs::is_empty(run.root()));
  EXPECT_TRUE(run.Create(/*overwrite=*/false).ok()) << "an empty directory is nobody's";
}

TEST_F(RunDirectoryTest, OldRunStaysUnlessOverwritten) {
  const RunDirectory run(root_);
  ASSERT_TRUE(run.WriteConfig("run:\n").ok());
  WriteText(run.metrics(), "");
  fs::create_directories(run.model());
  WriteText(run.model() + "/weights", "w");
  WriteText(root_ + "/notes.txt", "mine");

  const absl::Status refused = run.Create(/*overwrite=*/false);
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--overwrite"));
  EXPECT_TRUE(fs::exists(run.model() + "/weights"));

  EXPECT_TRUE(run.Create(/*overwrite=*/true).ok());
  EXPECT_TRUE(fs::exists(run.config())) << "it still marks the directory as a run's";
  EXPECT_FALSE(fs::exists(run.metrics()));
  EXPECT_FALSE(fs::exists(run.model()));
  EXPECT_EQ(ReadText(root_ + "/notes.txt"), "mine");
}

TEST_F(RunDirectoryTest, WorkersThatOutliveARunGoOnWithTheirEmptiedLogs) {
  const RunDirectory run(root_);
  ASSERT_TRUE(run.WriteConfig("run:\n").ok());
  fs::create_directories(run.logs() + "/below");
  std::ofstream log(run.logs() + "/n0-0.log", std::ios::app);
  log << "of the old run" << std::endl;
  EXPECT_TRUE(run.Create(/*overwrite=*/true).ok());
  EXPECT_EQ(ReadText(run.logs() + "/n0-0.log"), "");
  EXPECT_FALSE(fs::exists(run.logs() + "/below"));
  log << "of the new run" << std::endl;
  EXPECT_EQ(ReadText(run.logs() + "/n0-0.log"), "of the new run\n");
}

TEST_F(RunDirectoryTest, AgentsMayBeStartedBeforeTheRunIsBegun) {
  const RunDirectory run(root_);
  fs::create_directories(run.logs());
  EXPECT_TRUE(run.Create(/*overwrite=*/false).ok()) << "nothing is in it";
  ASSERT_TRUE(run.MakeLogs().ok());
  WriteText(run.logs() + "/n0-0.log", "of a worker\n");
  ASSERT_TRUE(run.MakeLogs().ok()) << "another agent";
  EXPECT_FALSE(run.HoldsRun());
  EXPECT_TRUE(run.Create(/*overwrite=*/false).ok());
  EXPECT_EQ(ReadText(run.logs() + "/n0-0.log"), "of a worker\n");
}

TEST_F(RunDirectoryTest, AnAgentThatWasKilledWhileItMadeLogsLeavesTheRunToBeBegun) {
  const RunDirectory run(root_);
  fs::create_directories(run.logs());
  const std::string unfinished = run.logs() + "/..of_workers.tmp-0123456789ab";
  WriteText(unfinished, "Logs of");
  EXPECT_TRUE(run.Create(/*overwrite=*/false).ok());
  ASSERT_TRUE(run.MakeLogs().ok());
  WriteText(run.logs() + "/n0-0.log", "of a worker\n");
  EXPECT_TRUE(run.Create(/*overwrite=*/false).ok());

  const RunDirectory other(root_ + "/other");
  fs::create_directories(other.logs());
  WriteText(other.logs() + "/..of_others.tmp-0123456789ab", "p");
  EXPECT_EQ(other.Create(/*overwrite=*/false).code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(RunDirectoryTest, LogsOfSomebodyElseAreNotTakenForThoseOfAgents) {
  const RunDirectory run(root_);
  fs::create_directories(run.logs());
  WriteText(run.logs() + "/precious.log", "p");
  ASSERT_TRUE(run.MakeLogs().ok());
  EXPECT_EQ(run.Create(/*overwrite=*/true).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReadText(run.logs() + "/precious.log"), "p");
}

TEST_F(RunDirectoryTest, WhatIsNotARunsIsNeverRemoved) {
  const RunDirectory run(root_);
  fs::create_directories(run.model());
  WriteText(run.model() + "/precious", "p");
  EXPECT_EQ(run.Create(/*overwrite=*/true).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(fs::exists(run.model() + "/precious"));
}

// As a user has it who keeps the config of a run beside its directory's files.
TEST_F(RunDirectoryTest, AConfigThatNoRunWroteMakesNoRun) {
  const RunDirectory run(root_);
  WriteText(run.config(), "run:\n  name: mine\n");
  fs::create_directories(run.model());
  EXPECT_FALSE(run.HoldsRun());
  EXPECT_EQ(run.Create(/*overwrite=*/true).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(fs::exists(run.model()));
  EXPECT_EQ(ReadText(run.config()), "run:\n  name: mine\n");

  WriteText(run.coordinator_state(), "");
  EXPECT_TRUE(run.HoldsRun()) << "of a version that did not mark its config";
}

TEST_F(RunDirectoryTest, PlaceThatCannotHoldARun) {
  WriteText(root_ + "/file", "");
  EXPECT_EQ(RunDirectory(root_ + "/file").Create(false).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RunDirectory(root_ + "/file/below").Create(false).code(), absl::StatusCode::kInvalidArgument);
}

// In a process of its own, which gives up being root, whom permissions do not bind.
TEST_F(RunDirectoryTest, UnwritablePlaceIsRefusedBeforeAnythingIsRemoved) {
  const RunDirectory run(root_);
  ASSERT_TRUE(run.WriteConfig("run:\n").ok());
  fs::permissions(root_,
                  fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read | fs::perms::others_exec);
  const auto create = [&run] {
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0 && seteuid(kNobody) != 0) _exit(2);
    const absl::StatusCode existing = run.Create(/*overwrite=*/true).code();
    const absl::StatusCode below = RunDirectory(run.root() + "/new").Create(/*overwrite=*/false).code();
    const auto denied = absl::StatusCode::kPermissionDenied;
    _exit(existing == denied && below == denied ? 0 : 1);
  };
  EXPECT_EXIT(create(), ::testing::ExitedWithCode(0), "");
  fs::permissions(root_, fs::perms::owner_all);
  EXPECT_TRUE(fs::exists(run.config()));
}

}  // namespace
}  // namespace holdfast
