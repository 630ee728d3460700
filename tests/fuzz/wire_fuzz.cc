// What comes in of any bytes that a worker, a coordinator or a person who asks for the status is sent. What is accepted
// can be sent on, and is the same message then.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "elastic/wire/convert.h"
#include "elastic/wire/holdfast.pb.h"

namespace holdfast {
namespace {

void Check(bool condition) {
  if (!condition) abort();
}

template <class Wire>
void Parse(const std::string& bytes) {
  Wire wire;
  if (!wire.ParseFromString(bytes)) return;
  const auto message = FromWire(wire);
  if (!message.ok()) {
    Check(absl::IsInvalidArgument(message.status()));
    Check(message.status().message().size() < 1000);
    return;
  }
  Wire sent;
  ToWire(*message, &sent);
  const auto again = FromWire(sent);
  Check(again.ok());
  Wire sent_again;
  ToWire(*again, &sent_again);
  Check(sent_again.SerializeAsString().size() == sent.SerializeAsString().size());
}

}  // namespace
}  // namespace holdfast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  holdfast::Parse<holdfast::v1::ToCoordinator>(bytes);
  holdfast::Parse<holdfast::v1::FromCoordinator>(bytes);
  holdfast::Parse<holdfast::v1::StatusReply>(bytes);
  return 0;
}
