// Arguments become options, without a process: what each command of a run takes, what it refuses, and that the command
// line of an agent is one that `holdfast worker` understands.

#include "tools/cli/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "absl/strings/str_split.h"
#include "checkpoint/sharded/manifest.h"
#include "elastic/agent/worker_commands.h"
#include "elastic/coordinator/coordinator_state.h"
#include "elastic/coordinator/event_json.h"
#include "elastic/wire/control_server.h"
#include "framework/config/load.h"
#include "framework/metrics/run_directory.h"
#include "framework/metrics/run_lock.h"
#include "framework/storage/atomic_file.h"
#include "tests/framework/base/temporary_directory.h"
#include "tests/paths.h"
#include "tools/cli/agent_command.h"
#include "tools/cli/check_width_command.h"
#include "tools/cli/compare_command.h"
#include "tools/cli/connection_arguments.h"
#include "tools/cli/coordinator_command.h"
#include "tools/cli/data_command.h"
#include "tools/cli/eval_command.h"
#include "tools/cli/run_arguments.h"
#include "tools/cli/run_record.h"
#include "tools/cli/sample_command.h"
#include "tools/cli/scaling_command.h"
#include "tools/cli/status_command.h"
#include "tools/cli/status_text.h"
#include "tools/cli/sweep_command.h"
#include "tools/cli/train_command.h"
#include "tools/cli/validate_command.h"
#include "tools/cli/worker_command.h"

namespace holdfast {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

/// Nothing if the parser refuses them.
template <typename Command>
std::optional<Command> Parse(std::vector<std::string> arguments) {
  CLI::App app;
  Command command;
  command.AddTo(app);
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError&) {
    return std::nullopt;
  }
  return command;
}

TEST(TrainCommand, TakesAConfigAndHowToBegin) {
  const auto train = Parse<TrainCommand>({"run.yaml", "--set", "train.steps=3", "--workers", "4", "--set", "run.seed=2",
                                          "--run-dir", "here", "--resume", "40", "--overwrite"});
  ASSERT_TRUE(train.has_value());
  EXPECT_EQ(train->run.config.path, "run.yaml");
  EXPECT_THAT(train->run.config.overrides, ElementsAre("train.steps=3", "run.seed=2"));
  EXPECT_EQ(train->workers, 4);
  EXPECT_EQ(train->run.run_dir, "here");
  EXPECT_EQ(train->start.resume, "40");
  EXPECT_TRUE(train->start.overwrite);
  EXPECT_EQ(train->run.Directory({}).root(), "here");

  const auto plain = Parse<TrainCommand>({"run.yaml"});
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->workers, 0);
  EXPECT_FALSE(plain->start.overwrite);
  Config config;
  config.run.name = "a";
  EXPECT_EQ(plain->run.Directory(config).root(), "runs/a");
}

TEST(ValidateCommand, TakesTheWorkersOfTrain) {
  const auto validate = Parse<ValidateCommand>({"run.yaml", "--workers", "4", "--set", "elastic.workers=2"});
  ASSERT_TRUE(validate.has_value());
  EXPECT_EQ(validate->workers, 4);
  EXPECT_FALSE(Parse<ValidateCommand>({"run.yaml", "--workers", "0"}).has_value());
  const TemporaryDirectory directory;
  constexpr char kText[] = "model: {vocab_size: 256}\ndata: {train: [train.bin]}\ntrain: {steps: 1}\n";
  ASSERT_TRUE(WriteFileAtomically(directory / "a.yaml", kText).ok());
  ConfigArguments config{.path = directory / "a.yaml", .overrides = validate->config.overrides};
  config.SetWorkers(0);
  EXPECT_EQ(config.LoadUnresolved()->elastic.workers, 2);
  config.SetWorkers(validate->workers);
  EXPECT_EQ(config.LoadUnresolved()->elastic.workers, 4) << "whatever --set says";
}

TEST(TrainCommand, RefusesWhatMeansNothing) {
  EXPECT_FALSE(Parse<TrainCommand>({}).has_value());
  EXPECT_FALSE(Parse<TrainCommand>({"run.yaml", "--workers", "0"}).has_value());
  EXPECT_FALSE(Parse<TrainCommand>({"run.yaml", "--run-dir", ""}).has_value());
  EXPECT_FALSE(Parse<TrainCommand>({"run.yaml", "--run-dir=", "--overwrite"}).has_value());
  EXPECT_FALSE(Parse<TrainCommand>({"run.yaml", "--resume", "newest"}).has_value());
  EXPECT_FALSE(Parse<TrainCommand>({"run.yaml", "--resume", "-1"}).has_value());
  EXPECT_TRUE(Parse<TrainCommand>({"run.yaml", "--resume", "never"}).has_value());
  EXPECT_FALSE(Parse<TrainCommand>({"run.yaml", "more.yaml"}).has_value());
}

TEST(TrainCommand, AConfigThatIsWrongIsAUsageErrorWithEveryLine) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(WriteFileAtomically(directory / "bad.yaml", "train: {stops: 3}\nbatch: {microbatches: -1}\n").ok());
  TrainCommand train;
  train.run.config.path = directory / "bad.yaml";
  train.run.run_dir = directory / "run";
  const auto result = train.Run();
  EXPECT_TRUE(IsUsageError(result.status())) << result.status();
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("did you mean 'steps'"));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("batch.microbatches"));
  EXPECT_FALSE(std::filesystem::exists(directory / "run"));
}

/// Arguments of a run in `directory`, whose config is beside it.
RunArguments TinyRun(const TemporaryDirectory& directory) {
  const std::string config =
      "run: {name: tiny}\n"
      "model: {family: llama, vocab_size: 256, num_layers: 2, hidden_size: 32, num_heads: 4,\n"
      "        num_kv_heads: 2, intermediate_size: 64, max_sequence_length: 32}\n"
      "data: {train: [train.bin]}\n"
      "batch: {sequence_length: 32, microbatch_size: 2, microbatches: 2}\n"
      "train: {steps: 40, threads: 1}\n";
  EXPECT_TRUE(WriteFileAtomically(directory / "tiny.yaml", config).ok());
  RunArguments run;
  run.config.path = directory / "tiny.yaml";
  run.run_dir = directory.path();
  return run;
}

TEST(CheckWidthCommand, AFileInThePlaceOfItsDirectoryIsAMistake) {
  const TemporaryDirectory directory;
  const std::string config = TinyRun(directory).config.path;
  auto check = Parse<CheckWidthCommand>({config, "--out", config});
  const absl::Status refused = check->Run().status();
  EXPECT_EQ(ExitCodeOf(refused), kExitUsage) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("cannot make the directory " + config + ": Not a directory"));
}

TEST(RunArguments, TheDirectoryOfASweepIsNoRuns) {
  const TemporaryDirectory directory;
  const RunArguments run = TinyRun(directory);
  ASSERT_TRUE(WriteFileAtomically(directory / "sweep.yaml", "of the user's own\n").ok());
  EXPECT_TRUE(run.Load().ok()) << run.Load().status();
  ASSERT_TRUE(WriteFileAtomically(directory / "results.jsonl", "").ok());
  const absl::Status sweep = run.Load().status();
  EXPECT_TRUE(IsUsageError(sweep)) << sweep;
  EXPECT_THAT(std::string(sweep.message()), HasSubstr(directory.path() + " holds a sweep, not a run"));
}

TEST(RunArguments, TheConfigOfARunIsNotAnothersByItsName) {
  const TemporaryDirectory directory;
  RunArguments run = TinyRun(directory);
  const RunDirectory there(directory / "there");
  std::filesystem::create_directory(there.root());
  ASSERT_TRUE(there.WriteConfig(PrintConfig(run.Load().value())).ok());
  run.config.path = there.config();
  run.run_dir.clear();
  const absl::Status refused = run.Load().status();
  EXPECT_TRUE(IsUsageError(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("its run.name stands for runs/tiny"),
                    HasSubstr("pass --run-dir " + there.root() + " to resume that run, or another --run-dir")));
  run.config.overrides = {"run.name=other"};
  EXPECT_TRUE(run.Load().ok()) << run.Load().status();
  run.config.overrides.clear();
  for (const std::string& named : {there.root(), directory / "new"}) {
    run.run_dir = named;
    EXPECT_TRUE(run.Load().ok()) << run.Load().status();
  }
}

