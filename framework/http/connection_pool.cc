#include "framework/http/connection_pool.h"

#include <utility>

#include "framework/base/status.h"

namespace holdfast {

absl::StatusOr<HttpAnswer> ConnectionPool::Perform(const HttpRequest& request) {
  ASSIGN_OR_RETURN(std::unique_ptr<HttpConnection> connection, Take());
  absl::StatusOr<HttpAnswer> answer = connection->Perform(request);
  GiveBack(std::move(connection));
  return answer;
}

// Every holder gives its connection back within its request's timeout, so this wait ends.
absl::StatusOr<std::unique_ptr<HttpConnection>> ConnectionPool::Take() {
  {
    std::unique_lock lock(mutex_);
    free_.wait(lock, [this] { return left_ > 0; });
    --left_;
    if (!idle_.empty()) {
      std::unique_ptr<HttpConnection> connection = std::move(idle_.back());
      idle_.pop_back();
      return connection;
    }
  }
  absl::StatusOr<std::unique_ptr<HttpConnection>> connection = HttpConnection::Create();
  if (!connection.ok()) GiveBack(nullptr);
  return connection;
}

void ConnectionPool::GiveBack(std::unique_ptr<HttpConnection> connection) {
  {
    const std::lock_guard lock(mutex_);
    if (connection != nullptr) idle_.push_back(std::move(connection));
    ++left_;
  }
  free_.notify_one();
}

}  // namespace holdfast
