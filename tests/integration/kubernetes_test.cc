// The manifests that are shipped, against the published schemas and the "restricted" pod security standard.

#include <cstdlib>
#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/command.h"

namespace holdfast::integration {
namespace {

constexpr char kManifest[] = HOLDFAST_SOURCE_DIR "/tools/launch/kubernetes.yaml";

/// Exit code -1 without the peers.
CommandResult Check(const std::string& version, const std::string& manifest) {
  const char* chosen = std::getenv("HOLDFAST_PEERS");
  const std::string python =
      std::string(chosen != nullptr ? chosen : HOLDFAST_SOURCE_DIR "/build/peers") + "/bin/python";
  if (!std::filesystem::exists(python)) return {.exit_code = -1, .output = "run tools/test_peers.sh"};
  return Command({HOLDFAST_SOURCE_DIR "/tests/integration/check_manifests.py", HOLDFAST_BINARY, version, manifest},
                 python)
      .Wait();
}

TEST(Kubernetes, TheManifestsAreValidAndRestricted) {
  for (const char* version : {"1.31", "1.34"}) {
    const CommandResult result = Check(version, kManifest);
    if (result.exit_code == -1) GTEST_SKIP() << result.output;
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output, testing::HasSubstr("pods 2"));
  }
}

TEST(Kubernetes, TheCheckFindsWhatIsWrong) {
  const std::string text = ReadAll(kManifest);
  const std::string file = testing::TempDir() + "/wrong.yaml";
  const struct {
    std::string from, to, problem;
  } damages[] = {{"backoffLimit: 100 ", "backofLimit: 100 ", "backofLimit"},
                 {"--standby", "--stand-by", "--stand-by is no option"},
                 {"drop: [ALL]", "drop: []", "keeps capabilities"},
                 {"fsGroup: 10001", "supplementalGroups: [1]", "cannot read the secret token"}};
  for (const auto& [from, to, problem] : damages) {
    std::string damaged = text;
    ASSERT_NE(damaged.find(from), std::string::npos) << from;
    damaged.replace(damaged.find(from), from.size(), to);
    WriteAll(file, damaged);
    const CommandResult result = Check("1.31", file);
    if (result.exit_code == -1) GTEST_SKIP() << result.output;
    EXPECT_EQ(result.exit_code, 1) << from;
    EXPECT_THAT(result.output, testing::HasSubstr(problem));
  }
}

}  // namespace
}  // namespace holdfast::integration