/// The working directory, while it lives.
class WorkingIn {
 public:
  explicit WorkingIn(const std::string& directory) { std::filesystem::current_path(directory); }
  ~WorkingIn() { std::filesystem::current_path(before_); }
  WorkingIn(const WorkingIn&) = delete;
  WorkingIn& operator=(const WorkingIn&) = delete;

 private:
  const std::filesystem::path before_ = std::filesystem::current_path();
};

TEST(RunArguments, ARunWithoutANameIsNotAnotherOne) {
  const TemporaryDirectory directory;
  const WorkingIn working(directory.path());
  RunArguments run = TinyRun(directory);
  run.run_dir.clear();
  const auto check = [&run](const std::vector<std::string>& settings) {
    run.config.overrides = settings;
    return run.CheckIsSameRun(run.Load().value());
  };
  EXPECT_TRUE(check({"run.name=run"}).ok()) << "there is none";
  const RunDirectory there("runs/run");
  std::filesystem::create_directories(there.root());
  ASSERT_TRUE(there.WriteConfig(PrintConfig(run.Load().value())).ok());
  const absl::Status longer = check({"run.name=run", "train.steps=80", "log.every_steps=3"});
  EXPECT_TRUE(longer.ok()) << longer;
  const absl::Status other = check({"run.name=run", "run.seed=2"});
  EXPECT_TRUE(IsUsageError(other)) << other;
  EXPECT_THAT(std::string(other.message()),
              AllOf(HasSubstr("(run.seed was 1 and is 2)"), HasSubstr("give run.name or --run-dir for a new run"),
                    HasSubstr("--run-dir runs/run to resume")));
  run.run_dir = there.root();
  EXPECT_TRUE(check({"run.name=run", "run.seed=2"}).ok()) << "resumed, with a warning";
}

// Manifests held other characters in its place.
TEST(RunArguments, AConfigIsUtf8) {
  const TemporaryDirectory directory;
  RunArguments run = TinyRun(directory);
  run.config.overrides = {"data.train=[\"tr\xc3\xa4in.bin\"]"};
  EXPECT_TRUE(run.Load().ok()) << run.Load().status();
  run.config.overrides = {"data.train=[\"tr\xe4in.bin\"]"};
  const absl::Status latin = run.Load().status();
  EXPECT_TRUE(IsUsageError(latin)) << latin;
  EXPECT_THAT(std::string(latin.message()), AllOf(HasSubstr("data.train is not UTF-8"), HasSubstr("tr\\xe4in.bin")));
}

// Steps that follow from the data are counted before anything else is looked at.
TEST(RunArguments, DataThatDoNotFitAreAMistakeWithEpochsToo) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(WriteFileAtomically(directory / "a.txt", "shorter than a sample").ok());
  ASSERT_TRUE(Parse<DataPackCommand>({directory / "a.txt", "--out", directory / "a.bin"})->Run().ok());
  RunArguments run = TinyRun(directory);
  run.config.overrides = {"train.steps=0", "train.epochs=1", "data.train=" + (directory / "a.bin")};
  for (const absl::Status& status : {run.Load().status(), run.config.Load().status()}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("no sample of 32 tokens in "));
    EXPECT_EQ(ExitCodeOf(status), kExitUsage) << status;
  }
}

TEST(SweepCommand, NamesTheFileThatIsNotThereOnce) {
  const TemporaryDirectory directory;
  const std::string file = directory / "sweep.yaml", none = directory / "none.yaml";
  SweepCommand sweep{.path = file, .directory = directory / "sweep"};
  EXPECT_EQ(sweep.Run().status().message(), "cannot read the sweep: " + file + ": No such file or directory");
  ASSERT_TRUE(WriteFileAtomically(file, "sweep: {config: " + none +
                                            ", strategy: random}\nbudget: {trials: 2}\n"
                                            "space: {optimizer.lr: {low: 1e-3, high: 1e-1}}\n")
                  .ok());
  const absl::Status status = sweep.Run().status();
  EXPECT_TRUE(IsUsageError(status));
  EXPECT_EQ(status.message(), file + ": sweep.config: " + none + ": No such file or directory");
}

// Root may read what others may not, but nobody the memory at 0. A directory is a mistake.
TEST(ConfigArguments, WhatCannotBeReadIsNoMistake) {
  ConfigArguments config;
  config.path = "/proc/self/mem";
  const std::string message = "cannot read config /proc/self/mem: Input/output error";
  for (const absl::Status& status : {config.Read(), config.Load().status(), config.LoadUnresolved().status()}) {
    EXPECT_FALSE(IsUsageError(status));
    EXPECT_FALSE(IsMistake(status)) << status;
    EXPECT_EQ(status.message(), message);
  }
  config.path = "/";
  for (const absl::Status& status : {config.Read(), config.Load().status(), config.LoadUnresolved().status()}) {
    EXPECT_TRUE(IsUsageError(status)) << status;
  }
  const TemporaryDirectory run;
  ASSERT_TRUE(WriteFileAtomically(RunDirectory(run.path()).coordinator_state(), "{}").ok());
  config.path = run.path();
  for (const absl::Status& status : {config.Read(), config.Load().status()}) {
    EXPECT_TRUE(IsUsageError(status)) << status;
    EXPECT_EQ(status.message(),
              absl::StrCat("error: ", run.path(), " is the directory of a run, and a config is a file: ", "name ",
                           run.path(), "/config.yaml"));
  }
}

TEST(SweepCommand, ReadsNoResultsWhileAnotherProcessIsAtTheSweep) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(WriteFileAtomically(directory / "config.yaml",
                                  "model: {vocab_size: 256}\n"
                                  "data: {train: [a.bin], validation: [a.bin], tokenizer: bytes}\n"
                                  "train: {steps: 10, validate_every_steps: 5}\nschedule: {warmup_steps: 0}\n")
                  .ok());
  ASSERT_TRUE(WriteFileAtomically(directory / "sweep.yaml", "sweep: {config: " + directory / "config.yaml" +
                                                                ", strategy: random}\nbudget: {trials: 2}\n"
                                                                "space: {optimizer.lr: {low: 1e-3, high: 1e-1}}\n")
                  .ok());
  SweepCommand sweep{.path = directory / "sweep.yaml", .directory = directory / "sweep"};
  std::optional<absl::StatusOr<RunLock>> other = RunLock::Take(RunDirectory(sweep.directory));
  ASSERT_TRUE(other->ok()) << other->status();
  std::filesystem::copy_file(sweep.path, directory / "sweep/sweep.yaml");
  ASSERT_TRUE(WriteFileAtomically(directory / "sweep/results.jsonl", "damaged\ndamaged\n").ok());
  EXPECT_TRUE(absl::IsAborted(sweep.Run().status())) << sweep.Run().status();
  other.reset();
  EXPECT_TRUE(absl::IsDataLoss(sweep.Run().status())) << sweep.Run().status();
}

TEST(CoordinatorCommand, ListensOnLoopbackUnlessTold) {
  EXPECT_EQ(Parse<CoordinatorCommand>({"run.yaml"})->listen, "127.0.0.1:29400");
  const auto told = Parse<CoordinatorCommand>({"run.yaml", "--listen", "0.0.0.0:7", "--token-file", "secret",
                                               "--tls-certificate", "c", "--tls-key", "k", "--tls-authority", "a"});
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->listen, "0.0.0.0:7");
  EXPECT_EQ(told->token_file, "secret");
  EXPECT_EQ(told->tls.certificate + told->tls.key + told->tls.authority, "cka");
}

TEST(Commands, MutualTlsNeedsThreeFiles) {
  const std::vector<std::vector<std::string>> halves{
      {"--tls-certificate", "c"}, {"--tls-key", "k", "--tls-certificate", "c"}, {"--tls-authority", "a"}};
  for (std::vector<std::string> half : halves) {
    half.insert(half.begin(), "run.yaml");
    EXPECT_FALSE(Parse<CoordinatorCommand>(half).has_value()) << half[1];
    EXPECT_FALSE(Parse<AgentCommand>(half).has_value()) << half[1];
    EXPECT_FALSE(Parse<StatusCommand>(half).has_value()) << half[1];
  }
}

