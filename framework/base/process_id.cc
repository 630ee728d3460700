#include "framework/base/process_id.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/host.h"

namespace holdfast {
namespace {

constexpr size_t kMaxBytes = 4096;

/// Of a file of /proc, which says nothing of its size; empty if there is none.
std::string ReadProc(const std::string& path) {
  std::string text(kMaxBytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  absl::StripAsciiWhitespace(&text);
  return text;
}

std::string NumbersOfThisProcess() {
  std::array<char, 64> link{};
  return readlink("/proc/self/ns/pid", link.data(), link.size() - 1) > 0 ? link.data() : "";
}

struct ProcessStat {
  bool ended = false;   // a zombie, whom nobody has waited for
  int64_t started = 0;  // 0 if that cannot be read
};

/// Fields 3 and 22 of proc(5)'s stat, counted behind the name, which may hold anything.
ProcessStat StatOf(int64_t pid) {
  const std::string stat = ReadProc(absl::StrCat("/proc/", pid, "/stat"));
  const size_t name_end = stat.rfind(") ");
  if (name_end == std::string::npos) return {};
  const std::vector<absl::string_view> fields = absl::StrSplit(absl::string_view(stat).substr(name_end + 2), ' ');
  ProcessStat result{.ended = fields[0] == "Z" || fields[0] == "X"};
  if (fields.size() <= 19 || !absl::SimpleAtoi(fields[19], &result.started)) result.started = 0;
  return result;
}

}  // namespace

ProcessId ThisProcess() {
  ProcessId process{.host = HostName(),
                    .boot = ReadProc("/proc/sys/kernel/random/boot_id"),
                    .numbers = NumbersOfThisProcess(),
                    .pid = getpid()};
  process.started = StatOf(process.pid).started;
  return process;
}

Life LifeOf(const ProcessId& process) {
  const ProcessId here = ThisProcess();
  const bool known = !process.boot.empty() && !process.numbers.empty() && process.pid > 0;
  if (!known || process.boot != here.boot || process.numbers != here.numbers) return Life::kUnknown;
  if (kill(static_cast<pid_t>(process.pid), 0) != 0 && errno == ESRCH) return Life::kDead;
  const ProcessStat stat = StatOf(process.pid);
  const bool another = process.started != 0 && stat.started != 0 && stat.started != process.started;
  return stat.ended || another ? Life::kDead : Life::kAlive;
}

std::string Describe(const ProcessId& process) { return absl::StrCat("process ", process.pid, " on ", process.host); }

std::string ToText(const ProcessId& process) {
  return absl::StrCat("pid=", process.pid, " started=", process.started, " numbers=", process.numbers,
                      " boot=", process.boot, " host=", process.host);
}

ProcessId ParseProcessId(absl::string_view text) {
  ProcessId process;
  bool good = true;
  for (const absl::string_view word : absl::StrSplit(text, absl::ByAnyChar(" \t\r\n\v\f"), absl::SkipEmpty())) {
    const auto [key, value] =
        std::pair<absl::string_view, absl::string_view>(absl::StrSplit(word, absl::MaxSplits('=', 1)));
    if (key == "pid") good = absl::SimpleAtoi(value, &process.pid) && good;
    if (key == "started") good = absl::SimpleAtoi(value, &process.started) && good;
    if (key == "numbers") process.numbers = std::string(value);
    if (key == "boot") process.boot = std::string(value);
    if (key == "host") process.host = std::string(value);
  }
  return good ? process : ProcessId{};
}

}  // namespace holdfast
