#pragma once
// A peer that speaks just enough HTTP/2 to do harm: one connection, streams of any path and headers, and as many bytes
// on each as the server's windows allow. It holds next to nothing itself, so what a process with it and a server grows
// by is the server's.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace holdfast::testing {

class Http2Peer {
 public:
  using Headers = std::vector<std::pair<std::string, std::string>>;

  /// From an address of its own (RFC 1122: all of 127/8 is this machine), so that it is another host than a worker.
  explicit Http2Peer(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.find(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sockaddr_in from{};
    from.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    bind(fd_, reinterpret_cast<sockaddr*>(&from), sizeof from);
    open_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
    Write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    WriteFrame(kSettings, 0, 0, "");
  }
  ~Http2Peer() { close(fd_); }
  Http2Peer(const Http2Peer&) = delete;
  Http2Peer& operator=(const Http2Peer&) = delete;

  bool open() const { return open_; }
  int64_t sent() const { return sent_; }        // bytes of messages
  int64_t refused() const { return refused_; }  // streams that the server has ended
  size_t streams() const { return streams_.size(); }

  /// A stream that announces a message of `size` bytes.
  void OpenStream(const std::string& path, uint32_t size, const Headers& more = {}) {
    Headers headers = {{":method", "POST"},
                       {":scheme", "http"},
                       {":path", path},
                       {":authority", "any"},
                       {"content-type", "application/grpc"},
                       {"te", "trailers"}};
    headers.insert(headers.end(), more.begin(), more.end());
    WriteFrame(kHeaders, kEndHeaders, next_, HeaderBlock(headers));
    const char prefix[5] = {0, static_cast<char>(size >> 24), static_cast<char>(size >> 16),
                            static_cast<char>(size >> 8), static_cast<char>(size)};
    WriteFrame(kData, 0, next_, std::string(prefix, sizeof(prefix)));
    connection_window_ -= static_cast<int64_t>(sizeof(prefix));
    streams_[next_] = Stream{initial_window_ - static_cast<int64_t>(sizeof(prefix)), size};
    next_ += 2;
  }
  /// Headers that never end.
  void WriteHeaders(size_t bytes) {
    WriteFrame(kHeaders, 0, next_, "");
    for (const std::string piece = HeaderBlock({{"x", std::string(16'000, 'x')}}); open_ && bytes > piece.size();
         bytes -= piece.size()) {
      WriteFrame(kContinuation, 0, next_, piece);
    }
  }
  /// Sends of every stream what the windows allow. False if nothing could be sent.
  bool SendAll() {
    bool any = false;
    for (auto& [id, stream] : streams_) {
      const int64_t size = std::min({stream.window, stream.left, connection_window_, int64_t{kMaxFrame}});
      if (size <= 0 || !open_) continue;
      WriteFrame(kData, 0, id, std::string(static_cast<size_t>(size), 'x'));
      stream.window -= size;
      stream.left -= size;
      connection_window_ -= size;
      sent_ += size;
      any = true;
    }
    return any;
  }
  /// Waits for what the server says. False if the connection has ended.
  bool Read() {
    char buffer[65'536];
    const ssize_t got = recv(fd_, buffer, sizeof buffer, 0);
    if (got <= 0) return open_ = false;
    incoming_.append(buffer, static_cast<size_t>(got));
    size_t at = 0;
    while (incoming_.size() - at >= 9 && incoming_.size() - at >= 9 + ReadNumber(incoming_, at, 3)) {
      const uint32_t size = ReadNumber(incoming_, at, 3);
      Take(static_cast<uint8_t>(incoming_[at + 3]), static_cast<uint8_t>(incoming_[at + 4]),
           ReadNumber(incoming_, at + 5, 4), incoming_.substr(at + 9, size));
      at += 9 + size;
    }
    incoming_.erase(0, at);
    return true;
  }

 private:
  enum Type : uint8_t { kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kPing = 6, kWindow = 8, kContinuation = 9 };
  static constexpr uint8_t kEndStream = 1, kAck = 1, kEndHeaders = 4;
  static constexpr size_t kMaxFrame = 16'384;
  struct Stream {
    int64_t window = 0, left = 0;
  };

  static std::string Number(uint32_t value, int bytes) {
    std::string text;
    for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(value >> (8 * i));
    return text;
  }
  static uint32_t ReadNumber(const std::string& text, size_t at, int bytes) {
    uint32_t value = 0;
    for (int i = 0; i < bytes; ++i) value = value << 8 | static_cast<uint8_t>(text[at + static_cast<size_t>(i)]);
    return value;
  }
  static std::string Length(size_t length) {  // RFC 7541, 5.1, with a prefix of 7 bits and no Huffman code
    if (length < 127) return std::string(1, static_cast<char>(length));
    std::string text(1, 127);
    for (length -= 127; length >= 128; length >>= 7) text += static_cast<char>(128 | (length & 127));
    return text + static_cast<char>(length);
  }
  static std::string HeaderBlock(const Headers& headers) {
    std::string block;
    for (const auto& [name, value] : headers) {
      block += std::string(1, '\0') + Length(name.size()) + name + Length(value.size()) + value;
    }
    return block;
  }

  void Write(const std::string& bytes) {
    size_t done = 0;
    while (open_ && done < bytes.size()) {
      const ssize_t put = send(fd_, &bytes[done], bytes.size() - done, MSG_NOSIGNAL);
      if (put <= 0) open_ = false;
      done += static_cast<size_t>(std::max<ssize_t>(put, 0));
    }
  }
  void WriteFrame(Type type, uint8_t flags, uint32_t stream, const std::string& payload) {
    Write(Number(static_cast<uint32_t>(payload.size()), 3) + static_cast<char>(type) + static_cast<char>(flags) +
          Number(stream, 4) + payload);
  }
  void Take(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload) {
    if (type == kPing && flags != kAck) WriteFrame(kPing, kAck, 0, payload);
    if (type == kSettings && flags != kAck) TakeSettings(payload);
    if (type == kWindow) (stream == 0 ? connection_window_ : streams_[stream].window) += ReadNumber(payload, 0, 4);
    if (type == kReset || ((type == kHeaders || type == kData) && (flags & kEndStream) != 0)) {
      refused_ += static_cast<int64_t>(streams_.erase(stream));
    }
  }
  void TakeSettings(const std::string& payload) {
    for (size_t at = 0; at + 6 <= payload.size(); at += 6) {
      if (ReadNumber(payload, at, 2) != 4) continue;  // the window of a stream
      const int64_t window = ReadNumber(payload, at + 2, 4);
      for (auto& entry : streams_) entry.second.window += window - initial_window_;
      initial_window_ = window;
    }
    WriteFrame(kSettings, kAck, 0, "");
  }

  int fd_;
  bool open_ = false;
  std::string incoming_;
  std::map<uint32_t, Stream> streams_;
  int64_t initial_window_ = 65'535, connection_window_ = 65'535, sent_ = 0, refused_ = 0;
  uint32_t next_ = 1;
};

}  // namespace holdfast::testing