TEST(CoordinatorCommand, BeginsAsTrainDoes) {
  const auto coordinator = Parse<CoordinatorCommand>({"run.yaml", "--resume", "40", "--overwrite"});
  ASSERT_TRUE(coordinator.has_value());
  EXPECT_EQ(coordinator->start.resume, "40");
  EXPECT_TRUE(coordinator->start.overwrite);
  EXPECT_FALSE(Parse<CoordinatorCommand>({"run.yaml", "--resume", "newest"}).has_value());
}

TEST(AgentCommand, NeedsToKnowItsCoordinator) {
  ConnectionOptions nowhere = Parse<AgentCommand>({"run.yaml"})->connection;
  EXPECT_TRUE(IsUsageError(LookForLeader(RunDirectory("here"), nowhere)));
  ConnectionOptions elsewhere = Parse<AgentCommand>({"run.yaml", "--lease", "zookeeper://db/a"})->connection;
  EXPECT_TRUE(IsUsageError(LookForLeader(RunDirectory("here"), elsewhere)));
  ConnectionOptions leased = Parse<AgentCommand>({"run.yaml", "--lease", "etcd://db/a"})->connection;
  EXPECT_TRUE(LookForLeader(RunDirectory("here"), leased).ok());
  EXPECT_NE(leased.find_leader, nullptr);
  const auto agent = Parse<AgentCommand>({"run.yaml", "--coordinator", "h:1", "--workers", "2", "--node", "n"});
  ASSERT_TRUE(agent.has_value());
  EXPECT_EQ(agent->connection.coordinator, "h:1");
  EXPECT_EQ(agent->workers, 2);
  EXPECT_EQ(agent->node, "n");
  EXPECT_EQ(agent->host, "") << "the address on the way to the coordinator";
  for (const std::string& no_name : {std::string(), std::string("rack/host"), std::string(201, 'n')}) {
    EXPECT_FALSE(Parse<AgentCommand>({"run.yaml", "--coordinator", "h:1", "--node", no_name}).has_value());
  }
}

TEST(WorkerCommand, UnderstandsWhatAnAgentStarts) {
  Config config;
  config.train.threads = 3;
  const ConnectionOptions connection{.coordinator = "h:1",
                                     .token_file = "/t",
                                     .tls = {.certificate = "/c", .key = "/k", .authority = "/a"},
                                     .lease = "etcd://db/a"};
  const AgentSettings settings{.node = "n",
                               .host = "10.0.0.1",
                               .coordinator = "h:1",
                               .config_path = "run.yaml",
                               .overrides = {"run.seed=2", "data.train=[a, b]"},
                               .connection = connection.Arguments(),
                               .num_workers = 2};
  const auto commands = WorkerCommands(config, RunDirectory("here"), settings);
  ASSERT_EQ(commands.size(), 2u);
  for (size_t i = 0; i < commands.size(); ++i) {
    const std::vector<std::string>& argv = commands[i].argv;
    ASSERT_EQ(argv[1], "worker");
    const auto worker = Parse<WorkerCommand>({argv.begin() + 2, argv.end()});
    ASSERT_TRUE(worker.has_value()) << i;
    EXPECT_EQ(worker->identity.name, commands[i].name);
    EXPECT_EQ(worker->identity.node, "n");
    EXPECT_EQ(worker->identity.host, "10.0.0.1");
    EXPECT_EQ(worker->workers_here, 2);
    EXPECT_EQ(worker->local_index, static_cast<int64_t>(i));
    EXPECT_EQ(worker->run.run_dir, "here");
    EXPECT_EQ(worker->connection.coordinator, "h:1");
    EXPECT_EQ(worker->connection.lease, "etcd://db/a");
    EXPECT_EQ(worker->connection.token_file, "/t");
    EXPECT_EQ(worker->connection.tls.key, "/k");
    EXPECT_THAT(worker->run.config.overrides, ElementsAre("run.seed=2", "data.train=[a, b]", "train.threads=3"));
  }
}

// Which no viewer would open.
TEST(CompareCommand, APictureIsNotWrittenUnderTheNameOfAnotherFormat) {
  EXPECT_FALSE(Parse<CompareCommand>({"a", "b", "--out", "c.png"}).has_value());
  EXPECT_FALSE(Parse<CompareCommand>({"a", "b", "--out", "c.d/C.PDF"}).has_value());
  for (const char* name : {"c.svg", "c", "c.png/d", "/dev/stdout"}) {
    EXPECT_EQ(Parse<CompareCommand>({"a", "b", "--out", name})->out, name);
  }
  CLI::App app;
  CompareCommand compare;
  compare.AddTo(app);
  try {
    app.parse(std::vector<std::string>{"c.PNG", "--out", "b", "a"});
    FAIL();
  } catch (const CLI::ParseError& error) {
    EXPECT_STREQ(error.what(), "--out: pictures are written as SVG alone; write c.svg");
  }
}

TEST(StatusCommand, TakesARunOrAnAddress) {
  const auto status = Parse<StatusCommand>({"here", "--json"});
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->target, "here");
  EXPECT_TRUE(status->json);
  EXPECT_FALSE(status->watch);
  const TemporaryDirectory empty;
  StatusCommand nobody;
  nobody.target = empty.path();
  EXPECT_TRUE(absl::IsNotFound(nobody.Run().status()));
  EXPECT_EQ(nobody.Run().status().message(), empty.path() + " is not a run directory: it holds no run");
  for (const std::string& typo : {empty.path() + "/nothing", std::string("rnus")}) {
    nobody.target = typo;
    EXPECT_TRUE(absl::IsNotFound(nobody.Run().status())) << typo;
    EXPECT_THAT(std::string(nobody.Run().status().message()), HasSubstr("there is no directory " + typo));
  }
  nobody.target = "";
  EXPECT_TRUE(IsUsageError(nobody.Run().status()));
  EXPECT_THAT(std::string(nobody.Run().status().message()), HasSubstr("the name is empty"));
}

// The directory of a sweep is taken for that of its run.
TEST(StatusCommand, ASweepIsNoRun) {
  const TemporaryDirectory sweep;
  ASSERT_TRUE(WriteFileAtomically(sweep / "sweep.yaml", "").ok());
  StatusCommand status;
  status.target = sweep.path();
  EXPECT_THAT(std::string(status.Run().status().message()), HasSubstr("it holds no run")) << "it has not begun";
  ASSERT_TRUE(WriteFileAtomically(sweep / "results.jsonl", "").ok());
  SampleCommand sample;
  sample.model = sweep.path();
  sample.prompts = {"a"};
  EvalCommand eval;
  eval.model = sweep.path();
  eval.data = {"none.bin"};
  for (const absl::Status& refused : {status.Run().status(), sample.Run().status(), eval.Run().status()}) {
    EXPECT_TRUE(absl::IsNotFound(refused)) << refused;
    EXPECT_EQ(refused.message(), sweep.path() +
                                     " holds a sweep, not a run: name the directory of one of its runs, "
                                     "which results.csv in it lists");
  }
}

// As where a user may not enter the directory, which root may: that a run is not seen does not say that there is none.
TEST(StatusCommand, WhatCannotBeLookedAtIsNotMissing) {
  const TemporaryDirectory directory;
  StatusCommand status;
  status.target = std::string(300, 'x');  // more than a file system takes for a name
  EXPECT_EQ(status.Run().status().message(), status.target + ": File name too long");
  status.target = directory.path();
  const std::string address = RunDirectory(status.target).coordinator_address();
  std::filesystem::create_symlink(address, address);
  EXPECT_EQ(status.Run().status().message(), address + ": Too many levels of symbolic links");
}

TEST(StatusCommand, WhereNoCoordinatorListensIsSaidInOurWords) {
  StatusCommand status;
  status.target = "127.0.0.1:1";
  const absl::Status refused = status.Run().status();
  EXPECT_EQ(ExitCodeOf(refused), kExitRetry) << refused;
  EXPECT_THAT(
      std::string(refused.message()),
      AllOf(StartsWith("no coordinator answers at 127.0.0.1:1: its run is starting or has ended, something else "
                       "listens there, or it is not reached from here ("),
            EndsWith(")"), Not(HasSubstr("coordinator 127.0.0.1:1: "))));
}

TEST(StatusCommand, APortIsOne) {
  StatusCommand status;
  status.target = "127.0.0.1:95536";  // to gRPC 30000
  EXPECT_TRUE(IsUsageError(status.Run().status()));
  EXPECT_THAT(std::string(status.Run().status().message()), HasSubstr("with a port of up to 65535"));
}

