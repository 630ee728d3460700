#pragma once
// TLS 1.3 over a connected socket between two ends that share a key (RFC 8446, 2.2: psk_dhe_ke). There are no
// certificates: each end proves that it has the key. What encrypts the bytes is agreed on anew for each connection and
// then forgotten, so the key does not open what somebody has recorded.
//
// Nothing waits: where the socket has no bytes or no room, a call says so.
//
// Example:
//   TlsStream tls(TlsStream::Side::kDialer, key, socket.get());
//   ... whenever there is something to read, until it is true: ASSIGN_OR_RETURN(const bool ready, tls.Advance()) ...

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace holdfast {

/// One end. Its user keeps the socket, which does not block, and closes it afterwards. A write to a peer that is gone
/// raises SIGPIPE. Thread-safety: that of its members.
class TlsStream {
 public:
  using Key = std::array<unsigned char, 32>;
  enum class Side : uint8_t { kDialer, kListener };

  TlsStream(Side side, const Key& key, int socket);
  TlsStream(TlsStream&&) noexcept;
  TlsStream& operator=(TlsStream&&) noexcept;
  ~TlsStream();

  /// Goes on with the handshake as far as bytes are there; true once it is done. A dialer's first call begins it.
  /// PermissionDenied: the peer has another key, or does not speak TLS. Unavailable: the connection is lost.
  absl::StatusOr<bool> Advance();

  /// Returns how many bytes were read, 0 if none are there now. Unavailable: the connection has ended. DataLoss:
  /// something has changed its bytes.
  absl::StatusOr<size_t> Read(void* bytes, size_t size);

  /// Takes bytes of `pieces`, one after the other, as many as fit into one record (16 KiB). Returns how many it took, 0
  /// if the socket has no room: the same bytes must come next. Unavailable: the connection has ended.
  absl::StatusOr<size_t> Write(absl::Span<const iovec> pieces);

  /// After so many records of this end their key is replaced (RFC 8446, 5.5 allows 2^24.5 with AES-GCM).
  void set_records_per_key(int64_t records) { records_per_key_ = records; }

 private:
  struct Session;

  absl::Status Failure(int result, absl::StatusCode protocol_error) const;

  std::unique_ptr<Session> session_;
  int64_t records_per_key_ = int64_t{1} << 22, records_ = 0;
  bool blocked_ = false;  // a record that was made waits for room
};

}  // namespace holdfast
