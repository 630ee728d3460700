#pragma once
// Memory that calls of many threads use in turn: as many pieces as there were calls at the same time.

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace holdfast {

template <typename Workspace>
class WorkspacePool {
 public:
  std::unique_ptr<Workspace> Borrow() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<Workspace>();
    std::unique_ptr<Workspace> workspace = std::move(idle_.back());
    idle_.pop_back();
    return workspace;
  }
  void GiveBack(std::unique_ptr<Workspace> workspace) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(workspace));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> idle_;
};

}  // namespace holdfast