TEST(Commands, AnAddressIsOne) {
  for (const char* wrong : {"h:99999", "h:x", "[::1", ":"}) {
    EXPECT_FALSE(Parse<CoordinatorCommand>({"run.yaml", "--listen", wrong}).has_value()) << wrong;
    EXPECT_FALSE(Parse<AgentCommand>({"run.yaml", "--coordinator", wrong}).has_value()) << wrong;
  }
  for (const char* wrong : {"a:1,b:99999", ","}) {
    EXPECT_FALSE(Parse<AgentCommand>({"run.yaml", "--coordinator", wrong}).has_value()) << wrong;
  }
  for (const char* right : {"h", "h:1", "[::1]:1", "::1", "0.0.0.0:0"}) {
    EXPECT_TRUE(Parse<CoordinatorCommand>({"run.yaml", "--listen", right}).has_value()) << right;
    EXPECT_TRUE(Parse<AgentCommand>({"run.yaml", "--coordinator", right}).has_value()) << right;
  }
  EXPECT_TRUE(Parse<AgentCommand>({"run.yaml", "--coordinator", "a:1, b"}).has_value());
}

// Others would look for a machine of that name.
TEST(Commands, WhereOthersReachAMachineHasNoPort) {
  for (const char* wrong : {"h:1", "10.0.0.1:29400", "[::1]:1", "[::1]"}) {
    EXPECT_FALSE(Parse<CoordinatorCommand>({"run.yaml", "--advertise", wrong}).has_value()) << wrong;
    EXPECT_FALSE(Parse<AgentCommand>({"run.yaml", "--coordinator", "h", "--host", wrong}).has_value()) << wrong;
  }
  for (const char* right : {"h", "10.0.0.1", "::1", "fe80::1%eth0"}) {
    EXPECT_TRUE(Parse<CoordinatorCommand>({"run.yaml", "--advertise", right}).has_value()) << right;
    EXPECT_TRUE(Parse<AgentCommand>({"run.yaml", "--coordinator", "h", "--host", right}).has_value()) << right;
  }
}

TEST(StatusCommand, ARunThatHasEndedSaysHow) {
  const TemporaryDirectory place;
  const RunDirectory directory(place.path());
  Config config;
  config.run.name = "tiny";
  config.model.vocab_size = 256;
  config.data.train = {"none.bin"};
  config.train.steps = 2;
  ASSERT_TRUE(directory.WriteConfig(PrintConfig(config)).ok());
  StatusCommand status;
  status.target = place.path();
  EXPECT_EQ(*status.Run(), kExitFailure) << "nobody knows how";

  StepMetrics first;
  first.step = 1;
  StepMetrics last = first;
  last.step = 2;
  last.loss = 2.5;
  last.tokens = 16;
  last.tokens_per_second = 4;
  ASSERT_TRUE(WriteFileAtomically(directory.metrics(), first.ToJson() + "\n" + last.ToJson() + "\n").ok());
  event::RunFinished end;
  end.step = 2;
  end.reason = "done";
  const std::string events = EventLine(1, end) + "\n" + EventLine(2, event::AlertFailed{.cause = "none"}) + "\n";
  ASSERT_TRUE(WriteFileAtomically(directory.events(), events).ok());
  const auto ended = StatusAtTheEnd(directory);
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(StatusText(*ended),
            "run tiny: ended: done"
            "\nstep 2 of 2, loss 2.5000, 4 tokens/s; 16 tokens so far\n");
  EXPECT_THAT(StatusJson(*ended), HasSubstr("\"state\": \"ended\""));
  status.watch = true;
  EXPECT_EQ(*status.Run(), 0);
  status.json = true;
  testing::internal::CaptureStdout();
  EXPECT_EQ(*status.Run(), 0);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), MatchesRegex("\\{\"run\":\"tiny\"[^\n]*\\}\n"))
      << "one JSON object a line";
  status.json = false;

  ASSERT_TRUE(WriteFileAtomically(directory.events(), events + EventLine(3, event::RunStarted{}) + "\n").ok());
  EXPECT_EQ(*status.Run(), kExitFailure) << "it was started again";

  last.step_seconds = 0.5;
  last.world_size = 1;
  config.train.steps = 10;
  ASSERT_TRUE(directory.WriteConfig(PrintConfig(config)).ok());
  ASSERT_TRUE(WriteFileAtomically(directory.metrics(), last.ToJson() + "\n").ok());
  const auto lock = RunLock::Take(directory);
  ASSERT_TRUE(lock.ok()) << lock.status();
  const auto alive = StatusByRecord(directory);
  ASSERT_TRUE(alive.ok()) << alive.status();
  EXPECT_THAT(StatusText(*alive), StartsWith("run tiny: training: in process "));
  EXPECT_THAT(StatusText(*alive), HasSubstr("; figures as last recorded\n"
                                            "step 2 of 10, loss 2.5000, 4 tokens/s, ETA 4.0 s; 16 tokens so far\n"
                                            "world of 1 of "));
  const std::string paused = events + EventLine(3, event::Paused{"no space left"}) + "\n";
  ASSERT_TRUE(WriteFileAtomically(directory.events(), paused).ok());
  EXPECT_THAT(StatusByRecord(directory)->detail,
              EndsWith("; paused, retrying: no space left; figures as last recorded"));
  for (const RunEvent& over :
       {RunEvent(event::Resumed{1}), RunEvent(event::RunStarted{}), RunEvent(event::RunStopped{})}) {
    ASSERT_TRUE(WriteFileAtomically(directory.events(), paused + EventLine(4, over) + "\n").ok());
    EXPECT_THAT(StatusByRecord(directory)->detail, Not(HasSubstr("paused")));
  }
  status.watch = false;
  EXPECT_EQ(*status.Run(), 0);
  config.elastic.workers = 2;
  ASSERT_TRUE(directory.WriteConfig(PrintConfig(config)).ok());
  const absl::Status silent = status.Run().status();
  EXPECT_THAT(std::string(silent.message()), HasSubstr("does not listen yet"));
  EXPECT_EQ(ExitCodeOf(silent), kExitRetry);
}

TEST(StatusCommand, ARunThatNobodyRunsSaysWhatItHasLost) {
  const TemporaryDirectory place;
  const RunDirectory directory(place.path());
  Config config;
  config.model.vocab_size = 256;
  config.data.train = {"none.bin"};
  config.train.steps = 2;
  ASSERT_TRUE(directory.WriteConfig(PrintConfig(config)).ok());
  event::WorkerLost lost;
  lost.worker = "n1/0";
  const std::string of_a_life = EventLine(10, lost) + "\n" + EventLine(13, event::Recovered{}) + "\n";
  ASSERT_TRUE(WriteFileAtomically(directory.events(), of_a_life + EventLine(20, event::RunFinished{}) + "\n").ok());
  const auto ended = StatusAtTheEnd(directory);
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_THAT(StatusText(*ended),
              EndsWith("\nso far 1 loss of a worker, 3.0 s until the next step after losses and other trouble\n"));
  EXPECT_THAT(StatusText(*ended), Not(HasSubstr("world of")));
  EXPECT_THAT(StatusJson(*ended), HasSubstr("\"workers_lost\": 1,"));

  lost.worker = "n1/1";  // and then all were killed
  const std::string later = EventLine(30, lost) + "\n" + EventLine(32, event::TooFewWorkers{}) + "\n";
  ASSERT_TRUE(WriteFileAtomically(directory.events(), of_a_life + later).ok());
  const auto killed = StatusAtTheEnd(directory);
  ASSERT_TRUE(killed.ok()) << killed.status();
  EXPECT_EQ(killed->figures.workers_lost, 2);
  EXPECT_DOUBLE_EQ(killed->figures.lost_seconds, 5);
}

