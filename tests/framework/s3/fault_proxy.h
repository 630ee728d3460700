#pragma once
// A proxy on loopback between a storage and its server, which does to requests and answers what a test tells it.

#include <atomic>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "framework/http/fields.h"

namespace holdfast {

struct ProxiedRequest {
  std::string method, target;  // "PUT", "/bucket/key?partNumber=1"
  Fields headers;              // names in lower case
  std::string body;

  bool Has(const std::string& header) const;
  /// Method and target, for messages.
  std::string Line() const { return method + " " + target; }
};

struct Fault {
  enum class Kind {
    kForward,     // no fault
    kAnswer,      // `answer` instead of asking the server
    kAnswerLate,  // asks the server, throws its answer away, gives `answer`
    kReset,       // takes the request and breaks the connection
    kLoseAnswer,  // asks the server and breaks the connection
    kCutAnswer,   // passes on only `bytes` bytes of the answer
    kFlipBody,    // changes a bit of the request's body on the way
    kHang,        // takes the request and never answers
    kTrickle,     // passes on the head of the answer, then a byte now and then
  };
  Kind kind = Kind::kForward;
  std::string answer = "";  // whole: status line, headers, body
  size_t bytes = 0;
};

/// A whole answer of that status, with a body as S3 makes them.
std::string ErrorAnswer(int status, const std::string& code, const std::string& headers = "");

class FaultProxy {
 public:
  explicit FaultProxy(int server_port);
  ~FaultProxy();
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  /// Asked for every request from now on, by one thread at a time.
  void SetRule(std::function<Fault(const ProxiedRequest&)> rule);
  /// That fault for the first `times` requests that match.
  void Inject(const Fault& fault, int times, std::function<bool(const ProxiedRequest&)> matches);
  void Inject(const Fault& fault, int times = 1) {
    Inject(fault, times, [](const ProxiedRequest&) { return true; });
  }
  /// Requests so far: "PUT /bucket/key".
  std::vector<std::string> log() const;
  size_t Count(const std::function<bool(const std::string&)>& matches) const;

 private:
  void Serve();
  void Talk(int client);
  bool Handle(int client, const ProxiedRequest& request, const Fault& fault);
  std::string AskServer(const ProxiedRequest& request) const;
  Fault Ask(const ProxiedRequest& request);

  const int server_port_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;
  std::function<Fault(const ProxiedRequest&)> rule_;
  std::vector<std::string> log_;
  std::set<int> clients_;
  std::vector<std::thread> talks_;
  std::thread thread_;
};

}  // namespace holdfast
