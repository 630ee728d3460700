#include "elastic/coordinator/event_log.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "elastic/coordinator/event_json.h"
#include "framework/base/status.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<EventLog>> EventLog::Open(const RunDirectory& directory,
                                                         std::function<void(const std::string&)> on_failure) {
  ASSIGN_OR_RETURN(JsonLinesWriter file, JsonLinesWriter::Open(directory.events()));
  return std::unique_ptr<EventLog>(new EventLog(std::move(file), std::move(on_failure)));
}

void EventLog::OnEvent(const RunEvent& event) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  absl::Status written = file_.Write(EventLine(now, event));  // a directory that was moved may come back
  if (written.ok()) written = file_.CheckInPlace();
  if (!written.ok() && !fails_) on_failure_(absl::StrCat("cannot write events: ", std::string(written.message())));
  fails_ = !written.ok();
}

}  // namespace holdfast