TEST(StatusCommand, ARunThatWasKilledSaysHowFarItIsAndWhatToDo) {
  const TemporaryDirectory place;
  const RunDirectory directory(place.path());
  Config config;
  config.run.name = "tiny";
  config.model.vocab_size = 256;
  config.data.train = {"none.bin"};
  config.train.steps = 10;
  ASSERT_TRUE(directory.WriteConfig(PrintConfig(config)).ok());
  StepMetrics last;
  last.step = 7;
  last.loss = 2.5;
  last.tokens = 16;
  last.tokens_per_second = 4;
  last.step_seconds = 0.5;
  ASSERT_TRUE(WriteFileAtomically(directory.metrics(), last.ToJson() + "\n").ok());
  const auto detail = [&](const std::vector<RunEvent>& events) {
    std::string lines;
    for (const RunEvent& event : events) lines += EventLine(1, event) + "\n";
    EXPECT_TRUE(WriteFileAtomically(directory.events(), lines).ok());
    const auto status = StatusAtTheEnd(directory);
    return status.ok() ? StatusText(*status) : std::string(status.status().message());
  };
  const std::string progress = "; the command that started it resumes it\nstep 7 of 10, loss 2.5000, 4 tokens/s; ";
  EXPECT_THAT(detail({event::RunStarted{}}), HasSubstr("it has written no checkpoint" + progress));
  const event::Rewind rewind{.from_step = 6, .step = 4, .name = "four", .reason = "lost"};
  EXPECT_THAT(detail({event::CheckpointSaved{.step = 4, .name = "four"},
                      event::CheckpointSaved{.step = 6, .name = "six"}, rewind}),
              HasSubstr("its newest checkpoint is of step 4" + progress));
  EXPECT_THAT(detail({event::CheckpointSaved{.step = 6, .name = "six"},
                      event::CheckpointSaved{.step = 8, .name = "given up by --resume 7"}}),
              HasSubstr("its newest checkpoint is of step 6" + progress));
  EXPECT_THAT(detail({rewind, event::CheckpointSaved{.step = 6, .name = "six"}}),
              StartsWith("run tiny: not running: no process leads it any more; its newest checkpoint is of step 6"));
  EXPECT_THAT(StatusJson(*StatusAtTheEnd(directory)), HasSubstr("\"state\": \"not running\""));
  // It went back to step 4 after generation 7, of which no event tells, as after a loss of power.
  CoordinatorState state{.generation = 8, .branch = {}};
  state.branch.GoBack({.generation = 7, .step = 4});
  ASSERT_TRUE(WriteCoordinatorState(directory, state).ok());
  const auto saved = [](int64_t step, uint64_t generation) {
    return event::CheckpointSaved{.step = step, .name = CheckpointName{step, generation}.ToString()};
  };
  EXPECT_THAT(detail({saved(4, 7), saved(6, 7)}), HasSubstr("its newest checkpoint is of step 4" + progress));
  EXPECT_THAT(detail({saved(4, 7), saved(6, 8)}), HasSubstr("its newest checkpoint is of step 6" + progress));

  StatusCommand status;
  status.target = place.path();
  status.watch = true;
  EXPECT_EQ(*status.Run(), kExitFailure);
  // Killed, a coordinator leaves its address, and its lock to whoever comes.
  ASSERT_TRUE(WriteFileAtomically(directory.lock(), "").ok());
  ASSERT_TRUE(WriteFileAtomically(directory.coordinator_address(), "127.0.0.1:1\n").ok());
  EXPECT_EQ(*status.Run(), kExitFailure);
}

/// A coordinator of another run.
class OtherCoordinator final : public ControlHandler {
 public:
  void OnMessage(Connection, WorkerMessage) override {}
  void OnDisconnect(Connection, std::string) override {}
  RunStatus StatusNow() override { return status; }
  RunStatus status;
};

// It was killed, and another run's coordinator took its port, and has the same token.
TEST(StatusCommand, ARunIsNotToldByTheCoordinatorOfAnother) {
  const TemporaryDirectory place;
  const RunDirectory directory(place.path());
  Config config;
  config.run.name = "tiny";
  config.model.vocab_size = 256;
  config.data.train = {"none.bin"};
  config.train.steps = 100;
  ASSERT_TRUE(directory.WriteConfig(PrintConfig(config)).ok());
  OtherCoordinator other;
  other.status.state = RunState::kTraining;
  other.status.figures.run = "other";
  const auto server = ControlServer::Start({.address = "127.0.0.1:0"}, &other);
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE(WriteFileAtomically(directory.coordinator_address(), (*server)->address() + "\n").ok());
  ASSERT_TRUE(WriteFileAtomically(directory.lock(), "process 7 on h1\n0123\n").ok());
  StatusCommand status;
  status.target = place.path();
  const auto told_of = [&status] {
    const auto told = status.Fetch();
    return told.ok() ? told->figures.run : told.status().ToString();
  };
  EXPECT_EQ(told_of(), "other") << "of an earlier build, which does not say whose it is";
  other.status.leader = "process 7 on h1\n4567\n";
  const auto dead = status.Fetch();
  ASSERT_TRUE(dead.ok()) << dead.status();
  EXPECT_EQ(dead->figures.run, "tiny");
  EXPECT_EQ(dead->state, RunState::kNotRunning);
  const auto lock = RunLock::Take(directory);
  ASSERT_TRUE(lock.ok()) << lock.status();
  const absl::Status alive = status.Fetch().status();
  EXPECT_TRUE(absl::IsUnavailable(alive)) << alive;
  EXPECT_THAT(std::string(alive.message()),
              HasSubstr(", of run other, is not the one that has the lock of " + place.path()));
  other.status.leader = RunLock::Read(directory)->owner;
  EXPECT_EQ(told_of(), "other") << "it is this one's";

  const TemporaryDirectory copies;
  const RunDirectory copy(copies / "copy");
  std::filesystem::copy(place.path(), copy.root());
  status.target = copy.root();
  const auto copied = status.Fetch();
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(copied->state, RunState::kNotRunning) << "nobody leads the copy";
  EXPECT_EQ(copied->figures.run, "tiny");
}

TEST(StatusText, SaysHowFarTheRunIsWhoIsMissingAndWhatItHasLost) {
  RunStatus status{.state = RunState::kTraining,
                   .detail = "",
                   .generation = 3,
                   .world_size = 7,
                   .committed_step = 10,
                   .total_steps = 100,
                   .workers = {},
                   .nodes = {"n0"},
                   .loading = {}};
  status.figures = {.run = "tiny",
                    .wanted_workers = 8,
                    .missing = {"n1/0 on h2: connection lost"},
                    .workers_lost = 2,
                    .lost_seconds = 75,
                    .loss = 3.25,
                    .tokens = 20'480,
                    .tokens_per_second = 2048,
                    .steps_per_second = 0.5};
  EXPECT_THAT(StatusText(status), StartsWith("run tiny: training\n"
                                             "step 10 of 100, loss 3.2500, 2.05 K tokens/s, ETA 3 min 00 s; "
                                             "20.5 K tokens so far\n"
                                             "world of 7 of 8 workers, generation 3\n"
                                             "missing: n1/0 on h2: connection lost\n"
                                             "so far 2 losses of a worker, 1 min 15 s until the next step after "
                                             "losses and other trouble\n"));
  EXPECT_THAT(StatusJson(status), HasSubstr("\"loss\": 3.25"));
  EXPECT_THAT(StatusJson(status, /*on_one_line=*/true), HasSubstr("\"nodes\":[\"n0\"],\"workers\":[]"));
  status.figures.tokens = 0;  // no step yet
  EXPECT_THAT(StatusText(status), HasSubstr("\nstep 10 of 100\n"));
  EXPECT_THAT(StatusJson(status), HasSubstr("\"loss\": null"));
}

TEST(SampleCommand, ANumberIsOne) {
  EXPECT_TRUE(Parse<SampleCommand>({"run", "--top-p", "0.9", "--temperature", "0"}).has_value());
  for (const char* wrong : {"nan", "-0.1", "1.1", "half", "inf"}) {
    EXPECT_FALSE(Parse<SampleCommand>({"run", "--top-p", wrong}).has_value()) << wrong;
  }
}

TEST(SampleCommand, ASeedIsAWholeNumberOf64Bits) {
  const auto largest = Parse<SampleCommand>({"run", "--seed", "18446744073709551615"});
  ASSERT_TRUE(largest.has_value());
  EXPECT_EQ(largest->options.seed, ~uint64_t{0});
  for (const char* wrong : {"-1", "18446744073709551616", "1.5", "x"}) {
    EXPECT_FALSE(Parse<SampleCommand>({"run", "--seed", wrong}).has_value()) << wrong;
  }
}

