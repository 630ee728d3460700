// Two ends with one key understand each other, and nobody else: bytes arrive as they were written however little room
// there is, are not to be seen on the way, and are refused when they were changed there; an end with another key, with
// a certificate instead, or with none is refused by both sides; keys are replaced while bytes flow.

#include "framework/comm/gloo/tls_stream.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <memory>
#include <numeric>
#include <random>
#include <string>

#include "framework/base/file_descriptor.h"
#include "framework/comm/gloo/gloo_call.h"

namespace holdfast {
namespace {

using Side = TlsStream::Side;

TlsStream::Key KeyFrom(unsigned char first) {
  TlsStream::Key key;
  std::iota(key.begin(), key.end(), first);
  return key;
}

/// Two ends of a pair of sockets, with room for a few records.
class Ends {
 public:
  explicit Ends(TlsStream::Key dialers = KeyFrom(1), TlsStream::Key listeners = KeyFrom(1)) {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    sockets_[0] = FileDescriptor(fds[0]);
    sockets_[1] = FileDescriptor(fds[1]);
    const int room = 40'000;
    for (const int fd : fds) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    dialer = std::make_unique<TlsStream>(Side::kDialer, dialers, fds[0]);
    listener = std::make_unique<TlsStream>(Side::kListener, listeners, fds[1]);
  }
  int socket(Side side) const { return sockets_[side == Side::kDialer ? 0 : 1].get(); }
  void Close(Side side) { sockets_[side == Side::kDialer ? 0 : 1] = {}; }

  struct Outcome {
    absl::StatusOr<bool> dialer = false, listener = false;
  };
  /// Until both are ready, or one has refused.
  Outcome Meet() const {
    Outcome met;
    for (int turn = 0; turn < 10; ++turn) {
      if (met.dialer.ok() && !*met.dialer) met.dialer = dialer->Advance();
      if (met.listener.ok() && !*met.listener) met.listener = listener->Advance();
    }
    return met;
  }
  void MustMeet() const {
    const Outcome met = Meet();
    ASSERT_TRUE(met.dialer.ok() && *met.dialer) << met.dialer.status();
    ASSERT_TRUE(met.listener.ok() && *met.listener) << met.listener.status();
  }

  std::unique_ptr<TlsStream> dialer, listener;

