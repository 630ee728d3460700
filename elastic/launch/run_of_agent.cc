#include "elastic/launch/run_of_agent.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "elastic/agent/agent.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr size_t kMaxLineBytes = 32;

absl::StatusOr<std::string> ReadLine(int input) {
  std::string line;
  while (line.size() < kMaxLineBytes) {
    char c = 0;
    const ssize_t count = read(input, &c, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return absl::UnavailableError("the agent of this worker has ended");
    if (c == '\n') break;
    line.push_back(c);
  }
  return line;
}

}  // namespace

bool HasAgent() { return std::getenv(kIncarnationVariable) != nullptr; }

absl::StatusOr<uint64_t> RunOfAgent(int input) {
  const char* given = std::getenv(kRunVariable);
  if (given == nullptr) return 0;
  std::string text = given;
  if (text == kRunOnInput) {
    ASSIGN_OR_RETURN(text, ReadLine(input));
  }
  uint64_t run = 0;
  if (!absl::SimpleAtoi(text, &run) || run == 0) {
    return absl::InvalidArgumentError(absl::StrCat("\"", absl::CHexEscape(text), "\" is not the number of a run"));
  }
  return run;
}

}  // namespace holdfast
