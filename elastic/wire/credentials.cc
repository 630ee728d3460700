#include "elastic/wire/credentials.h"

#include <string>

#include "absl/status/status.h"
#include "framework/base/files.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr size_t kMaxPemBytes = size_t{1} << 20;

struct Pem {
  std::string certificate, key, authority;
};

absl::StatusOr<Pem> ReadAll(const TlsFiles& files) {
  if (files.certificate.empty() || files.key.empty() || files.authority.empty()) {
    return absl::InvalidArgumentError("mutual TLS needs three files: certificate, key and authority");
  }
  Pem pem;
  ASSIGN_OR_RETURN(pem.certificate, ReadFile(files.certificate, kMaxPemBytes));
  ASSIGN_OR_RETURN(pem.key, ReadFile(files.key, kMaxPemBytes));
  ASSIGN_OR_RETURN(pem.authority, ReadFile(files.authority, kMaxPemBytes));
  return pem;
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsFrom(const TlsFiles& files) {
  if (!files.enabled()) return grpc::InsecureServerCredentials();
  ASSIGN_OR_RETURN(const Pem pem, ReadAll(files));
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = pem.authority;
  options.pem_key_cert_pairs = {{pem.key, pem.certificate}};
  return grpc::SslServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ClientCredentialsFrom(const TlsFiles& files) {
  if (!files.enabled()) return grpc::InsecureChannelCredentials();
  ASSIGN_OR_RETURN(const Pem pem, ReadAll(files));
  return grpc::SslCredentials({pem.authority, pem.key, pem.certificate});
}

}  // namespace holdfast
