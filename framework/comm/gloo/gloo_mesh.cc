#include "framework/comm/gloo/gloo_mesh.h"

#include <gloo/common/error.h>
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/pair.h>

#include <future>
#include <utility>

#include "framework/base/status.h"
#include "framework/comm/gloo/gloo_call.h"

namespace holdfast {

namespace {

#ifdef HOLDFAST_GLOO_STAND_IN
static_assert(sizeof(gloo::transport::tcp::Pair) == 896);  // as libgloo allocates one
#endif

/// One of Gloo's pairs over a connection that stands. Gloo's own way to connect takes a listening socket, and so an
/// address to tell, for every pair.
class ConnectedPair final : public gloo::transport::tcp::Pair {
 public:
  /// On the loop's thread, which no event can come between. Takes the socket.
  ConnectedPair(gloo::transport::tcp::Context* context, gloo::transport::tcp::Device* device, int rank,
                FileDescriptor socket)
      : Pair(context, device, rank, gloo::kNoTimeout) {
    const std::lock_guard lock(m_);
    if (fd_ >= 0) {  // where it has begun to listen
      device_->unregisterDescriptor(fd_, this);
      ::close(fd_);
    }
    fd_ = socket.Release();
    handleConnected();
  }
};

/// Runs something on the loop's thread, once.
class OnLoop final : private GlooLoop::Listener {
 public:
  static absl::Status Run(GlooLoop& loop, absl::FunctionRef<void()> call) {
    OnLoop once(loop, call);
    loop.CallSoon(&once);
    once.done_.get_future().wait();
    return once.status_;
  }

 private:
  OnLoop(GlooLoop& loop, absl::FunctionRef<void()> call) : loop_(loop), call_(call) {}
  ~OnLoop() override { loop_.Unlisten(this); }

  void OnTick() override {
    status_ = GlooCall(call_);
    done_.set_value();
  }

  GlooLoop& loop_;
  absl::FunctionRef<void()> call_;
  absl::Status status_;
  std::promise<void> done_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GlooMesh>> GlooMesh::Make(std::shared_ptr<GlooLoop> loop, int rank,
                                                         std::vector<FileDescriptor> sockets) {
  const auto size = static_cast<int>(sockets.size());
  auto mesh = std::unique_ptr<GlooMesh>(new GlooMesh(std::move(loop), rank, size));
  RETURN_IF_ERROR(OnLoop::Run(*mesh->loop_, [&] {
    namespace tcp = gloo::transport::tcp;
    mesh->context_ = mesh->loop_->device()->createContext(rank, size);
    mesh->context_->setTimeout(gloo::kNoTimeout);
    auto* context = dynamic_cast<tcp::Context*>(mesh->context_.get());
    auto* device = dynamic_cast<tcp::Device*>(mesh->loop_->device().get());
    for (int r = 0; r < size; ++r) {
      FileDescriptor& socket = sockets[static_cast<size_t>(r)];
      if (r != rank)
        mesh->context_->getPair(r) = std::make_unique<ConnectedPair>(context, device, r, std::move(socket));
    }
  }));
  return mesh;
}

GlooMesh::~GlooMesh() {
  if (context_ != nullptr) Close();
}

bool GlooMesh::WhileOpen(absl::FunctionRef<void()> post) {
  const std::lock_guard lock(mutex_);
  if (open_) post();
  return open_;
}

void GlooMesh::Close() {
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(open_, false)) return;
  }
  const GlooLoop::Ticks ticks(*loop_, GlooLoop::Pace::kConnecting);
  // The destructor of a pair, unlike close(), lets the kernel deliver what was written.
  for (int r = 0; r < size_; ++r) context_->getPair(r).reset();
}

}  // namespace holdfast
