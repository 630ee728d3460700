#pragma once
// What gRPC is given on both sides: mutual TLS from PEM files, and threads. For this room only: it speaks of gRPC.

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "elastic/wire/tls_files.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"

namespace holdfast {

/// How many threads it starts on a machine with so many processors, and some that it starts when it has more to do. It
/// does not say when it could not, and then waits for ever: to be looked at before it is used (CheckThreadsStart).
int ThreadsOfGrpc(int64_t processors);
/// The same on this machine. It counts all processors, also those that this process may not use.
int ThreadsOfGrpc();
/// From now on gRPC runs until the process ends, and logs as TakeGrpcLog says: as the last of its objects goes it ends
/// its threads, and waits for ever for one that could not be started. Once more does no harm.
void KeepThreadsOfGrpc();

/// Both call KeepThreadsOfGrpc. Plain TCP if no files are named, else TLS where both sides must show a certificate of
/// the authority.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsFrom(const TlsFiles& files);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ClientCredentialsFrom(const TlsFiles& files);

}  // namespace holdfast
