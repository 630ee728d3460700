#include "elastic/coordinator/event_log.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "elastic/coordinator/event_json.h"
#include "framework/base/seconds.h"
#include "framework/base/status.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<EventLog>> EventLog::Open(const RunDirectory& directory,
                                                         std::function<void(const std::string&)> on_failure) {
  ASSIGN_OR_RETURN(JsonLinesWriter file, JsonLinesWriter::Open(directory.events()));
  return std::unique_ptr<EventLog>(new EventLog(std::move(file), directory.lock(), std::move(on_failure)));
}

void EventLog::OnEvent(const RunEvent& event) {
  const double now = SecondsSinceEpoch();
  absl::Status written = file_.Write(EventLine(now, event));  // a directory that was moved may come back
  std::error_code error;
  const bool is_kept = std::filesystem::exists(lock_, error);  // else the whole directory is being removed
  if (written.ok()) written = is_kept ? file_.KeepInPlace() : file_.CheckInPlace();
  if (!written.ok() && !fails_) on_failure_(absl::StrCat("cannot write events: ", std::string(written.message())));
  fails_ = !written.ok();
}

}  // namespace holdfast
