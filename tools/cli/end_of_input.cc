#include "tools/cli/end_of_input.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "framework/base/file_descriptor.h"

namespace holdfast {
namespace {

constexpr int kLookMs = 200;  // at `stop`, where there is nothing that wakes us

}  // namespace

bool WaitForEndOfInput(int input, const std::stop_token& stop) {
  const FileDescriptor stopped(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const std::stop_callback wake(stop, [&stopped] {
    if (stopped.ok()) eventfd_write(stopped.get(), 1);
  });
  while (!stop.stop_requested()) {
    std::array<pollfd, 2> waits{
        {{.fd = input, .events = POLLIN, .revents = 0}, {.fd = stopped.get(), .events = POLLIN, .revents = 0}}};
    const int ready = poll(waits.data(), waits.size(), stopped.ok() ? -1 : kLookMs);
    if (ready <= 0 || waits[0].revents == 0) continue;
    std::array<char, 256> passed_over{};
    const ssize_t count = read(input, passed_over.data(), passed_over.size());
    if (count == 0 || (count < 0 && errno != EINTR)) return true;
  }
  return false;
}

}  // namespace holdfast
