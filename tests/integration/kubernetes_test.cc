// The manifests that are shipped, with each choice of their components, as kubectl makes them, against the published
// schemas and the "restricted" pod security standard.

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/base/temporary_directory.h"
#include "tests/integration/command.h"
#include "tests/paths.h"

namespace holdfast::integration {
namespace {

using testing::HasSubstr;

class Kubernetes : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(peers_ + "/bin/kubectl")) GTEST_SKIP() << "run tools/test_peers.sh";
    std::filesystem::copy(SourceDir() + "/tools/launch/kubernetes", root_.path() + "/kubernetes",
                          std::filesystem::copy_options::recursive);
  }

  /// A file with the manifests with these components.
  std::string Render(const std::string& name, const std::string& components) const {
    const std::string mine = root_.path() + "/mine";
    WriteAll(mine + "/kustomization.yaml",
             absl::StrCat("resources: [../kubernetes]\ncomponents: [", components, "]\n"));
    const CommandResult rendered = Command({"kustomize", mine}, peers_ + "/bin/kubectl").Wait();
    EXPECT_EQ(rendered.exit_code, 0) << components << ": " << rendered.output;
    WriteAll(root_.path() + "/" + name, rendered.output);
    return root_.path() + "/" + name;
  }
  /// All at once: the schemas take seconds to load.
  CommandResult Check(const std::string& versions, const std::vector<std::string>& files) const {
    std::vector<std::string> arguments{SourceDir() + "/tests/integration/check_manifests.py", TestedBinary(), versions};
    arguments.insert(arguments.end(), files.begin(), files.end());
    return Command(arguments, peers_ + "/bin/python").Wait();
  }

  const std::string peers_ =
      std::getenv("HOLDFAST_PEERS") != nullptr ? std::getenv("HOLDFAST_PEERS") : SourceDir() + "/build/peers";
  const TemporaryDirectory root_;
};

TEST_F(Kubernetes, TheManifestsAreValidAndRestricted) {
  const std::string gpu = "../kubernetes/gpu", tls = "../kubernetes/tls", jobset = "../kubernetes/jobset";
  std::vector<std::string> files;
  for (const std::string& components : {std::string(), gpu, tls, jobset, absl::StrCat(gpu, ", ", tls, ", ", jobset)}) {
    files.push_back(Render(absl::StrCat(files.size(), ".yaml"), components));
    EXPECT_EQ(ReadAll(files.back()).find("kind: JobSet") != std::string::npos, components.ends_with(jobset));
  }
  const CommandResult result = Check("1.31,1.34", files);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  for (const std::string& file : files) EXPECT_THAT(result.output, HasSubstr(file + ": no problems; pods 2"));
}

// A JobSet is made of the jobs, so a component is in one as well.
TEST_F(Kubernetes, AJobSetHasWhatTheComponentsGiveTheJobs) {
  const std::string file = Render("all.yaml", "../kubernetes/gpu, ../kubernetes/tls, ../kubernetes/jobset");
  EXPECT_THAT(ReadAll(file), testing::AllOf(HasSubstr("nvidia.com/gpu: 8"), HasSubstr("- --tls-authority"),
                                            HasSubstr("WORKERS: \"16\""), HasSubstr("value: $(JOB)-$(INDEX).holdfast"),
                                            testing::Not(HasSubstr("kind: Job\n"))));
}

TEST_F(Kubernetes, TheCheckFindsWhatIsWrong) {
  const std::string jobset = "jobset/jobs/jobset.yaml";
  const struct {
    std::string file, from, to, problem;
  } damages[] = {{"run.yaml", "backoffLimit: 100 ", "backofLimit: 100 ", "backofLimit"},
                 {"run.yaml", "--standby", "--stand-by", "--stand-by is no option"},
                 {"run.yaml", "drop: [ALL]", "drop: []", "coordinator keeps capabilities"},
                 {"run.yaml", "fsGroup: 10001", "supplementalGroups: [1]", "cannot read the secret token"},
                 {"run.yaml", "WORKERS: \"2\"", "WORKER: \"2\"", "$(WORKERS) in the command is not known"},
                 {"run.yaml", "name: JOB\n", "name: JOBS\n", "$(JOB) in ADDRESS is not known before it"},
                 {jobset, "successPolicy: {", "successPolicy: {any: 1, ", "has fields that the schema lacks"},
                 {jobset, "[coordinator]", "[coordinators]", "names a job that there is not"},
                 {jobset, "action: FailJobSet", "action: Fail", "has an action or a reason that there is not"}};
  std::vector<std::string> files;
  for (const auto& [file, from, to, problem] : damages) {
    const std::string path = root_.path() + "/kubernetes/" + file, whole = ReadAll(path);
    std::string damaged = whole;
    ASSERT_NE(damaged.find(from), std::string::npos) << from;
    WriteAll(path, damaged.replace(damaged.find(from), from.size(), to));
    files.push_back(Render(absl::StrCat(files.size(), ".yaml"), "../kubernetes/tls, ../kubernetes/jobset"));
    WriteAll(path, whole);
  }
  const CommandResult result = Check("1.31", files);
  EXPECT_EQ(result.exit_code, 1);
  for (size_t i = 0; i < files.size(); ++i) {
    std::string found;
    for (const absl::string_view line : absl::StrSplit(result.output, '\n')) {
      if (absl::StartsWith(line, files[i] + ": ")) absl::StrAppend(&found, line, "\n");
    }
    EXPECT_THAT(found, HasSubstr(damages[i].problem));
  }
}

}  // namespace
}  // namespace holdfast::integration
