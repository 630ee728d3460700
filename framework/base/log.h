#pragma once
// What a process has to tell its operator: lines with time and level on stderr, through spdlog. What a command answers
// (tables, JSON, the progress line) is no log and is printed.
//
//   LogWarning("peers cannot probe this worker: ", status.message());
//   2026-11-22 19:50:01.123 warning: peers cannot probe this worker: cannot listen at '10.0.0.3'
//
// The level is one for a process: SetLogLevel, which `--log-level` and HOLDFAST_LOG_LEVEL call before any thread
// begins. Thread-safe.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace holdfast {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError, kOff };

inline constexpr char kLogLevelVariable[] = "HOLDFAST_LOG_LEVEL";

/// "debug", "info", ..., by value.
std::vector<std::string> LogLevelNames();
/// Lines below it are dropped; at first it is info. InvalidArgument, naming those there are.
absl::Status SetLogLevel(absl::string_view name);

bool IsLogged(LogLevel level);
/// One line: line breaks become spaces.
void Log(LogLevel level, absl::string_view message);

template <class... Parts>
void LogAt(LogLevel level, const Parts&... parts) {
  if (IsLogged(level)) Log(level, absl::StrCat(parts...));
}
/// Parts as of absl::StrCat.
template <class... Parts>
void LogDebug(const Parts&... parts) {
  LogAt(LogLevel::kDebug, parts...);
}
template <class... Parts>
void LogInfo(const Parts&... parts) {
  LogAt(LogLevel::kInfo, parts...);
}
template <class... Parts>
void LogWarning(const Parts&... parts) {
  LogAt(LogLevel::kWarning, parts...);
}
template <class... Parts>
void LogError(const Parts&... parts) {
  LogAt(LogLevel::kError, parts...);
}

}  // namespace holdfast