// A template that writes no date never looks at it.
TEST(Commands, ADateIsOneOfTheCalendar) {
  const auto sample = [](const std::string& date) { return Parse<SampleCommand>({"run", "--chat", "--date", date}); };
  const auto pack = [](const std::string& date) {
    return Parse<DataPackCommand>({"a", "--out", "b", "--chat", "--sequence-length", "32", "--date", date});
  };
  for (const char* right : {"2024-02-29", "2026-11-28 09:30:00"}) {
    ASSERT_TRUE(sample(right).has_value() && pack(right).has_value()) << right;
    EXPECT_EQ(sample(right)->date, right);
    EXPECT_EQ(pack(right)->chat_options.date, right);
  }
  for (const char* wrong : {"2026-13-45", "2026-02-29", "2026-1-1", "today", ""}) {
    EXPECT_FALSE(sample(wrong).has_value()) << wrong;
    EXPECT_FALSE(pack(wrong).has_value()) << wrong;
  }
}

TEST(Commands, ANegativeNumberIsRefusedInOneLine) {
  CLI::App app;
  SampleCommand sample;
  sample.AddTo(app);
  try {
    app.parse(std::vector<std::string>{"-1", "--top-k", "run"});  // from the last to the first
    FAIL();
  } catch (const CLI::ParseError& error) {
    EXPECT_STREQ(error.what(), "--top-k: '-1' is no number from 0 upwards");
  }
}

TEST(Commands, WhatIsNoWholeNumberIsNotSaidToBeBeyondARange) {
  for (const char* wrong : {"1e3", "2.0", "many", "0", "1000001", "99999999999999999999"}) {
    CLI::App app;
    SampleCommand sample;
    sample.AddTo(app);
    try {
      app.parse(std::vector<std::string>{wrong, "--samples", "run"});  // from the last to the first
      ADD_FAILURE() << wrong;
    } catch (const CLI::ParseError& error) {
      EXPECT_EQ(error.what(), absl::StrCat("--samples: '", wrong, "' is no whole number from 1 to 1000000"));
    }
  }
  EXPECT_EQ(Parse<SampleCommand>({"run", "--samples", "1000000"})->samples, 1'000'000);
}

TEST(Commands, ANumberThatCannotBeIsRefusedWhileItIsParsed) {
  for (const char* wrong : {"nan", "inf", "0", "-1"}) {
    EXPECT_FALSE(Parse<ScalingFitCommand>({"r", "--huber-delta", wrong}).has_value()) << wrong;
    EXPECT_FALSE(Parse<ScalingFitCommand>({"r", "--budget", wrong}).has_value()) << wrong;
    EXPECT_FALSE(Parse<ScalingFitCommand>({"r", "--level", wrong}).has_value()) << wrong;
    EXPECT_FALSE(Parse<ScalingOptimumCommand>({"f", "1e20", "--ratio", wrong}).has_value()) << wrong;
    EXPECT_FALSE(Parse<CheckWidthCommand>({"c", "--slope", wrong}).has_value()) << wrong;
  }
  EXPECT_TRUE(Parse<ScalingFitCommand>({"r", "--huber-delta", "1e-3", "--budget", "1e21"}).has_value());
  EXPECT_FALSE(Parse<ScalingOptimumCommand>({"f", "inf"}).has_value());
}

TEST(Commands, AnUnknownChoiceIsToldTheKnownOnesByName) {
  CLI::App app;
  DataPackCommand pack;
  pack.AddTo(app);
  try {
    app.parse(std::vector<std::string>{"xml", "--format", "b", "--out", "a"});  // from the last to the first
    FAIL();
  } catch (const CLI::ParseError& error) {
    EXPECT_STREQ(error.what(), "--format: xml not in {auto,text,jsonl}");
  }
  EXPECT_EQ(Parse<DataPackCommand>({"a", "--out", "b", "--format", "jsonl"})->options.format,
            PackOptions::Format::kJsonl);
}

TEST(EvalCommand, MicrobatchesOfQuestionsAloneAreRefused) {
  EvalCommand eval;
  eval.model = "no/such/model";
  eval.data = {"a.jsonl", "b.jsonl"};
  eval.microbatches = 1;
  EXPECT_THAT(std::string(eval.Run().status().message()), HasSubstr("--microbatches: there is no token file"));
  eval.data.emplace_back("c.bin");
  EXPECT_THAT(std::string(eval.Run().status().message()), HasSubstr("no/such/model"));
  eval.data.pop_back();
  eval.microbatches = 0;
  EXPECT_THAT(std::string(eval.Run().status().message()), HasSubstr("no/such/model"));
}

// Whether there is a config beside the model is asked before the model is opened. No exception says what is wrong.
TEST(EvalCommand, AModelThatCannotBeLookedAtIsNamed) {
  EvalCommand eval;
  eval.model = std::string(300, 'x');  // more than a file system takes for a name
  eval.data = {"a.bin"};
  const absl::Status status = eval.Run().status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(eval.model));
}

TEST(DataPackCommand, AFractionAndItsFileBelongTogether) {
  EXPECT_TRUE(Parse<DataPackCommand>({"a.txt", "--out", "a.bin"}).has_value());
  EXPECT_FALSE(Parse<DataPackCommand>({"a.txt"}).has_value());
  EXPECT_FALSE(Parse<DataPackCommand>({"a.txt", "--out", "a.bin", "--validation-fraction", "0.1"}).has_value());
  EXPECT_FALSE(Parse<DataPackCommand>({"a.txt", "--out", "a.bin", "--append-eot", "--no-eot"}).has_value());
}

TEST(DataPackCommand, ThreadsMayBeSaidOfConversationsToo) {
  const auto pack = Parse<DataPackCommand>({"a", "--out", "b", "--chat", "--sequence-length", "32", "--threads", "3"});
  ASSERT_TRUE(pack.has_value());
  EXPECT_EQ(pack->options.threads, 3);
}

TEST(DataPackCommand, ReplacesByWordOnly) {
  EXPECT_FALSE(Parse<DataPackCommand>({"a.txt", "--out", "a.bin"})->options.paths.overwrite);
  EXPECT_TRUE(Parse<DataPackCommand>({"a.txt", "--out", "a.bin", "--overwrite"})->options.paths.overwrite);
}

// Whatever the files are called.
TEST(DataPackCommand, WhatItSaysBeginsInOneColumn) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(WriteFileAtomically(directory / "a.txt", "a few words").ok());
  ASSERT_TRUE(WriteFileAtomically(directory / "a.jsonl", R"({"prompt": "q", "completion": "a"})").ok());
  const auto expect_columns = [](const std::vector<std::string>& arguments, size_t lines) {
    const auto pack = Parse<DataPackCommand>(arguments);
    testing::internal::CaptureStdout();
    EXPECT_TRUE(pack->Run().ok());
    const std::string said = testing::internal::GetCapturedStdout();
    const std::vector<std::string> each = absl::StrSplit(said, '\n', absl::SkipEmpty());
    EXPECT_EQ(each.size(), lines);
    EXPECT_THAT(each, testing::Each(testing::MatchesRegex("[a-z ]{11} [^ ].*")));
  };
  expect_columns({directory / "a.txt", "--out", directory / "t.bin", "--validation-fraction", "0.5", "--validation-out",
                  directory / "longer.bin"},
                 4);
  expect_columns({directory / "a.jsonl", "--chat", "--tokenizer", SourceDir() + "/tests/framework/chat/golden/mistral",
                  "--sequence-length", "64", "--out", directory / "chat.bin"},
                 3);
}

// Not of the JSON around it.
TEST(DataPackCommand, BytesOfATokenAreThoseOfTheText) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(WriteFileAtomically(directory / "a.jsonl", R"({"id": 12345, "text": "ab"})").ok());
  testing::internal::CaptureStdout();
  EXPECT_TRUE(Parse<DataPackCommand>({directory / "a.jsonl", "--out", directory / "a.bin"})->Run().ok());
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("tokens      2 (1.00 bytes per token), vocabulary"));
}

