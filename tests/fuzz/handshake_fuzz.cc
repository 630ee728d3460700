// What the two ends of a connection between workers do with any bytes: without the key nobody gets through, and an
// address that is read is the one that was told.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/string_view.h"
#include "framework/comm/gloo/handshake.h"
#include "framework/comm/gloo/member_address.h"

namespace holdfast {
namespace {

void Check(bool condition) {
  if (!condition) abort();
}

void Speak(Handshake handshake, absl::string_view bytes) {
  while (bytes.size() >= handshake.awaited()) {
    Check(handshake.awaited() > 0 && handshake.awaited() <= Handshake::kMaxMessageBytes);
    const absl::string_view message = bytes.substr(0, handshake.awaited());
    const auto answer = handshake.Take(message);
    if (!answer.ok()) return Check(absl::IsPermissionDenied(answer.status()));
    bytes.remove_prefix(message.size());
    Check(!handshake.done());
  }
}

}  // namespace
}  // namespace holdfast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto member = holdfast::DecodeMemberAddress(bytes);
  if (member.ok()) holdfast::Check(holdfast::EncodeMemberAddress(*member) == bytes);
  const holdfast::WorldKey key = holdfast::KeyOf({holdfast::MemberAddress{.generation = 1}});
  holdfast::Speak(holdfast::Handshake::Answer(key, 1), bytes);
  holdfast::Speak(holdfast::Handshake::Dial(key, 0, 1, 2), bytes);
  return 0;
}
