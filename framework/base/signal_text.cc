#include "framework/base/signal_text.h"

#include <csignal>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace holdfast {

std::string SignalText(int signal) {
  const char* const name = sigabbrev_np(signal);
  if (name == nullptr) return absl::StrCat("signal ", signal);
  return absl::StrCat("SIG", name, signal == SIGINT ? " (Ctrl-C)" : "");
}

}  // namespace holdfast
