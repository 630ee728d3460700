#pragma once
// The thread that moves Gloo's bytes, and its clock.
//
// Gloo's loop wakes every 10 ms when nothing happens, and whoever connects or closes a pair waits for its next turn.
// Gloo also has no wait that ends without closing everything: a wait ends by completion or by an abort flag on its
// buffer. A timer in the same loop solves both: it turns the loop over quickly while somebody connects or closes, and
// wakes all threads that wait, every few milliseconds, to check their stops. When none waits, the timer is off.
//
// Messages are posted on the loop's thread too: while another thread posts, it holds the pair's lock, and Gloo's loop
// spins on that with its core, which on a busy machine the lock's holder needs (measured: 3 ms for a barrier of four
// processes on two cores, against 0.3 ms).
//
// Thread-safe.

#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace holdfast {

class GlooLoop final : private gloo::transport::tcp::Handler {
 public:
  /// Told of every tick, on the loop's thread: must be quick, and must not wait for the loop.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnTick() = 0;
  };

  /// Listens at `host`, an address or a name of this machine. InvalidArgument if it is none.
  static absl::StatusOr<std::shared_ptr<GlooLoop>> Open(const std::string& host);

  ~GlooLoop() override;
  GlooLoop(const GlooLoop&) = delete;
  GlooLoop& operator=(const GlooLoop&) = delete;

  const std::shared_ptr<gloo::transport::Device>& device() const { return device_; }
  /// Numeric.
  const std::string& address() const { return address_; }

  void Listen(Listener* listener);
  /// Calls `listener` as soon as possible, and it alone.
  void CallSoon(Listener* listener);
  /// After it returns the listener is not called again.
  void Unlisten(Listener* listener);

  enum class Pace { kWaiting, kConnecting };

  /// Ticks at least at this pace while it lives.
  class Ticks {
   public:
    Ticks(GlooLoop& loop, Pace pace) : loop_(loop), pace_(pace) { loop_.ChangePace(pace_, 1); }
    ~Ticks() { loop_.ChangePace(pace_, -1); }
    Ticks(const Ticks&) = delete;
    Ticks& operator=(const Ticks&) = delete;

   private:
    GlooLoop& loop_;
    Pace pace_;
  };

 private:
  GlooLoop() = default;
  void handleEvents(int events) override;
  void ChangePace(Pace pace, int change);
  int64_t Period() const;
  void SetTimer(int64_t first_nanoseconds);

  std::string address_;
  int timer_ = -1;
  // Shared with Gloo's contexts and buffers, which must be gone before this object is.
  std::shared_ptr<gloo::transport::Device> device_;

  std::mutex mutex_;  // never held while waiting for the loop
  std::vector<Listener*> listeners_, soon_;
  std::chrono::steady_clock::time_point last_tick_;
  int waiting_ = 0, connecting_ = 0;
};

}  // namespace holdfast
