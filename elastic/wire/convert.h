#pragma once
// Between the plain messages of elastic/control and what travels. Whatever a peer sends is checked before it becomes a
// message: unknown enum values, negative counts, and lists or texts beyond the limits below are InvalidArgument.
//
// Texts for people (causes, reasons) are cut to their limit when they are sent, so that no message of ours is refused
// for the length of a log line.
//
// The generated classes are only named here: no other room sees protobuf.

#include <cstddef>

#include "absl/status/statusor.h"
#include "elastic/control/messages.h"
#include "elastic/control/run_status.h"

namespace holdfast::v1 {
class FromCoordinator;
class StatusReply;
class ToCoordinator;
}  // namespace holdfast::v1

namespace holdfast {

inline constexpr size_t kMaxNameBytes = 256;                   // of a worker, node or host
inline constexpr size_t kMaxTextBytes = 4096;                  // of a cause or reason
inline constexpr size_t kMaxBlobBytes = size_t{1} << 20;       // of one worker's rendezvous
inline constexpr int kMaxMembers = 1 << 16;                    // of a world
inline constexpr int kMaxPlacement = 1 << 24;                  // numbers of its table
inline constexpr int kMaxDigests = 1 << 20;                    // of a vote
inline constexpr size_t kMaxIncomingBytes = size_t{16} << 20;  // of a message to the coordinator
inline constexpr size_t kMaxOutgoingBytes = size_t{64} << 20;  // of a message from it: everybody's blobs

/// Metadata with which the server answers a stream that it lets in.
inline constexpr const char* kSessionMark = "holdfast-session";

void ToWire(const WorkerMessage& message, v1::ToCoordinator* wire);
void ToWire(const CoordinatorMessage& message, v1::FromCoordinator* wire);
void ToWire(const RunStatus& status, v1::StatusReply* wire);

absl::StatusOr<WorkerMessage> FromWire(const v1::ToCoordinator& wire);
absl::StatusOr<CoordinatorMessage> FromWire(const v1::FromCoordinator& wire);
absl::StatusOr<RunStatus> FromWire(const v1::StatusReply& wire);

}  // namespace holdfast
