#include "framework/storage/crash_point.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace holdfast {
namespace {

struct CrashRequest {
  std::string name;  // empty: none
  int64_t count = 1;
};

CrashRequest ReadEnvironment() {
  const char* text = std::getenv("HOLDFAST_CRASH_POINT");
  if (text == nullptr) return {};
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  CrashRequest request{.name = parts[0]};
  if (parts.size() == 2 && !absl::SimpleAtoi(parts[1], &request.count)) return {};
  return request;
}

}  // namespace

void CrashPoint(const char* name) {
  static const CrashRequest request = ReadEnvironment();
  if (request.name.empty()) [[likely]]
    return;
  static std::atomic<int64_t> passages{0};
  if (request.name == name && ++passages == request.count) std::raise(SIGKILL);
}

}  // namespace holdfast
