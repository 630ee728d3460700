#pragma once
// One line of events.jsonl: {"time":1700000000.5,"event":"node_left","node":"n1","step":7}. The only place that knows
// its form; which events and fields there are, run_event.h says.

#include <optional>
#include <string>

#include "elastic/control/run_event.h"

namespace holdfast {

/// Without the line's end. `time`: seconds since 1970. Bytes that are not UTF-8 become U+FFFD.
std::string EventLine(double time, const RunEvent& event);

struct RecordedEvent {
  double time = 0;                // 0: the line has none
  std::string name;               // also where this build does not know the event
  std::optional<RunEvent> event;  // nothing: of another build
};
/// Nothing if it is no line of that form, for a crash may have cut it off.
std::optional<RecordedEvent> ReadEventLine(const std::string& line);

}  // namespace holdfast
