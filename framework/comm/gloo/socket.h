#pragma once
// A socket, or another file descriptor, that closes itself.

#include <unistd.h>

#include <utility>

namespace holdfast {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { Close(); }
  Socket(Socket&& other) noexcept : fd_(other.Release()) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = other.Release();
    }
    return *this;
  }

  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  /// The caller closes it.
  int Release() { return std::exchange(fd_, -1); }

 private:
  void Close() {
    if (open()) close(Release());
  }

  int fd_ = -1;
};

}  // namespace holdfast
