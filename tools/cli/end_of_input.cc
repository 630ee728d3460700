#include "tools/cli/end_of_input.h"

#include <unistd.h>

#include <array>
#include <cerrno>

#include "framework/base/file_descriptor.h"

namespace holdfast {

bool WaitForEndOfInput(int input, const std::stop_token& stop) {
  while (WaitToRead(input, stop).ok()) {
    std::array<char, 256> passed_over{};
    const ssize_t count = read(input, passed_over.data(), passed_over.size());
    if (count == 0 || (count < 0 && errno != EINTR)) return true;
  }
  return false;
}

}  // namespace holdfast
