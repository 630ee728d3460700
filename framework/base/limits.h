#pragma once
// How large a run may be, and what of it travels. Whoever counts workers, names or bytes takes the bound from here, so
// that what one part lets in no other refuses.

#include <cstddef>
#include <cstdint>

namespace holdfast {

inline constexpr int kMaxWorkers = 8192;        // of a run: in its world, or waiting for the next one
inline constexpr int kMaxAgents = kMaxWorkers;  // a node may have one worker
inline constexpr size_t kMaxNameBytes = 256;    // of a worker, node, host or file
inline constexpr size_t kMaxAddressBytes = 64;  // HOST:PORT with a numeric host
inline constexpr size_t kMaxTextBytes = 4096;   // of a cause or reason
inline constexpr size_t kMaxBlobBytes = 4096;   // of what one worker tells at a rendezvous (Gloo 38, NCCL 136)
inline constexpr int kMaxPlacement = 1 << 19;   // numbers of a world's table of who holds what
inline constexpr int kMaxDigests = 1 << 20;     // of a vote
inline constexpr int kMaxFigures = 64;          // of a vote, beside its loss
inline constexpr int kMaxFigureValues = 4096;   // of one of them (a model's layers)
inline constexpr int kMaxStreams = 20'000;      // streams of a coordinator
inline constexpr int kMaxConfigKeys = 512;      // of a config
inline constexpr size_t kMaxIncomingBytes = size_t{24} << 20;  // of a message to the coordinator
inline constexpr size_t kMaxOutgoingBytes = size_t{64} << 20;  // of a message from it
inline constexpr size_t kMaxQueuedBytes = size_t{128} << 20;   // that wait for one worker
inline constexpr int kMaxQueuedMessages = 4096;                // the same

namespace limits_agree {

constexpr size_t kMemberBytes = 3 * kMaxNameBytes + kMaxAddressBytes + 64;  // on the wire, with all numbers and tags
constexpr size_t kOtherBytes = 4 * kMaxTextBytes;                           // of a message, beside its lists
constexpr size_t kWorldBytes = size_t{kMaxWorkers} * kMemberBytes + size_t{kMaxPlacement} * 5;
constexpr size_t kWorkers = kMaxWorkers;

static_assert(kMaxStreams >= kMaxWorkers + kMaxAgents, "everybody may connect, and people may look");
// A join claims worlds, by their generations; two with all members fit.
static_assert(2 * kWorldBytes + kMaxConfigKeys * (kMaxNameBytes + 16) + kOtherBytes <= kMaxIncomingBytes);
constexpr size_t kFigureBytes = kMaxNameBytes + size_t{kMaxFigureValues} * sizeof(double) + 32;
static_assert(size_t{kMaxDigests} * (sizeof(uint64_t) + 5) + kMaxFigures * kFigureBytes + kOtherBytes <=
              kMaxIncomingBytes);
// A new world has its members and those of its source, and everybody's number of microbatches (a varint).
static_assert(2 * kWorldBytes + kWorkers * 16 + kOtherBytes <= kMaxOutgoingBytes);
// The blobs of all.
static_assert(kWorkers * (kMaxBlobBytes + 8) + kOtherBytes <= kMaxOutgoingBytes);
// A worker that is slow to read is not cut for a world, its peers and a world after it.
static_assert(kMaxQueuedBytes >= 2 * (2 * kWorldBytes + kWorkers * 16) + kWorkers * (kMaxBlobBytes + 8));

}  // namespace limits_agree
}  // namespace holdfast
