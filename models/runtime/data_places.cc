#include "models/runtime/data_places.h"

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "framework/base/format_bytes.h"
#include "framework/base/log.h"
#include "framework/metrics/progress.h"

namespace holdfast {
namespace {

constexpr int64_t kWorthANotice = int64_t{256} << 20;  // a second or so
constexpr std::chrono::seconds kRequestTimeout{10};    // what is asked for is small
constexpr int kReadersAtOnce = 64;                     // of one directory in S3, by all threads of a process

class Notice {
 public:
  void Update(const std::string& path, int64_t done, int64_t total) {
    if (total < kWorthANotice) return;
    const std::lock_guard lock(mutex_);
    const auto [entry, is_new] = tenths_.emplace(path, 0);
    if (is_new) {
      LogInfo(path, " has no index: reading all ", FormatBytes(static_cast<double>(total)),
              " of it (`holdfast data index ", path, "` makes one)");
    }
    const auto tenth = static_cast<int>(10 * done / total);
    if (tenth == entry->second) return;
    entry->second = tenth;
    LogInfo(path, ": ", 10 * tenth, "% read");
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> tenths_;
};

}  // namespace

PlaceSettings DataPlaces(const DataConfig& config, std::stop_token stop) {
  return {.s3 = config.s3, .request_timeout = kRequestTimeout, .connections = kReadersAtOnce, .stop = std::move(stop)};
}

ReadProgress ScanNotice() {
  return [notice = std::make_shared<Notice>()](const std::string& path, int64_t done, int64_t total) {
    notice->Update(path, done, total);
  };
}

}  // namespace holdfast
