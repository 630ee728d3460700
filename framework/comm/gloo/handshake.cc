#include "framework/comm/gloo/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cstring>

#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr char kDialer[] = "holdfast: the dialer", kListener[] = "holdfast: the listener";
constexpr char kConnection[] = "holdfast: the connection";
constexpr size_t kProofBytes = sizeof(WorldKey);

struct Hello {
  uint32_t mesh = 0, rank = 0;
  std::array<unsigned char, 32> nonce = {};
};
static_assert(sizeof(Hello) == Handshake::kMaxMessageBytes);

template <typename T>
std::string BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

bool AreEqual(absl::string_view a, absl::string_view b) {  // in constant time
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

WorldKey KeyOf(const std::vector<MemberAddress>& members) {
  std::string told;
  for (const MemberAddress& member : members) {
    const std::string bytes = EncodeMemberAddress(member);
    told += BytesOf(static_cast<uint32_t>(bytes.size())) + bytes;
  }
  WorldKey key;
  unsigned int size = 0;
  HOLDFAST_CHECK(EVP_Digest(told.data(), told.size(), key.data(), &size, EVP_sha256(), nullptr) == 1);
  HOLDFAST_CHECK(size == key.size());
  return key;
}

void FillRandomly(void* bytes, size_t size) {
  HOLDFAST_CHECK(RAND_bytes(static_cast<unsigned char*>(bytes), static_cast<int>(size)) == 1);
}

Handshake Handshake::Dial(const WorldKey& key, uint32_t mesh, uint32_t dialer, uint32_t listener) {
  Handshake handshake(key, {mesh, dialer, listener}, Step::kChallenge);
  FillRandomly(handshake.dialers_.data(), handshake.dialers_.size());
  return handshake;
}

Handshake Handshake::Answer(const WorldKey& key, uint32_t listener) {
  Handshake handshake(key, {0, 0, listener}, Step::kHello);
  FillRandomly(handshake.listeners_.data(), handshake.listeners_.size());
  return handshake;
}

std::string Handshake::First() const { return BytesOf(Hello{link_.mesh, link_.dialer, dialers_}); }

size_t Handshake::awaited() const {
  switch (step_) {
    case Step::kHello:
      return sizeof(Hello);
    case Step::kChallenge:
      return sizeof(Nonce);
    case Step::kDialersProof:
    case Step::kListenersProof:
      return kProofBytes;
    case Step::kDone:
      break;
  }
  return 0;
}

WorldKey Handshake::Keyed(absl::string_view text) const {
  const std::string whole = std::string(text) + BytesOf(link_) + BytesOf(dialers_) + BytesOf(listeners_);
  WorldKey made;
  unsigned int size = 0;
  HOLDFAST_CHECK(HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
                      reinterpret_cast<const unsigned char*>(whole.data()), whole.size(), made.data(),
                      &size) != nullptr);
  HOLDFAST_CHECK(size == made.size());
  return made;
}

std::string Handshake::Proof(absl::string_view side) const { return BytesOf(Keyed(side)); }

WorldKey Handshake::ConnectionKey() const {
  HOLDFAST_CHECK(done());
  return Keyed(kConnection);
}

absl::StatusOr<std::string> Handshake::Take(absl::string_view message) {
  HOLDFAST_CHECK(!done() && message.size() == awaited());
  switch (step_) {
    case Step::kHello: {
      Hello hello;
      std::memcpy(&hello, message.data(), sizeof(hello));
      link_.mesh = hello.mesh;
      link_.dialer = hello.rank;
      dialers_ = hello.nonce;
      step_ = Step::kDialersProof;
      return BytesOf(listeners_);
    }
    case Step::kChallenge:
      std::memcpy(listeners_.data(), message.data(), listeners_.size());
      step_ = Step::kListenersProof;
      return Proof(kDialer);
    case Step::kDialersProof:
      if (!AreEqual(message, Proof(kDialer))) break;
      step_ = Step::kDone;
      return Proof(kListener);
    case Step::kListenersProof:
      if (!AreEqual(message, Proof(kListener))) break;
      step_ = Step::kDone;
      return std::string();
    case Step::kDone:
      break;
  }
  return absl::PermissionDeniedError("no proof of this world");
}

}  // namespace holdfast
