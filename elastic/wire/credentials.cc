#include "elastic/wire/credentials.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "elastic/wire/grpc_log.h"
#include "framework/base/files.h"
#include "framework/base/status.h"
#include "grpcpp/channel.h"
#include "grpcpp/create_channel.h"

namespace holdfast {
namespace {

constexpr size_t kMaxPemBytes = size_t{1} << 20;

struct Pem {
  std::string certificate, key, authority;
};

template <class T, void (*Free)(T*)>
struct Freeing {
  void operator()(T* object) const { Free(object); }
};
using Certificate = std::unique_ptr<X509, Freeing<X509, X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Freeing<EVP_PKEY, EVP_PKEY_free>>;
using Bio = std::unique_ptr<BIO, Freeing<BIO, BIO_free_all>>;

Bio Reading(const std::string& pem) { return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()))); }

Certificate FirstCertificate(const std::string& pem) {
  return Certificate(PEM_read_bio_X509(Reading(pem).get(), nullptr, nullptr, nullptr));
}

/// One with a password is none: nobody is there to type it.
PrivateKey FirstKey(const std::string& pem) {
  const auto no_password = [](char*, int, int, void*) { return -1; };
  return PrivateKey(PEM_read_bio_PrivateKey(Reading(pem).get(), nullptr, no_password, nullptr));
}

// gRPC takes any bytes and refuses every connection later, in lines of its own.
absl::Status CheckPem(const TlsFiles& files, const Pem& pem) {
  const Certificate certificate = FirstCertificate(pem.certificate), authority = FirstCertificate(pem.authority);
  const PrivateKey key = FirstKey(pem.key);
  const bool is_pair = certificate != nullptr && key != nullptr && X509_check_private_key(certificate.get(), key.get());
  ERR_clear_error();
  std::string problem;
  if (certificate == nullptr) {
    problem = absl::StrCat(files.certificate, ": holds no certificate (PEM)");
  } else if (key == nullptr) {
    problem = absl::StrCat(files.key, ": holds no private key (PEM) without password");
  } else if (!is_pair) {
    problem = absl::StrCat(files.key, ": is not the key of the certificate in ", files.certificate);
  } else if (authority == nullptr) {
    problem = absl::StrCat(files.authority, ": holds no certificate (PEM)");
  }
  return problem.empty() ? absl::OkStatus() : absl::InvalidArgumentError(problem);
}

absl::StatusOr<Pem> ReadAll(const TlsFiles& files) {
  if (files.certificate.empty() || files.key.empty() || files.authority.empty()) {
    return absl::InvalidArgumentError("mutual TLS needs three files: certificate, key and authority");
  }
  Pem pem;
  ASSIGN_OR_RETURN(pem.certificate, ReadFile(files.certificate, kMaxPemBytes));
  ASSIGN_OR_RETURN(pem.key, ReadFile(files.key, kMaxPemBytes));
  ASSIGN_OR_RETURN(pem.authority, ReadFile(files.authority, kMaxPemBytes));
  RETURN_IF_ERROR(CheckPem(files, pem));
  return pem;
}

}  // namespace

// Counted in gRPC 1.51.1 with 1 to 256 processors.
int ThreadsOfGrpc(int64_t processors) {
  constexpr int64_t kOthers = 4;    // two for timers, two for what may block
  constexpr int64_t kWhenBusy = 8;  // one more was seen
  const auto for_events = std::clamp<int64_t>(processors, 2, 32);
  const auto for_callbacks = std::clamp<int64_t>(processors / 2, 2, 16);
  return static_cast<int>(for_events + for_callbacks + kOthers + kWhenBusy);
}

int ThreadsOfGrpc() { return ThreadsOfGrpc(sysconf(_SC_NPROCESSORS_CONF)); }

// The channel has a part in all that gRPC shares. It is not used, and so connects to nothing. Volatile, so that the
// pointer exists and what it points to is no leak.
void KeepThreadsOfGrpc() {
  TakeGrpcLog();
  static auto* volatile kept =
      new std::shared_ptr<grpc::Channel>(grpc::CreateChannel("127.0.0.1:1", grpc::InsecureChannelCredentials()));
  static_cast<void>(kept);
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsFrom(const TlsFiles& files) {
  KeepThreadsOfGrpc();
  if (!files.enabled()) return grpc::InsecureServerCredentials();
  ASSIGN_OR_RETURN(const Pem pem, ReadAll(files));
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = pem.authority;
  options.pem_key_cert_pairs = {{pem.key, pem.certificate}};
  return grpc::SslServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ClientCredentialsFrom(const TlsFiles& files) {
  KeepThreadsOfGrpc();
  if (!files.enabled()) return grpc::InsecureChannelCredentials();
  ASSIGN_OR_RETURN(const Pem pem, ReadAll(files));
  return grpc::SslCredentials({pem.authority, pem.key, pem.certificate});
}

}  // namespace holdfast
