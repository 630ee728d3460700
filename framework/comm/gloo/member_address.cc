#include "framework/comm/gloo/member_address.h"

#include <netinet/in.h>

#include <cstring>

namespace holdfast {
namespace {

template <typename T>
void Append(std::string* bytes, const T& value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// Takes values off the front.
class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}
  size_t left() const { return bytes_.size() - at_; }

  template <typename T>
  bool Take(T* value) {
    if (left() < sizeof(T)) return false;
    std::memcpy(value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return true;
  }

 private:
  const std::string& bytes_;
  size_t at_ = 0;
};

// The port in network byte order, then the address.
void AppendListener(std::string* bytes, const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &address.storage, sizeof(v4));
    Append(bytes, v4.sin_port);
    Append(bytes, v4.sin_addr);
  } else {
    sockaddr_in6 v6;
    std::memcpy(&v6, &address.storage, sizeof(v6));
    Append(bytes, v6.sin6_port);
    Append(bytes, v6.sin6_addr);
  }
}

bool TakeListener(Reader* reader, SocketAddress* address) {
  sockaddr_in v4 = {};
  sockaddr_in6 v6 = {};
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  if (reader->left() == sizeof(v4.sin_port) + sizeof(v4.sin_addr)) {
    reader->Take(&v4.sin_port);
    reader->Take(&v4.sin_addr);
    std::memcpy(&address->storage, &v4, sizeof(v4));
    address->size = sizeof(v4);
    return true;
  }
  if (!reader->Take(&v6.sin6_port) || !reader->Take(&v6.sin6_addr) || reader->left() != 0) return false;
  std::memcpy(&address->storage, &v6, sizeof(v6));
  address->size = sizeof(v6);
  return true;
}

}  // namespace

std::string EncodeMemberAddress(const MemberAddress& member) {
  std::string bytes;
  Append(&bytes, member.generation);
  Append(&bytes, member.key);
  Append(&bytes, member.groups);
  AppendListener(&bytes, member.listener);
  return bytes;
}

absl::StatusOr<MemberAddress> DecodeMemberAddress(const std::string& bytes) {
  MemberAddress member;
  Reader reader(bytes);
  const bool whole = reader.Take(&member.generation) && reader.Take(&member.key) && reader.Take(&member.groups) &&
                     TakeListener(&reader, &member.listener);
  if (!whole) return absl::InvalidArgumentError("not an address");
  return member;
}

}  // namespace holdfast
