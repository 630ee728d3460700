// Proves that a run keeps its checkpoints in a bucket as it does in a directory, with the real binary: killed, it goes
// on from the bucket with other workers and equal bits, and `holdfast ckpt` reads what lies there.

#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_join.h"
#include "tests/framework/s3/fault_proxy.h"
#include "tests/framework/s3/moto_server.h"
#include "tests/integration/command.h"

namespace holdfast {
namespace {

using integration::Command;
using integration::CommandResult;
using integration::RunHoldfast;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

class S3RunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    HOLDFAST_MOTO_OR_SKIP(moto);
    moto_ = &*moto;
    const S3Options bucket = moto->NewBucket();
    setenv("AWS_ACCESS_KEY_ID", bucket.credentials->Get()->access_key_id.c_str(), 1);
    setenv("AWS_SECRET_ACCESS_KEY", bucket.credentials->Get()->secret_access_key.c_str(), 1);
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
                                             "train: {steps: 1000000, threads: 1, validate_every_steps: 0}\n"
                                             "schedule: {decay_steps: 60}\n"
                                             "log: {sample_bytes: 0}\n";
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string Path(const std::string& name) const { return (root_ / name).string(); }
  /// Endless, so that it is not over before it is struck.
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
  size_t Count(const std::string& file, const std::string& text) const {
    const std::string all = integration::ReadAll(Path("run/" + file));
    size_t count = 0;
    for (size_t at = all.find(text); at != std::string::npos; at = all.find(text, at + 1)) ++count;
    return count;
  }
  /// So many more in the run's file than now.
  bool WaitForMore(const std::string& file, const std::string& text, size_t more) const {
    const size_t wanted = Count(file, text) + more;
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::duration<double>(integration::kTestTimeoutSeconds);
    while (Count(file, text) < wanted) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }

  fs::path root_;
  std::string place_, endpoint_;
  MotoServer* moto_ = nullptr;
};

TEST_F(S3RunTest, GoesOnFromTheBucketWithTheSameBits) {
  setenv("HOLDFAST_TEST_SLOWDOWN_MS", "20", 1);
  Command killed(Train(1));
  ASSERT_TRUE(WaitForMore("events.jsonl", "\"checkpoint\"", 2));
  killed.Signal(SIGKILL);
  EXPECT_EQ(killed.Wait().exit_code, 128 + SIGKILL);
  Command stopped(Train(2));
  ASSERT_TRUE(stopped.WaitForOutput("the newest that can be used"));
  ASSERT_TRUE(WaitForMore("metrics.jsonl", "\n", 10));
  stopped.Signal(SIGTERM);
  const CommandResult stop = stopped.Wait();
  EXPECT_EQ(stop.exit_code, 128 + SIGTERM) << stop.output;
  unsetenv("HOLDFAST_TEST_SLOWDOWN_MS");
  const std::string steps = std::to_string(Count("metrics.jsonl", "\n") + 20);
  std::vector<std::string> rest = Train(3);
  rest.insert(rest.end(), {"--set", "train.steps=" + steps});
  const CommandResult last = RunHoldfast(rest);
  EXPECT_EQ(last.exit_code, 0) << last.output;
  EXPECT_EQ(std::to_string(Count("metrics.jsonl", "\n")), steps);
  const CommandResult reference =
      RunHoldfast({"train", Path("run.yaml"), "--run-dir", Path("reference"), "--set", "train.steps=" + steps});
  EXPECT_EQ(reference.exit_code, 0) << reference.output;
  const CommandResult compared = RunHoldfast({"compare", Path("reference"), Path("run")});
  EXPECT_EQ(compared.exit_code, 0) << compared.output;
  EXPECT_FALSE(fs::exists(Path("run/checkpoints")) && !fs::is_empty(Path("run/checkpoints")));

  const CommandResult list = Ckpt("list", {place_});
  EXPECT_EQ(list.exit_code, 0) << list.output;
  EXPECT_THAT(list.output, HasSubstr("  " + steps + "  "));
  const CommandResult verify = Ckpt("verify", {place_});
  EXPECT_EQ(verify.exit_code, 0) << verify.output;
  const CommandResult exported = Ckpt("export", {place_, Path("exported")});
  EXPECT_EQ(exported.exit_code, 0) << exported.output;
  EXPECT_TRUE(fs::exists(Path("exported/model.safetensors")));
}

TEST_F(S3RunTest, TokenFilesInTheBucketGiveTheBitsOfLocalOnes) {
  const std::string tokens = place_ + "/train.bin";
  const auto data = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "data");
    arguments.insert(arguments.end(), {"--endpoint", endpoint_});
    return RunHoldfast(arguments);
  };
  const CommandResult packed = data({"pack", Path("text.txt"), "--out", tokens});
  ASSERT_EQ(packed.exit_code, 0) << packed.output;
  const CommandResult again = data({"pack", Path("text.txt"), "--out", tokens});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.output, HasSubstr("never replaced"));
  const CommandResult shown = data({"show", tokens, "--tokenizer", "bytes"});
  EXPECT_EQ(shown.exit_code, 0) << shown.output;
  EXPECT_THAT(shown.output, HasSubstr("line 0 of the story"));
  EXPECT_EQ(data({"verify", tokens}).exit_code, 0);
  const CommandResult local =
      RunHoldfast({"train", Path("run.yaml"), "--run-dir", Path("local"), "--set", "train.steps=25"});
  ASSERT_EQ(local.exit_code, 0) << local.output;
  const CommandResult remote =
      RunHoldfast({"train", Path("run.yaml"), "--run-dir", Path("remote"), "--set", "train.steps=25", "--workers", "2",
                   "--set", "data.train=" + tokens, "--set", "data.s3_endpoint=" + endpoint_});
  ASSERT_EQ(remote.exit_code, 0) << remote.output;
  const CommandResult compared = RunHoldfast({"compare", Path("local"), Path("remote")});
  EXPECT_EQ(compared.exit_code, 0) << compared.output;
}

