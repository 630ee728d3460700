#include "framework/comm/gloo/gloo_pair.h"

#include <gloo/common/error.h>
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/pair.h>
#include <unistd.h>

#include <array>
#include <mutex>
#include <string>
#include <utility>

#include "framework/base/status.h"

namespace holdfast {
namespace {

namespace tcp = gloo::transport::tcp;
using Buffer = gloo::NonOwningPtr<tcp::UnboundBuffer>;

#ifdef HOLDFAST_GLOO_STAND_IN
static_assert(sizeof(tcp::Pair) == 896);  // as libgloo allocates one
static_assert(sizeof(Buffer) == sizeof(std::shared_ptr<void>));
#endif

class ConnectedPair : public tcp::Pair {
 public:
  ConnectedPair(tcp::Context* context, tcp::Device* device, int rank, FileDescriptor socket)
      : Pair(context, device, rank, gloo::kNoTimeout) {
    const std::lock_guard lock(m_);
    if (fd_ >= 0) {  // where it has begun to listen
      device_->unregisterDescriptor(fd_, this);
      ::close(fd_);
    }
    fd_ = socket.Release();
    handleConnected();
  }
};

/// Reads and writes what Gloo prepares by TLS instead of the socket. All is called with Gloo's lock on the pair, and
/// reading goes on until nothing is left, so nothing stays behind in TLS's buffers, of which the loop knows nothing.
class EncryptedPair final : public ConnectedPair {
 public:
  EncryptedPair(tcp::Context* context, tcp::Device* device, int rank, FileDescriptor socket, TlsStream tls)
      : ConnectedPair(context, device, rank, std::move(socket)), tls_(std::move(tls)) {}

  // Before it is a plain pair again, which would write in plain.
  ~EncryptedPair() override {
    const std::lock_guard lock(m_);
    if (state_ != CLOSED) Pair::changeState(CLOSED);
  }

 private:
  bool write(tcp::Op& op) override {
    if (state_ == CLOSED) return false;
    const auto kind = op.getOpcode();
    Buffer buffer;
    if (kind == tcp::Op::SEND_UNBOUND_BUFFER) {
      buffer = Buffer(op.ubuf);
      if (!buffer) return false;
    }
    while (op.nwritten < op.preamble.nbytes) {
      std::array<iovec, 2> pieces;
      int count = 0;
      prepareWrite(op, buffer, pieces.data(), count);
      const auto written = tls_.Write({pieces.data(), static_cast<size_t>(count)});
      // That the peer is gone is noticed by reading, after what it has sent before.
      if (!written.ok() && !absl::IsUnavailable(written.status()))
        signalException(std::string(written.status().message()));
      if (written.value_or(0) == 0) return false;
      op.nwritten += *written;
    }
    writeComplete(op, buffer, kind);
    return true;
  }

  bool read() override {
    if (state_ == CLOSED) return false;
    Buffer buffer;
    while (true) {
      iovec piece = {};
      const ssize_t wanted = prepareRead(rx_, buffer, piece);
      if (wanted < 0) return false;
      if (wanted == 0) break;
      const auto got = tls_.Read(piece.iov_base, piece.iov_len);
      if (!got.ok()) signalException(std::string(got.status().message()));
      if (got.value_or(0) == 0) return false;
      rx_.nread += *got;
    }
    readComplete(buffer);
    return true;
  }

  TlsStream tls_;
};

}  // namespace

std::unique_ptr<gloo::transport::Pair> MakeGlooPair(gloo::transport::Context& context, gloo::transport::Device& device,
                                                    int rank, Connection connection) {
  auto* of_tcp = dynamic_cast<tcp::Context*>(&context);
  auto* by_tcp = dynamic_cast<tcp::Device*>(&device);
  HOLDFAST_CHECK(of_tcp != nullptr && by_tcp != nullptr);
  if (!connection.tls.has_value()) {
    return std::make_unique<ConnectedPair>(of_tcp, by_tcp, rank, std::move(connection.socket));
  }
  return std::make_unique<EncryptedPair>(of_tcp, by_tcp, rank, std::move(connection.socket),
                                         *std::move(connection.tls));
}

}  // namespace holdfast
