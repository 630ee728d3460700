#pragma once
// A connection between two members that have proven themselves.

#include <optional>

#include "framework/base/file_descriptor.h"
#include "framework/comm/gloo/tls_stream.h"

namespace holdfast {

struct Connection {
  FileDescriptor socket = {};         // closed: none
  std::optional<TlsStream> tls = {};  // ready, over `socket`; none where bytes are not encrypted
};

}  // namespace holdfast
