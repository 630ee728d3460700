#include "elastic/coordinator/noted_address.h"

#include <unistd.h>

#include "framework/base/status.h"
#include "framework/storage/atomic_file.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<NotedAddress>> NotedAddress::Write(const std::string& path, const std::string& address,
                                                                  ActionQueue::IsOurs is_ours) {
  // Else it is there that of one that has taken the run over.
  if (const absl::Status ours = is_ours(); !ours.ok()) return absl::AbortedError(ours.message());
  std::unique_ptr<NotedAddress> noted(new NotedAddress(path, address, std::move(is_ours)));
  RETURN_IF_ERROR(WriteFileAtomically(path, noted->file_.text()));
  return noted;
}

NotedAddress::~NotedAddress() {
  const absl::StatusOr<std::string> there = file_.Read();
  if (there.ok() && *there == file_.text()) unlink(file_.path().c_str());
}

}  // namespace holdfast
