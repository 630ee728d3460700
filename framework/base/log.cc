#include "framework/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace holdfast {
namespace {

struct Level {
  const char* name;
  spdlog::level::level_enum level;
};
constexpr Level kLevels[] = {{"debug", spdlog::level::debug},
                             {"info", spdlog::level::info},
                             {"warning", spdlog::level::warn},
                             {"error", spdlog::level::err},
                             {"off", spdlog::level::off}};

spdlog::level::level_enum ToSpdlog(LogLevel level) { return kLevels[static_cast<size_t>(level)].level; }

// Never destroyed: threads may log while the process exits.
spdlog::logger& Logger() {
  static spdlog::logger& logger = []() -> spdlog::logger& {
    auto* made = new spdlog::logger("holdfast", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%d %H:%M:%S.%e %l: %v");
    made->set_level(spdlog::level::info);
    return *made;
  }();
  return logger;
}

}  // namespace

std::vector<std::string> LogLevelNames() {
  std::vector<std::string> names;
  for (const Level& level : kLevels) names.emplace_back(level.name);
  return names;
}

absl::Status SetLogLevel(absl::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kLevels), std::end(kLevels), [&](const Level& level) { return level.name == name; });
  if (found == std::end(kLevels)) {
    return absl::InvalidArgumentError(
        absl::StrCat("log level '", name, "': expected one of ", absl::StrJoin(LogLevelNames(), ", ")));
  }
  Logger().set_level(found->level);
  return absl::OkStatus();
}

bool IsLogged(LogLevel level) { return Logger().should_log(ToSpdlog(level)); }

void Log(LogLevel level, absl::string_view message) {
  const std::string line = absl::StrReplaceAll(message, {{"\n", " "}, {"\r", " "}});
  Logger().log(ToSpdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace holdfast
