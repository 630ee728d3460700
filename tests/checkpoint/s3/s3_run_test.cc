// Proves that a run keeps its checkpoints in a bucket as it does in a directory, with the real binary: killed, it goes
// on from the bucket with other workers and equal bits, and `holdfast ckpt` reads what lies there.

#include <gmock/gmock.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/checkpoint/s3/moto_server.h"
#include "tests/integration/command.h"

namespace holdfast {
namespace {

using integration::Command;
using integration::CommandResult;
using integration::RunHoldfast;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class S3RunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    HF_MOTO_OR_SKIP(moto);
    const S3Options bucket = moto->NewBucket();
    setenv("AWS_ACCESS_KEY_ID", bucket.credentials.access_key_id.c_str(), 1);
    setenv("AWS_SECRET_ACCESS_KEY", bucket.credentials.secret_access_key.c_str(), 1);
    place_ = "s3://" + bucket.bucket + "/some/run";
    endpoint_ = bucket.endpoint;
    root_ = fs::path(::testing::TempDir()) / ("s3_run_test_" + std::to_string(getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_);
    std::ofstream text(root_ / "text.txt");
    for (int i = 0; i < 2000; ++i) text << "line " << i * i % 97 << " of the story\n";
    text.close();
    ASSERT_EQ(RunHoldfast({"data", "pack", Path("text.txt"), "--out", Path("train.bin")}).exit_code, 0);
    std::ofstream(root_ / "run.yaml") << "model: {family: gpt2, vocab_size: 256, num_layers: 2, hidden_size: 32, "
                                         "num_heads: 2, max_sequence_length: 16}\n"
                                         "data: {train: [" +
                                             Path("train.bin") +
                                             "]}\n"
                                             "batch: {sequence_length: 16, microbatch_size: 2, microbatches: 3}\n"
                                             "train: {steps: 60, threads: 1, validate_every_steps: 0}\n"
                                             "log: {sample_bytes: 0}\n";
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string Path(const std::string& name) const { return (root_ / name).string(); }
  std::vector<std::string> Train(int workers) const {
    return {"train",     Path("run.yaml"),
            "--set",     "checkpoint.directory=" + place_,
            "--set",     "checkpoint.s3_endpoint=" + endpoint_,
            "--set",     "checkpoint.every_steps=5",
            "--set",     "checkpoint.keep_last=2",
            "--workers", std::to_string(workers),
            "--run-dir", Path("run")};
  }
  CommandResult Ckpt(const std::string& command, std::vector<std::string> more) const {
    more.insert(more.begin(), {"ckpt", command});
    more.insert(more.end(), {"--endpoint", endpoint_});
    return RunHoldfast(more);
  }
  void WaitForLines(size_t count) const {
    for (int i = 0; i < 3000; ++i) {
      std::ifstream metrics(Path("run/metrics.jsonl"));
      size_t lines = 0;
      for (std::string line; std::getline(metrics, line);) ++lines;
      if (lines >= count) return;
      usleep(10'000);
    }
    FAIL() << "the run does not go on";
  }

  fs::path root_;
  std::string place_, endpoint_;
};

TEST_F(S3RunTest, GoesOnFromTheBucketWithTheSameBits) {
  ASSERT_EQ(RunHoldfast({"train", Path("run.yaml"), "--run-dir", Path("reference")}).exit_code, 0);
  setenv("HOLDFAST_TEST_SLOWDOWN_MS", "20", 1);
  Command killed(Train(1));
  WaitForLines(25);
  killed.Signal(SIGKILL);
  EXPECT_EQ(killed.Wait().exit_code, 128 + SIGKILL);
  Command stopped(Train(2));
  ASSERT_TRUE(stopped.WaitForOutput("the newest that can be used")) << stopped.Wait().output;
  WaitForLines(40);
  stopped.Signal(SIGTERM);
  const CommandResult stop = stopped.Wait();
  EXPECT_EQ(stop.exit_code, 128 + SIGTERM) << stop.output;
  unsetenv("HOLDFAST_TEST_SLOWDOWN_MS");
  const CommandResult last = RunHoldfast(Train(3));
  EXPECT_EQ(last.exit_code, 0) << last.output;
  const CommandResult compared = RunHoldfast({"compare", Path("reference"), Path("run")});
  EXPECT_EQ(compared.exit_code, 0) << compared.output;
  EXPECT_FALSE(fs::exists(Path("run/checkpoints")) && !fs::is_empty(Path("run/checkpoints")));

  const CommandResult list = Ckpt("list", {place_});
  EXPECT_EQ(list.exit_code, 0) << list.output;
  EXPECT_THAT(list.output, HasSubstr("  60  "));
  const CommandResult verify = Ckpt("verify", {place_});
  EXPECT_EQ(verify.exit_code, 0) << verify.output;
  const CommandResult exported = Ckpt("export", {place_, Path("exported")});
  EXPECT_EQ(exported.exit_code, 0) << exported.output;
  EXPECT_TRUE(fs::exists(Path("exported/model.safetensors")));
}

TEST_F(S3RunTest, WrongCredentialsAreNamedBeforeAnythingIsDone) {
  setenv("AWS_SECRET_ACCESS_KEY", "wrong", 1);
  const CommandResult refused = RunHoldfast(Train(1));
  EXPECT_EQ(refused.exit_code, 1) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("SignatureDoesNotMatch"));
  EXPECT_FALSE(fs::exists(Path("run/metrics.jsonl")));
}

}  // namespace
}  // namespace holdfast
