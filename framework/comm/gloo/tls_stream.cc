#include "framework/comm/gloo/tls_stream.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;
constexpr size_t kReadBytes = 4 * (kRecordBytes + SSL3_RT_MAX_ENCRYPTED_OVERHEAD + SSL3_RT_HEADER_LENGTH);
constexpr unsigned char kKeyName[] = "holdfast";
constexpr char kCipher[] = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kCipherCode[] = {0x13, 0x01};

/// A key as OpenSSL takes it: a session to be resumed. The caller owns it; null if there is no memory.
SSL_SESSION* SessionOf(SSL* ssl) {
  const auto& key = *static_cast<const TlsStream::Key*>(SSL_get_app_data(ssl));
  SSL_SESSION* session = SSL_SESSION_new();
  const bool made = session != nullptr && SSL_SESSION_set1_master_key(session, key.data(), key.size()) == 1 &&
                    SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, kCipherCode)) == 1 &&
                    SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
  if (made) return session;
  SSL_SESSION_free(session);
  return nullptr;
}

int OfferKey(SSL* ssl, const EVP_MD* digest, const unsigned char** name, size_t* name_size, SSL_SESSION** session) {
  *session = nullptr;
  if (digest != nullptr && !EVP_MD_is_a(digest, "SHA256")) return 1;  // none for this one
  *session = SessionOf(ssl);
  *name = kKeyName;
  *name_size = sizeof(kKeyName);
  return *session != nullptr ? 1 : 0;
}

int FindKey(SSL* ssl, const unsigned char* name, size_t name_size, SSL_SESSION** session) {
  const bool known = name_size == sizeof(kKeyName) && std::memcmp(name, kKeyName, name_size) == 0;
  *session = known ? SessionOf(ssl) : nullptr;
  return !known || *session != nullptr ? 1 : 0;
}

SSL_CTX* MakeContext() {
  SSL_CTX* context = SSL_CTX_new(TLS_method());
  HOLDFAST_CHECK(context != nullptr);
  HOLDFAST_CHECK(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1);
  HOLDFAST_CHECK(SSL_CTX_set_ciphersuites(context, kCipher) == 1);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_psk_use_session_callback(context, OfferKey);
  SSL_CTX_set_psk_find_session_callback(context, FindKey);
  // A record that waits is offered again from other memory; idle connections, of which there may be thousands, keep no
  // buffers.
  SSL_CTX_set_mode(context,
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  return context;
}

}  // namespace

struct TlsStream::Session {
  Session(const Key& shared, SSL* made) : key(shared), ssl(made) {}
  ~Session() { SSL_free(ssl); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Key key;
  SSL* ssl;
};

TlsStream::TlsStream(Side side, const Key& key, int socket) {
  static SSL_CTX* const context = MakeContext();
  session_ = std::make_unique<Session>(key, SSL_new(context));
  SSL* ssl = session_->ssl;
  HOLDFAST_CHECK(ssl != nullptr && SSL_set_fd(ssl, socket) == 1);
  SSL_set_app_data(ssl, &session_->key);
  side == Side::kDialer ? SSL_set_connect_state(ssl) : SSL_set_accept_state(ssl);
}

TlsStream::TlsStream(TlsStream&&) noexcept = default;
TlsStream& TlsStream::operator=(TlsStream&&) noexcept = default;
TlsStream::~TlsStream() = default;

// OK if it is only that the socket has no bytes or no room.
absl::Status TlsStream::Failure(int result, absl::StatusCode protocol_error) const {
  const int error = errno;
  const auto lost = [](const char* how) { return absl::UnavailableError(how); };
  switch (SSL_get_error(session_->ssl, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return absl::OkStatus();
    case SSL_ERROR_ZERO_RETURN:
      return lost("closed by the peer");
    case SSL_ERROR_SYSCALL:
      return lost(error != 0 ? std::strerror(error) : "closed by the peer");
    default:
      break;
  }
  const uint64_t code = ERR_peek_last_error();
  if (ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING) return lost("closed by the peer");
  const char* reason = ERR_reason_error_string(code);
  return {protocol_error, absl::StrCat("TLS: ", reason != nullptr ? reason : "protocol error")};
}

absl::StatusOr<bool> TlsStream::Advance() {
  ERR_clear_error();
  errno = 0;
  SSL* ssl = session_->ssl;
  const int result = SSL_do_handshake(ssl);
  if (result == 1) {
    // A listener without the key could show a certificate instead, which nobody looks at.
    if (SSL_session_reused(ssl) != 1) {
      return absl::PermissionDeniedError("TLS: the peer has not proven that it has the key");
    }
    // From now on as much as is there by one call. Before, bytes of the peer's first message could be taken from the
    // socket, and whoever waits for it there would wait for ever.
    SSL_set_read_ahead(ssl, 1);
    SSL_set_default_read_buffer_len(ssl, kReadBytes);
    return true;
  }
  RETURN_IF_ERROR(Failure(result, absl::StatusCode::kPermissionDenied));
  return false;
}

absl::StatusOr<size_t> TlsStream::Read(void* bytes, size_t size) {
  ERR_clear_error();
  errno = 0;
  size_t got = 0;
  const int result = SSL_read_ex(session_->ssl, bytes, size, &got);
  if (result == 1) return got;
  RETURN_IF_ERROR(Failure(result, absl::StatusCode::kDataLoss));
  return 0;
}

absl::StatusOr<size_t> TlsStream::Write(absl::Span<const iovec> pieces) {
  std::array<char, kRecordBytes> record;  // of several pieces
  size_t size = 0;
  for (const iovec& piece : pieces) {
    const size_t part = std::min(piece.iov_len, record.size() - size);
    if (pieces.size() > 1 && part > 0) std::memcpy(&record[size], piece.iov_base, part);
    size += part;
  }
  if (size == 0) return 0;
  ERR_clear_error();
  errno = 0;
  SSL* ssl = session_->ssl;
  if (records_ >= records_per_key_ && !blocked_) {
    HOLDFAST_CHECK(SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1);
    records_ = 0;
  }
  size_t written = 0;
  const int result = SSL_write_ex(ssl, pieces.size() > 1 ? record.data() : pieces[0].iov_base, size, &written);
  blocked_ = result != 1;
  if (result == 1) {
    ++records_;
    return written;
  }
  RETURN_IF_ERROR(Failure(result, absl::StatusCode::kInternal));
  return 0;
}

}  // namespace holdfast
