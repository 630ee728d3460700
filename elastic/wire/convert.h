#pragma once
// Between the plain messages of elastic/control and what travels. Whatever a peer sends is checked before it becomes a
// message: unknown enum values, negative counts, and lists or texts beyond framework/base/limits.h are InvalidArgument.
//
// Texts for people (causes, reasons) are cut to their limit when they are sent, so that no message of ours is refused
// for the length of a log line.
//
// The generated classes are only named here: no other room sees protobuf.

#include "absl/status/statusor.h"
#include "elastic/control/messages.h"
#include "elastic/control/run_status.h"

namespace holdfast::v1 {
class FromCoordinator;
class StatusReply;
class ToCoordinator;
}  // namespace holdfast::v1

namespace holdfast {

/// Metadata with which the server answers a stream that it lets in.
inline constexpr const char* kSessionMark = "holdfast-session";

void ToWire(const WorkerMessage& message, v1::ToCoordinator* wire);
void ToWire(const CoordinatorMessage& message, v1::FromCoordinator* wire);
void ToWire(const RunStatus& status, v1::StatusReply* wire);

absl::StatusOr<WorkerMessage> FromWire(const v1::ToCoordinator& wire);
absl::StatusOr<CoordinatorMessage> FromWire(const v1::FromCoordinator& wire);
absl::StatusOr<RunStatus> FromWire(const v1::StatusReply& wire);

}  // namespace holdfast