// A gateway that answers for a server that is away says nothing of the checkpoints behind it.
TEST_F(S3RunTest, PruningDamagedCheckpointsDeletesNoneThatCannotBeRead) {
  std::vector<std::string> train = Train(1);
  train.insert(train.end(), {"--set", "train.steps=10", "--set", "checkpoint.s3_retry_seconds=1"});
  const CommandResult trained = RunHoldfast(train);
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  FaultProxy gateway(moto_->port());
  const std::string page = "<html><body>error code: 520</body></html>";
  for (const int status : {520, 302, 404, 200}) {
    gateway.SetRule([&](const ProxiedRequest& request) {
      if (request.target.find("manifest") == std::string::npos) return Fault{};
      return Fault{Fault::Kind::kAnswer, absl::StrCat("HTTP/1.1 ", status, " x\r\nContent-Length: ", page.size(),
                                                      "\r\n\r\n", request.method == "HEAD" ? "" : page)};
    });
    const CommandResult pruned =
        RunHoldfast({"ckpt", "prune", Path("run"), "--damaged", "--take-over", "--endpoint", gateway.url()});
    EXPECT_NE(pruned.exit_code, 0) << status << ": " << pruned.output;
    EXPECT_THAT(pruned.output, Not(HasSubstr("  delete  "))) << status;
  }
  const CommandResult verify = Ckpt("verify", {place_});
  EXPECT_EQ(verify.exit_code, 0) << verify.output;
  EXPECT_THAT(Ckpt("list", {place_}).output, testing::ContainsRegex(" 10 .* complete\n.* 5 .* complete\n"));
}

// One that takes the request and says nothing is waited for until a stop, by whatever a signal does not end at once.
TEST_F(S3RunTest, AStopEndsAStartThatWaitsForTheServer) {
  struct Case {
    std::vector<std::string> arguments;
    std::string says = "while starting (";
  };
  FaultProxy silent(moto_->port());
  silent.SetRule([](const ProxiedRequest&) { return Fault{Fault::Kind::kHang}; });
  const auto begun = [this](const std::string& command, std::vector<std::string> settings) {
    std::vector<std::string> arguments = {command, Path("run.yaml"), "--run-dir", Path("stopped")};
    if (command == "coordinator") arguments.insert(arguments.end(), {"--listen", "127.0.0.1:0"});
    for (std::string& setting : settings) arguments.insert(arguments.end(), {"--set", std::move(setting)});
    return arguments;
  };
  const std::vector<std::string> data = {"data.train=" + place_ + "/train.bin", "data.s3_endpoint=" + silent.url(),
                                         "data.s3_retry_seconds=86400"};
  const std::vector<std::string> checkpoints = {"checkpoint.directory=" + place_, "checkpoint.every_steps=5",
                                                "checkpoint.s3_endpoint=" + silent.url(),
                                                "checkpoint.s3_retry_seconds=86400"};
  std::vector<std::string> epochs = data;
  epochs.insert(epochs.end(), {"train.steps=0", "train.epochs=1"});  // which are counted with the config
  ASSERT_EQ(RunHoldfast({"train", Path("run.yaml"), "--run-dir", Path("run"), "--set", "train.steps=1"}).exit_code, 0);
  std::ofstream(root_ / "sweep.yaml") << "sweep: {config: " << Path("run.yaml")
                                      << ", strategy: grid, metric: training_loss, set: [" << absl::StrJoin(data, ", ")
                                      << "]}\nspace: {optimizer.lr: {choices: [0.1]}}\n";
  std::vector<std::string> resumes = begun("train", data);
  resumes[3] = Path("run");
  for (const Case& stopped :
       {Case{begun("train", data)}, Case{resumes}, Case{begun("train", checkpoints)}, Case{begun("coordinator", data)},
        Case{begun("coordinator", checkpoints)}, Case{begun("train", epochs)}, Case{begun("coordinator", epochs)},
        Case{{"data", "pack", place_ + "/text.txt", "--out", Path("never.bin"), "--endpoint", silent.url()},
             "no token file was written"},
        Case{{"sweep", Path("sweep.yaml"), "--sweep-dir", Path("swept")}, "no more trials are begun"},
        Case{{"ckpt", "export", place_, Path("never"), "--endpoint", silent.url()}, "no model was written"},
        Case{{"ckpt", "import", Path("run/model"), place_, "--config", Path("run.yaml"), "--endpoint", silent.url()},
             "no checkpoint was written"}}) {
    const size_t before = silent.log().size();
    Command command(stopped.arguments);
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::duration<double>(integration::kTestTimeoutSeconds);
    while (silent.log().size() == before && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    command.Signal(SIGTERM);
    const CommandResult result = command.Wait();
    EXPECT_EQ(result.exit_code, 128 + SIGTERM) << stopped.arguments[0] << ": " << result.output;
    EXPECT_THAT(result.output, HasSubstr("stopped by SIGTERM")) << stopped.arguments[0];
    EXPECT_THAT(result.output, HasSubstr(stopped.says)) << stopped.arguments[0];
  }
  EXPECT_FALSE(fs::exists(Path("never.bin")) || fs::exists(Path("never")));
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
