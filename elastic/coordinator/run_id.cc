#include "elastic/coordinator/run_id.h"

#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/files.h"
#include "framework/base/random_id.h"
#include "framework/base/status.h"
#include "framework/storage/atomic_file.h"

namespace holdfast {
namespace {

constexpr size_t kMaxRunIdBytes = 100;

// Of two coordinators, one of which does not know yet that it was replaced, the first decides.
absl::Status MakeRunId(const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(path));
  RETURN_IF_ERROR(file->Append(RunIdText(RandomId())));
  const absl::Status made = file->CommitNew();
  return absl::IsAlreadyExists(made) ? absl::OkStatus() : made;
}

}  // namespace

std::string RunIdText(uint64_t run) { return absl::StrFormat("%016x\n", run); }

absl::StatusOr<uint64_t> RunIdOf(const RunDirectory& directory) {
  absl::StatusOr<uint64_t> run = ReadRunId(directory);
  if (!absl::IsNotFound(run.status())) return run;
  RETURN_IF_ERROR(MakeRunId(directory.run_id()));
  return ReadRunId(directory);
}

absl::StatusOr<uint64_t> ReadRunId(const RunDirectory& directory) {
  const std::string path = directory.run_id();
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxRunIdBytes));
  uint64_t run = 0;
  if (!text.ends_with('\n') || !absl::SimpleHexAtoi(text, &run) || run == 0) {
    return absl::DataLossError(
        absl::StrCat(path, " is damaged; remove it, and start agents that are left of the run again"));
  }
  return run;
}

}  // namespace holdfast
