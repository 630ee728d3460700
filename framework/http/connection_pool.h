#pragma once
// At most so many connections at once; who needs one more waits until another's request is done.

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/http/http_connection.h"

namespace holdfast {

/// Thread-safe.
class ConnectionPool {
 public:
  explicit ConnectionPool(int max_connections) : left_(max_connections) {}

  /// Performs the request on the connection used last, which is the most likely to be still open.
  absl::StatusOr<HttpAnswer> Perform(const HttpRequest& request);

 private:
  absl::StatusOr<std::unique_ptr<HttpConnection>> Take();
  void GiveBack(std::unique_ptr<HttpConnection> connection);

  std::mutex mutex_;
  std::condition_variable free_;
  int left_;  // that may be taken now, idle ones and those not yet made
  std::vector<std::unique_ptr<HttpConnection>> idle_;
};

}  // namespace holdfast
