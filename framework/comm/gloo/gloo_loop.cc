#include "framework/comm/gloo/gloo_loop.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "framework/base/status.h"
#include "framework/comm/gloo/gloo_call.h"
#include "framework/net/socket_address.h"

namespace holdfast {
namespace {

constexpr int64_t kWaitingTickNanoseconds = 5'000'000;
constexpr int64_t kConnectingTickNanoseconds = 100'000;

}  // namespace

absl::StatusOr<std::shared_ptr<GlooLoop>> GlooLoop::Open(const std::string& host) {
  auto loop = std::shared_ptr<GlooLoop>(new GlooLoop());
  ASSIGN_OR_RETURN(const SocketAddress address, ResolveHost(host));  // Gloo does not notice when a name has none
  loop->address_ = NumericHost(address);
  loop->timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  if (loop->timer_ < 0) return ErrnoToStatus(errno, "timer for a communicator");
  const absl::Status opened = GlooCall([&] {
    const NoSigPipe quiet;  // Gloo's thread inherits the mask
    auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(loop->address_.c_str()));
    static_cast<gloo::transport::tcp::Device&>(*device).registerDescriptor(loop->timer_, EPOLLIN, loop.get());
    loop->device_ = std::move(device);
  });
  if (opened.ok()) return loop;
  return absl::InvalidArgumentError(absl::StrCat("cannot listen at '", host, "': ", std::string(opened.message())));
}

GlooLoop::~GlooLoop() {
  if (device_ != nullptr) {
    HOLDFAST_CHECK(device_.use_count() == 1);
    ChangePace(Pace::kConnecting, 1);  // the loop ends at its next turn
    device_.reset();
  }
  if (timer_ >= 0) close(timer_);
}

void GlooLoop::Listen(Listener* listener) {
  const std::lock_guard lock(mutex_);
  listeners_.push_back(listener);
}

void GlooLoop::CallSoon(Listener* listener) {
  const std::lock_guard lock(mutex_);
  soon_.push_back(listener);
  SetTimer(1);
}

void GlooLoop::Unlisten(Listener* listener) {
  const std::lock_guard lock(mutex_);
  std::erase(listeners_, listener);
  std::erase(soon_, listener);
}

void GlooLoop::handleEvents(int /*events*/) {
  uint64_t expirations = 0;
  if (read(timer_, &expirations, sizeof(expirations)) < 0) return;
  const std::lock_guard lock(mutex_);
  for (Listener* listener : soon_) listener->OnTick();
  soon_.clear();
  const auto now = std::chrono::steady_clock::now();
  if (now - last_tick_ < std::chrono::nanoseconds(Period() / 2)) return;
  last_tick_ = now;
  for (Listener* listener : listeners_) listener->OnTick();
}

int64_t GlooLoop::Period() const {
  return connecting_ > 0 ? kConnectingTickNanoseconds : waiting_ > 0 ? kWaitingTickNanoseconds : 0;
}

void GlooLoop::SetTimer(int64_t first_nanoseconds) {
  const itimerspec timer = {.it_interval = {0, Period()}, .it_value = {0, first_nanoseconds}};
  HOLDFAST_CHECK(timerfd_settime(timer_, 0, &timer, nullptr) == 0);
}

void GlooLoop::ChangePace(Pace pace, int change) {
  const std::lock_guard lock(mutex_);
  const int64_t before = Period();
  (pace == Pace::kConnecting ? connecting_ : waiting_) += change;
  if (Period() != before) SetTimer(soon_.empty() ? Period() : 1);
}

}  // namespace holdfast
