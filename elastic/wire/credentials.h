#pragma once
// Mutual TLS from PEM files. For this room only: it speaks of gRPC.

#include <memory>

#include "absl/status/statusor.h"
#include "elastic/wire/tls_files.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"

namespace holdfast {

/// Plain TCP if no files are named, else TLS where both sides must show a certificate of the authority.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsFrom(const TlsFiles& files);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ClientCredentialsFrom(const TlsFiles& files);

}  // namespace holdfast