// What is to be changed is the command, the template or the conversation.
TEST(DataPackCommand, WhatAChatTemplateDoesNotTakeIsAMistake) {
  const TemporaryDirectory directory;
  std::filesystem::copy_file(SourceDir() + "/tests/framework/data/golden/tokenizer_llama3_style.json",
                             directory / "tokenizer.json");
  const std::string turns = R"({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"})";
  ASSERT_TRUE(WriteFileAtomically(directory / "a.jsonl", "{\"messages\": [" + turns + ", " + turns + "]}\n").ok());
  for (const auto& [source, says] :
       {std::pair("{{ strftime_now('%Y') }}", "--date YYYY-MM-DD"),
        {"{{ raise_exception('no') }}", "says: no"},
        {"{{ messages | length }}", "writes the messages before message 2 otherwise"},
        {"{% for m in messages %}{{ m.content }}{% if loop.last and m.role == 'assistant' %}!{% endif %}{% endfor %}",
         "message 2: the chat template writes it otherwise when messages follow"},
        {"{% generation %}{% endgeneration %}", "blocks wrote nothing"}}) {
    ASSERT_TRUE(WriteFileAtomically(directory / "chat_template.jinja", source).ok());
    auto pack = Parse<DataPackCommand>({directory / "a.jsonl", "--chat", "--tokenizer", directory / "", "--out",
                                        directory / "a.bin", "--sequence-length", "64"});
    const absl::Status refused = pack->Run().status();
    EXPECT_THAT(std::string(refused.message()), HasSubstr(says));
    EXPECT_EQ(ExitCodeOf(refused), kExitUsage) << refused;
  }
}

TEST(DataShowCommand, BeyondTheEndIsAMistake) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(WriteFileAtomically(directory / "a.txt", "abc").ok());
  auto pack = Parse<DataPackCommand>({directory / "a.txt", "--out", directory / "a.bin"});
  ASSERT_TRUE(pack->Run().ok());
  auto show = Parse<DataShowCommand>({directory / "a.bin", "--at", "3"});
  EXPECT_EQ(ExitCodeOf(show->Run().status()), kExitUsage);
  EXPECT_THAT(std::string(show->Run().status().message()),
              HasSubstr("--at 3: " + (directory / "a.bin") + " has 3 tok"));
}

TEST(DataShowCommand, TheTokenizerOfAnotherFileIsAMistake) {
  const TemporaryDirectory directory;
  const std::string large = SourceDir() + "/tests/framework/data/golden/tokenizer_llama3_style.json";
  ASSERT_TRUE(WriteFileAtomically(directory / "a.txt", "the rest of the story").ok());
  auto pack = Parse<DataPackCommand>({directory / "a.txt", "--tokenizer", large, "--out", directory / "a.bin"});
  ASSERT_TRUE(pack->Run().ok());
  auto show = Parse<DataShowCommand>({directory / "a.bin", "--tokenizer", "bytes"});
  EXPECT_EQ(ExitCodeOf(show->Run().status()), kExitUsage) << show->Run().status();
}

TEST(DataFilesCommands, TakeFilesAndWhereTheServiceIs) {
  const auto verify = Parse<DataVerifyCommand>({"a.bin", "s3://b/c.bin", "--endpoint", "http://h:1", "--region", "r"});
  ASSERT_TRUE(verify.has_value());
  EXPECT_THAT(verify->paths, ElementsAre("a.bin", "s3://b/c.bin"));
  EXPECT_EQ(verify->places.s3.endpoint, "http://h:1");
  EXPECT_EQ(verify->places.s3.region, "r");
  EXPECT_FALSE(Parse<DataIndexCommand>({}).has_value());
}

TEST(SampleCommand, KeepsWhatIsNotSaid) {
  const auto sample = Parse<SampleCommand>({"model", "--top-k", "5"});
  ASSERT_TRUE(sample.has_value());
  EXPECT_EQ(sample->options.top_k, 5);
  EXPECT_EQ(sample->options.tokens, SampleOptions().tokens);
  EXPECT_TRUE(sample->prompts.empty());
}

TEST(SampleCommand, AConversationIsForTheChatTemplateAndStandsAlone) {
  const auto file = Parse<SampleCommand>({"m", "--chat", "--conversation", "-"});
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->conversation_file, "-");
  EXPECT_FALSE(Parse<SampleCommand>({"m", "--conversation", "f"}).has_value());
  for (const char* other : {"--prompt", "--prompts", "--system"}) {
    EXPECT_FALSE(Parse<SampleCommand>({"m", "--chat", "--conversation", "f", other, "x"}).has_value()) << other;
  }
}

TEST(SampleCommand, SeveralAnswersToWhatIsTypedAreRefused) {
  SampleCommand sample;
  sample.model = "no/such/model";
  sample.samples = 2;
  sample.chat = true;
  EXPECT_THAT(std::string(sample.Run().status().message()), HasSubstr("--samples: a conversation has one answer"));
  sample.conversation_file = "f";
  EXPECT_THAT(std::string(sample.Run().status().message()), HasSubstr("no/such/model"));
  sample.conversation_file.clear();
  sample.samples = 1;
  EXPECT_THAT(std::string(sample.Run().status().message()), HasSubstr("no/such/model"));
}

TEST(Commands, EachIsFoundByItsNameAndDoesNothingWhileItIsParsed) {
  for (const std::vector<std::string>& line : std::vector<std::vector<std::string>>{
           {"train", "c"},
           {"validate", "c"},
           {"tune", "c"},
           {"data", "pack", "a", "--out", "b"},
           {"data", "show", "a"},
           {"data", "index", "a", "b"},
           {"data", "verify", "a"},
           {"sample", "m"},
           {"eval", "m", "d"},
           {"compare", "a", "b"},
           {"compare", "a", "b", "c", "--out", "d"},
           {"ckpt", "list", "w"},
           {"ckpt", "show", "w"},
           {"ckpt", "verify", "w"},
           {"ckpt", "digest", "w"},
           {"ckpt", "prune", "w"},
           {"ckpt", "export", "w", "o"},
           {"ckpt", "import", "m", "w", "--config", "c"},
           {"ckpt", "diff", "a", "b"},
           {"coordinator", "c"},
           {"agent", "c", "--coordinator", "h:1"},
           {"status", "r"},
           {"worker", "c", "--name", "n/0", "--node", "n", "--host", "h", "--coordinator", "h:1"}}) {
    CLI::App app;
    CommandBody body;
    AddCommands(app, body);
    std::vector<std::string> arguments(line.rbegin(), line.rend());
    EXPECT_NO_THROW(app.parse(arguments)) << line[0];
    EXPECT_TRUE(body != nullptr) << line[0];
  }
  CLI::App app;
  CommandBody body;
  AddCommands(app, body);
  EXPECT_THROW(app.parse(std::vector<std::string>{}), CLI::ParseError);
  EXPECT_EQ(body, nullptr);
}

template <class Command>
std::string HelpOf() {
  CLI::App app;
  Command command;
  command.AddTo(app);
  return app.help();
}

TEST(Commands, HelpSaysWhatHoldsWhereNothingIsGiven) {
  const std::string sample = HelpOf<SampleCommand>();
  for (const char* text :
       {"of each prompt; default 1\n", "none of them; default 8\n", "of each text; default 200\n",
        "likeliest; default 0.8\n", "0 = all; default 40\n", "1 = all; default 1\n", "the same text; default 1\n"}) {
    EXPECT_THAT(sample, HasSubstr(text));
  }
  EXPECT_THAT(HelpOf<EvalCommand>(), HasSubstr("at a time; default 4\n"));
  EXPECT_THAT(HelpOf<AgentCommand>(), HasSubstr("on this machine; default 1\n"));
  EXPECT_THAT(HelpOf<CoordinatorCommand>(), HasSubstr("; default 127.0.0.1:29400\n"));
  EXPECT_THAT(HelpOf<CheckWidthCommand>(), HasSubstr("--widths INT,INT,... in [1 - 131072]\n"));
}

/// Options of all commands, "data pack --threads", whose value is a number that may be left out.
std::vector<std::pair<std::string, const CLI::Option*>> OptionalNumbersOf(const CLI::App& app) {
  std::vector<std::pair<std::string, const CLI::Option*>> numbers;
  for (const CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    const bool is_number = type.find("INT") != std::string::npos || type.find("FLOAT") != std::string::npos;
    if (is_number && !option->get_required()) numbers.emplace_back(app.get_name() + " " + option->get_name(), option);
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); })) {
    for (const auto& [name, option] : OptionalNumbersOf(*command)) {
      numbers.emplace_back(absl::StrCat(app.get_name(), " ", name), option);
    }
  }
  return numbers;
}

TEST(Commands, ANumberThatMayBeLeftOutHasADefaultThatIsSaid) {
  CLI::App app;
  CommandBody body;
  AddCommands(app, body);
  const auto numbers = OptionalNumbersOf(app);
  EXPECT_GT(numbers.size(), 30U);
  for (const auto& [name, option] : numbers) {
    if (name.ends_with("pack --sequence-length")) continue;  // --chat needs it
    const std::string help = option->get_description();
    EXPECT_TRUE(!option->get_default_str().empty() || help.find("efault") != std::string::npos) << name << ": " << help;
  }
}

