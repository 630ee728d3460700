#include "elastic/sweep/host_health.h"

#include <algorithm>

namespace holdfast {
namespace {

using std::chrono::seconds;

constexpr seconds kSettled{20};
constexpr int64_t kFailures = 3;
constexpr seconds kFirstOut{10}, kLongestOut{300};

}  // namespace

std::optional<seconds> HostHealth::OnEnd(size_t host, std::chrono::milliseconds lived, TimePoint now) {
  Host& of = hosts_[host];
  of.failures = lived >= kSettled ? 0 : of.failures + 1;
  if (of.failures < kFailures || now < of.out_until) return std::nullopt;
  const int64_t doublings = std::min<int64_t>(of.failures - kFailures, 10);
  const seconds out = std::min(kLongestOut, kFirstOut * (int64_t{1} << doublings));
  of.out_until = now + out;
  return out;
}

}  // namespace holdfast