 private:
  const NoSigPipe quiet_;
  FileDescriptor sockets_[2];
};

std::string RandomBytes(size_t size) {
  std::mt19937 random(7);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

absl::StatusOr<size_t> Write(TlsStream& to, const std::string& bytes, size_t from = 0) {
  const iovec piece{const_cast<char*>(bytes.data()) + from, bytes.size() - from};
  return to.Write({&piece, 1});
}

absl::StatusOr<std::string> Read(TlsStream& from, size_t most) {
  std::string bytes(most, '\0');
  const auto got = from.Read(bytes.data(), most);
  if (!got.ok()) return got.status();
  bytes.resize(*got);
  return bytes;
}

// What one writes in pieces of all sizes, more than there is room for, the other reads in pieces of other sizes.
void ExpectToArrive(TlsStream& from, TlsStream& to, const std::string& bytes) {
  std::mt19937 random(3);
  size_t sent = 0, blocked = 0;
  std::string arrived;
  size_t head = 0, whole = 0;  // of what is offered, until something of it is taken
  while (arrived.size() < bytes.size()) {
    if (sent < bytes.size()) {
      if (whole == 0) {
        whole = std::min<size_t>(bytes.size() - sent, 1 + random() % 40'000);
        head = random() % std::min<size_t>(whole, 100);
      }
      auto* at = const_cast<char*>(bytes.data()) + sent;
      const std::string moved(at, whole);  // other memory at each try
      const iovec pieces[2] = {{const_cast<char*>(moved.data()), head},
                               {const_cast<char*>(moved.data()) + head, whole - head}};
      const auto taken = from.Write({pieces, 2});
      ASSERT_TRUE(taken.ok()) << taken.status();
      sent += *taken;
      if (*taken > 0) whole = 0;
      blocked += *taken == 0 ? 1 : 0;
      if (*taken > 0 && random() % 4 != 0) continue;  // lets it fill up
    }
    const auto got = Read(to, 1 + random() % 30'000);
    ASSERT_TRUE(got.ok()) << got.status();
    arrived += *got;
  }
  EXPECT_GT(blocked, 0u) << "it never ran out of room";
  EXPECT_TRUE(arrived == bytes);
}

TEST(TlsStreamTest, BytesArriveAsTheyWereWritten) {
  Ends ends;
  ends.MustMeet();
  ExpectToArrive(*ends.dialer, *ends.listener, RandomBytes(3'000'000));
  ExpectToArrive(*ends.listener, *ends.dialer, RandomBytes(3'000'000));
}

TEST(TlsStreamTest, WithoutBytesOrRoomItSaysSo) {
  Ends ends;
  EXPECT_FALSE(*ends.listener->Advance());
  ends.MustMeet();
  EXPECT_EQ(*Read(*ends.listener, 10), "");
  EXPECT_EQ(*Write(*ends.dialer, ""), 0u);
  const std::string bytes(100'000, 'x');
  size_t sent = 0;
  while (const size_t taken = *Write(*ends.dialer, bytes, sent)) sent += taken;
  EXPECT_GT(sent, 0u);
  EXPECT_LT(sent, bytes.size());
}

TEST(TlsStreamTest, KeysAreReplacedWhileBytesFlow) {
  Ends ends;
  ends.MustMeet();
  ends.dialer->set_records_per_key(3);
  ExpectToArrive(*ends.dialer, *ends.listener, RandomBytes(3'000'000));
  ExpectToArrive(*ends.listener, *ends.dialer, RandomBytes(300'000));
}

// The records of one end that were never read: as somebody on the way sees them.
std::string OnTheWay(Ends& ends, const std::string& text) {
  EXPECT_EQ(*Write(*ends.dialer, text), text.size());
  std::string seen(60'000, '\0');
  const ssize_t got = recv(ends.socket(Side::kListener), seen.data(), seen.size(), 0);
  seen.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return seen;
}

TEST(TlsStreamTest, NothingIsToBeSeenOnTheWay) {
  const std::string text = "what the workers of a run tell each other";
  Ends ends, others;
  ends.MustMeet();
  others.MustMeet();
  const std::string seen = OnTheWay(ends, text);
  EXPECT_GT(seen.size(), text.size());
  EXPECT_THAT(seen, testing::Not(testing::HasSubstr("workers")));
  EXPECT_NE(seen, OnTheWay(others, text)) << "two connections of one key";
}

TEST(TlsStreamTest, ChangedBytesAreRefused) {
  const std::string text = "what the workers of a run tell each other";
  for (const size_t at : {size_t{0}, size_t{5}, size_t{30}}) {
    Ends ends;
    ends.MustMeet();
    std::string seen = OnTheWay(ends, text);
    seen[at] = static_cast<char>(seen[at] ^ 1);
    send(ends.socket(Side::kDialer), seen.data(), seen.size(), MSG_NOSIGNAL);
    const auto got = Read(*ends.listener, 100);
    EXPECT_EQ(got.status().code(), absl::StatusCode::kDataLoss) << at << ": " << got.status();
  }
}

TEST(TlsStreamTest, BytesOfBeforeAreRefused) {
  Ends ends;
  ends.MustMeet();
  const std::string seen = OnTheWay(ends, "pay him");
  for (int i = 0; i < 2; ++i) send(ends.socket(Side::kDialer), seen.data(), seen.size(), MSG_NOSIGNAL);
  EXPECT_EQ(*Read(*ends.listener, 100), "pay him");
  EXPECT_EQ(Read(*ends.listener, 100).status().code(), absl::StatusCode::kDataLoss);
}

TEST(TlsStreamTest, AnotherKeyIsRefusedByBothSides) {
  Ends ends(KeyFrom(1), KeyFrom(2));
  const Ends::Outcome met = ends.Meet();
  EXPECT_TRUE(absl::IsPermissionDenied(met.dialer.status())) << met.dialer.status();
  EXPECT_TRUE(absl::IsPermissionDenied(met.listener.status())) << met.listener.status();
}

TEST(TlsStreamTest, WhoDoesNotSpeakTlsIsRefused) {
  for (const Side side : {Side::kDialer, Side::kListener}) {
    Ends ends;
    TlsStream& asked = side == Side::kDialer ? *ends.dialer : *ends.listener;
    EXPECT_FALSE(*asked.Advance());
    const std::string text(200, 'x');
    send(ends.socket(side == Side::kDialer ? Side::kListener : Side::kDialer), text.data(), text.size(), MSG_NOSIGNAL);
    const auto met = asked.Advance();
    EXPECT_TRUE(absl::IsPermissionDenied(met.status())) << met.status();
  }
}

/// An end that has a certificate that it made itself, or nothing, instead of the key.
class Impostor {
 public:
  Impostor(Side side, int socket) : context_(SSL_CTX_new(TLS_method())) {
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* certificate = X509_new();
    X509_set_version(certificate, 2);
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_sign(certificate, key, EVP_sha256());
    EXPECT_EQ(SSL_CTX_use_certificate(context_, certificate), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context_, key), 1);
    X509_free(certificate);
    EVP_PKEY_free(key);
    ssl_ = SSL_new(context_);
    SSL_set_fd(ssl_, socket);
    side == Side::kDialer ? SSL_set_connect_state(ssl_) : SSL_set_accept_state(ssl_);
  }
  ~Impostor() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  Impostor(const Impostor&) = delete;
  Impostor& operator=(const Impostor&) = delete;
  void Advance() { SSL_do_handshake(ssl_); }

 private:
  SSL_CTX* context_;
  SSL* ssl_ = nullptr;
};

TEST(TlsStreamTest, ACertificateIsNotTheKey) {
  for (const Side side : {Side::kDialer, Side::kListener}) {
    Ends ends;
    Impostor impostor(side, ends.socket(side));
    TlsStream& asked = side == Side::kDialer ? *ends.listener : *ends.dialer;
    absl::StatusOr<bool> met = false;
    for (int turn = 0; turn < 10 && met.ok(); ++turn) {
      impostor.Advance();
      met = asked.Advance();
      EXPECT_FALSE(met.value_or(false)) << "let in";
    }
    EXPECT_TRUE(absl::IsPermissionDenied(met.status())) << met.status();
  }
}

TEST(TlsStreamTest, AnEndIsALostConnection) {
  {
    Ends ends;
    EXPECT_FALSE(*ends.dialer->Advance());
    ends.Close(Side::kListener);
    EXPECT_TRUE(absl::IsUnavailable(ends.dialer->Advance().status()));
  }
  Ends ends;
  ends.MustMeet();
  EXPECT_EQ(*Write(*ends.dialer, "the last"), 8u);
  ends.Close(Side::kDialer);
  EXPECT_EQ(*Read(*ends.listener, 100), "the last");
  EXPECT_TRUE(absl::IsUnavailable(Read(*ends.listener, 100).status()));
  EXPECT_TRUE(absl::IsUnavailable(Write(*ends.listener, "is anybody there").status()));
}

}  // namespace
}  // namespace holdfast
