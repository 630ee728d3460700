#include "tests/framework/s3/fault_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

bool SendAll(int fd, const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

// Appends what comes; false at the end of the connection.
bool Receive(int fd, std::string* text) {
  char buffer[1 << 16];
  const ssize_t got = recv(fd, buffer, sizeof buffer, 0);
  if (got <= 0) return false;
  text->append(buffer, static_cast<size_t>(got));
  return true;
}

std::optional<ProxiedRequest> ReadRequest(int fd) {
  std::string text;
  size_t head;
  while ((head = text.find("\r\n\r\n")) == std::string::npos) {
    if (!Receive(fd, &text)) return std::nullopt;
  }
  ProxiedRequest request;
  const size_t space = text.find(' ');
  request.method = text.substr(0, space);
  request.target = text.substr(space + 1, text.find(' ', space + 1) - space - 1);
  size_t body_bytes = 0;
  for (size_t at = text.find("\r\n") + 2; at < head + 2;) {
    const size_t end = text.find("\r\n", at), colon = text.find(':', at);
    const std::string name = absl::AsciiStrToLower(text.substr(at, colon - at));
    const std::string value(absl::StripAsciiWhitespace(text.substr(colon + 1, end - colon - 1)));
    if (name == "content-length") body_bytes = std::stoul(value);
    request.headers.emplace_back(name, value);
    at = end + 2;
  }
  request.body = text.substr(head + 4);
  while (request.body.size() < body_bytes) {
    if (!Receive(fd, &request.body)) return std::nullopt;
  }
  return request;
}

void BreakConnection(int fd) {
  const linger now{1, 0};  // a reset, not an end
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

}  // namespace

bool ProxiedRequest::Has(const std::string& header) const {
  return std::any_of(headers.begin(), headers.end(), [&](const auto& field) { return field.first == header; });
}

std::string ErrorAnswer(int status, const std::string& code, const std::string& headers) {
  const std::string body =
      "<?xml version=\"1.0\"?>\n<Error><Code>" + code + "</Code><Message>as told</Message></Error>";
  return absl::StrCat("HTTP/1.1 ", status, " x\r\n", headers, "Content-Length: ", body.size(), "\r\n\r\n", body);
}

FaultProxy::FaultProxy(int server_port) : server_port_(server_port) {
  SetRule([](const ProxiedRequest&) { return Fault{}; });
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t length = sizeof address;
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener_, 64) != 0) abort();
  getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Serve(); });
}

FaultProxy::~FaultProxy() {
  stop_ = true;
  shutdown(listener_, SHUT_RDWR);
  thread_.join();
  {
    const std::lock_guard lock(mutex_);
    for (const int client : clients_) shutdown(client, SHUT_RDWR);
  }
  for (std::thread& talk : talks_) talk.join();
  close(listener_);
}

void FaultProxy::SetRule(std::function<Fault(const ProxiedRequest&)> rule) {
  const std::lock_guard lock(mutex_);
  rule_ = std::move(rule);
}

void FaultProxy::Inject(const Fault& fault, int times, std::function<bool(const ProxiedRequest&)> matches) {
  SetRule([=, left = std::make_shared<int>(times)](const ProxiedRequest& request) {
    return *left > 0 && matches(request) ? ((void)--*left, fault) : Fault{};
  });
}

std::vector<std::string> FaultProxy::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

size_t FaultProxy::Count(const std::function<bool(const std::string&)>& matches) const {
  const std::vector<std::string> lines = log();
  return static_cast<size_t>(std::count_if(lines.begin(), lines.end(), matches));
}

void FaultProxy::Serve() {
  for (int client; (client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
    const std::lock_guard lock(mutex_);
    clients_.insert(client);
    talks_.emplace_back([this, client] { Talk(client); });
  }
}

void FaultProxy::Talk(int client) {
  for (std::optional<ProxiedRequest> request; (request = ReadRequest(client));) {
    if (!Handle(client, *request, Ask(*request))) break;
  }
  const std::lock_guard lock(mutex_);
  clients_.erase(client);
  close(client);
}

Fault FaultProxy::Ask(const ProxiedRequest& request) {
  const std::lock_guard lock(mutex_);
  log_.push_back(request.Line());
  return rule_(request);
}

std::string FaultProxy::AskServer(const ProxiedRequest& request) const {
  std::string text = request.Line() + " HTTP/1.1\r\nConnection: close\r\n";
  for (const auto& [name, value] : request.headers) text += name + ": " + value + "\r\n";
  text += "\r\n" + request.body;
  const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(server_port_);
  std::string answer;
  if (connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 && SendAll(server, text)) {
    while (Receive(server, &answer)) {
    }
  }
  close(server);
  return answer;
}

// Whether the connection can go on.
bool FaultProxy::Handle(int client, const ProxiedRequest& request, const Fault& fault) {
  using Kind = Fault::Kind;
  const std::string instead =
      request.method == "HEAD" ? fault.answer.substr(0, fault.answer.find("\r\n\r\n") + 4) : fault.answer;
  if (fault.kind == Kind::kAnswer) return SendAll(client, instead);
  if (fault.kind == Kind::kReset) BreakConnection(client);
  if (fault.kind == Kind::kReset) return false;
  if (fault.kind == Kind::kHang) {
    std::string rest;
    while (Receive(client, &rest)) {
    }
    return false;
  }
  ProxiedRequest forwarded = request;
  if (fault.kind == Kind::kFlipBody && !forwarded.body.empty()) forwarded.body[forwarded.body.size() / 2] ^= 4;
  std::string answer = AskServer(forwarded);
  if (fault.kind == Kind::kAnswerLate) return SendAll(client, instead);
  if (fault.kind == Kind::kLoseAnswer) BreakConnection(client);
  if (fault.kind == Kind::kLoseAnswer) return false;
  if (fault.kind == Kind::kCutAnswer) answer.resize(std::min(answer.size(), fault.bytes));
  if (fault.kind != Kind::kTrickle) {
    SendAll(client, answer);
    return false;  // the server has said "Connection: close"
  }
  const size_t head = answer.find("\r\n\r\n") + 4;
  SendAll(client, answer.substr(0, head));
  for (size_t i = head; i < answer.size() && !stop_; ++i) {
    if (!SendAll(client, answer.substr(i, 1))) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

}  // namespace holdfast