TEST(Commands, WhatIsNotUnderstoodIsToldWhatMayBeMeant) {
  const auto error_of = [](std::vector<std::string> line) {
    CLI::App app;
    app.fallthrough();  // as in main
    CommandBody body;
    AddCommands(app, body);
    std::reverse(line.begin(), line.end());
    try {
      app.parse(line);
    } catch (const CLI::ParseError& error) {
      return ParseErrorText(&app, error);
    }
    return std::string("no error");
  };
  EXPECT_THAT(error_of({"trian", "c"}),
              StartsWith("A subcommand is required ('trian' is none; did you mean 'train'?)\n"));
  EXPECT_THAT(error_of({"ckpt", "lst", "runs/a"}), HasSubstr("('lst' is none; did you mean 'list'?)"));
  EXPECT_THAT(error_of({"help"}), HasSubstr("did you mean '--help'?"));
  EXPECT_THAT(error_of({"version"}), HasSubstr("did you mean '--version'?"));
  EXPECT_THAT(error_of({"resume", "runs/a"}), HasSubstr("the command that began a run resumes it"));
  EXPECT_THAT(error_of({"frobnicate"}), HasSubstr(" ('frobnicate' is none)\n"));
  EXPECT_THAT(error_of({"train", "c", "--worker", "2"}), HasSubstr(" (did you mean '--workers'?)\n"));
  EXPECT_THAT(error_of({"train", "c", "--worker=2"}), HasSubstr(" (did you mean '--workers'?)\n"));
  const char* const set = "(a key of the config is set by --set section.key=value, each by a --set of its own)\n";
  EXPECT_THAT(error_of({"train", "c", "--train.steps=5"}), HasSubstr(set));
  EXPECT_THAT(error_of({"validate", "c", "--lr", "3"}), HasSubstr(set));
  EXPECT_THAT(error_of({"train", "c", "--set", "train.steps=5", "train.threads=1"}), HasSubstr(set));
  EXPECT_THAT(error_of({"train", "c", "d"}), Not(HasSubstr(set)));
  EXPECT_THAT(error_of({"status", "runs/a", "--train.steps=5"}), Not(HasSubstr(set)));  // takes no config
  EXPECT_THAT(error_of({"sample", "m", "--max-tokens", "5"}), HasSubstr(" (did you mean '--tokens'?)\n"));
  EXPECT_THAT(error_of({"eval", "m", "d", "--batch-size=5"}), HasSubstr(" (did you mean '--batch'?)\n"));
  EXPECT_THAT(error_of({"sample", "m", "--maxtokens-made", "5"}), Not(HasSubstr("did you mean")));
  EXPECT_THAT(error_of({"sample", "m", "--one", "1", "--two=2"}),
              StartsWith("These arguments were not expected: --one 1 --two=2\n"));
  EXPECT_THAT(error_of({"sample", "m", "--one"}), StartsWith("This argument was not expected: --one\n"));
  const char* const prompt = " (a text to continue is given by --prompt)\n";
  EXPECT_THAT(error_of({"sample", "m", "Once upon"}), HasSubstr(prompt));
  EXPECT_THAT(error_of({"sample", "m", "-p", "Once upon"}), HasSubstr(prompt));
  EXPECT_THAT(error_of({"compare", "a", "b", "-p"}), Not(HasSubstr(prompt)));
  EXPECT_THAT(error_of({"--set", "train.steps=5", "validate", "c"}),
              HasSubstr(" (write it behind the name of the command, 'validate')\n"));
  EXPECT_THAT(error_of({}), StartsWith("A subcommand is required\n"));
  EXPECT_THAT(error_of({"ckpt"}), StartsWith("A subcommand is required\n"));
}

// `--run-dir "$DIRECTORY" --overwrite` without a DIRECTORY replaced the run in runs/NAME; `compare A "$B"` read
// /metrics.jsonl.
TEST(Commands, APathIsSaid) {
  for (const std::vector<std::string>& line :
       std::vector<std::vector<std::string>>{{"train", "c", "--run-dir"},
                                             {"coordinator", "c", "--run-dir"},
                                             {"sweep", "s", "--sweep-dir"},
                                             {"tune", "c", "-o"},
                                             {"check-width", "c", "--out"},
                                             {"compare", "a", "b", "--out"},
                                             {"data", "pack", "a", "--out"},
                                             {"eval", "m", "d", "--logits"},
                                             {"scaling", "fit", "r", "--out"},
                                             {"scaling", "predict", "f", "c", "--out"},
                                             {"ckpt", "export", "w"},
                                             {"ckpt", "list"},
                                             {"ckpt", "import", "--config", "c", "m"},
                                             {"ckpt", "import", "m", "w", "--config"},
                                             {"ckpt", "diff", "a"},
                                             {"compare", "a"},
                                             {"compare", "a", "b"},
                                             {"data", "pack", "--out", "o"},
                                             {"data", "show"},
                                             {"data", "index"},
                                             {"data", "verify", "f"},
                                             {"eval", "m"},
                                             {"model", "upcycle", "d"},
                                             {"sample"},
                                             {"scaling", "fit"},
                                             {"scaling", "predict", "f"},
                                             {"scaling", "compare", "p"},
                                             {"sweep"},
                                             {"train"},
                                             {"validate"}}) {
    for (const auto& [path, is_one] : {std::pair("a b", true), {"./--a", true}, {"", false}, {"--overwrite", false}}) {
      CLI::App app;
      CommandBody body;
      AddCommands(app, body);
      std::vector<std::string> arguments = line;
      arguments.emplace_back(path);
      std::reverse(arguments.begin(), arguments.end());
      std::string said;
      try {
        app.parse(arguments);
      } catch (const CLI::ParseError& error) {
        said = error.what();
      }
      EXPECT_EQ(said.empty(), is_one) << line[0] << " '" << path << "': " << said;
    }
  }
}

TEST(UsageError, IsToldFromOthers) {
  EXPECT_TRUE(IsUsageError(UsageError("x")));
  EXPECT_FALSE(IsUsageError(absl::InvalidArgumentError("x")));
  EXPECT_FALSE(IsUsageError(absl::OkStatus()));
}

TEST(UsageError, WhatTheUserHasToChangeIsOne) {
  for (const absl::Status& mistake : {absl::NotFoundError("x"), absl::InvalidArgumentError("x")}) {
    EXPECT_TRUE(IsUsageError(AsUsageError(mistake)));
    EXPECT_EQ(AsUsageError(mistake).message(), "error: x");
  }
  EXPECT_EQ(AsUsageError(UsageError("x")).message(), "x") << "once is enough";
  for (const absl::Status& other :
       {absl::OkStatus(), absl::UnavailableError("x"), absl::FailedPreconditionError("x"), absl::DataLossError("x")}) {
    EXPECT_EQ(AsUsageError(other), other);
  }
  EXPECT_EQ(AsUsageError(absl::StatusOr<int>(3)).value_or(0), 3);
  EXPECT_TRUE(IsUsageError(AsUsageError(absl::StatusOr<int>(absl::NotFoundError("x"))).status()));
}

TEST(UsageError, DataThatDoNotFitAreOne) {
  for (const absl::Status& misfit : {absl::FailedPreconditionError("x"), absl::OutOfRangeError("x")}) {
    EXPECT_EQ(AsDataMistake(misfit), absl::InvalidArgumentError("x"));
  }
  for (const absl::Status& other : {absl::OkStatus(), absl::DataLossError("x")}) {
    EXPECT_EQ(AsDataMistake(other), other);
  }
}

TEST(UsageError, WhatACommandExitsWith) {
  EXPECT_EQ(ExitCodeOf(UsageError("x")), kExitUsage);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("x")), kExitUsage);
  EXPECT_EQ(ExitCodeOf(absl::AbortedError("x")), kExitRetry);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("x")), kExitRetry);
  EXPECT_EQ(ExitCodeOf(absl::DataLossError("x")), kExitFailure);
  EXPECT_EQ(ExitCodeOf(absl::AlreadyExistsError("x")), kExitFailure);
}

}  // namespace
}  // namespace holdfast
