#pragma once
// A tiny HTTP server on loopback that answers as it is told and remembers what it was sent.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace holdfast {

class HttpServer {
 public:
  static constexpr int kHang = -1;  // takes the request and never answers

  /// Answers request i with answers[i], later ones with the last.
  explicit HttpServer(std::vector<int> answers) : answers_(std::move(answers)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener_, 16) != 0) abort();
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~HttpServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
    EndHanging();
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url(const std::string& path) const { return "http://127.0.0.1:" + std::to_string(port_) + path; }
  /// Heads and bodies, in order.
  std::vector<std::string> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  bool WaitForRequests(size_t count) const {
    for (int i = 0; i < 120'000 && requests().size() < count; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return requests().size() >= count;
  }
  /// Closes the connections of requests that hang, which their senders take for a failure.
  void EndHanging() {
    const std::lock_guard lock(mutex_);
    for (const int fd : hanging_) close(fd);
    hanging_.clear();
  }

 private:
  void Serve() {
    for (int fd; (fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      const std::string request = ReadRequest(fd);
      const int answer = answers_[std::min(served_++, answers_.size() - 1)];
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(request);
        if (answer == kHang) hanging_.push_back(fd);
      }
      if (answer != kHang) {
        // An error page that repeats the path, as many do.
        const std::string body = "you asked for: " + request.substr(0, request.find('\r'));
        const std::string reply =
            "HTTP/1.1 " + std::to_string(answer) +
            " x\r\nLocation: /elsewhere\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) +
            "\r\n\r\n" + body;
        send(fd, reply.data(), reply.size(), MSG_NOSIGNAL);
        close(fd);
      }
    }
  }

  static std::string ReadRequest(int fd) {
    std::string request;
    char buffer[4096];
    for (;;) {
      const size_t head = request.find("\r\n\r\n"), field = request.find("Content-Length: ");
      if (head != std::string::npos && field != std::string::npos &&
          request.size() >= head + 4 + std::stoul(request.substr(field + 16))) {
        return request;
      }
      const ssize_t got = recv(fd, buffer, sizeof buffer, 0);
      if (got <= 0) return request;
      request.append(buffer, static_cast<size_t>(got));
    }
  }

  const std::vector<int> answers_;
  int listener_ = -1, port_ = 0;
  size_t served_ = 0;
  mutable std::mutex mutex_;
  std::vector<int> hanging_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace holdfast
