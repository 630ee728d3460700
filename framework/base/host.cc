#include "framework/base/host.h"

#include <unistd.h>

#include <array>

namespace holdfast {

std::string HostName() {
  std::array<char, 256> name{};  // gethostname need not end a name that it cuts
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

}  // namespace holdfast
