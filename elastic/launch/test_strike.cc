#include "elastic/launch/test_strike.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace holdfast {
namespace {

struct Strike {
  int64_t number = 0;
  int signal = 0;
  std::string file;
};

class StruckCommunicator final : public Communicator {
 public:
  StruckCommunicator(std::unique_ptr<Communicator> inner, Strike strike)
      : inner_(std::move(inner)), strike_(std::move(strike)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  uint64_t generation() const override { return inner_->generation(); }
  bool serves_device_memory() const override { return inner_->serves_device_memory(); }
  absl::Status AllGatherV(ConstBytes input, RankSlices<Bytes> output, Deadline deadline) override {
    return inner_->AllGatherV(input, output, deadline);
  }
  absl::Status AllToAllV(RankSlices<ConstBytes> input, RankSlices<Bytes> output, Deadline deadline) override {
    if (++calls_ == strike_.number) Raise(input);
    return inner_->AllToAllV(input, output, deadline);
  }
  absl::Status Broadcast(int root, Bytes data, Deadline deadline) override {
    return inner_->Broadcast(root, data, deadline);
  }
  absl::Status Barrier(Deadline deadline) override { return inner_->Barrier(deadline); }
  absl::Status Send(int to, uint32_t tag, ConstBytes data, Deadline deadline) override {
    return inner_->Send(to, tag, data, deadline);
  }
  absl::Status Receive(int from, uint32_t tag, Bytes data, Deadline deadline) override {
    return inner_->Receive(from, tag, data, deadline);
  }
  void Abort(const std::string& reason) override { inner_->Abort(reason); }

 private:
  void Raise(const RankSlices<ConstBytes>& input) const {
    const int file = open(strike_.file.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (file < 0) return;  // it has struck
    const std::string text = absl::StrCat(getpid(), " ", inner_->rank(), " ", absl::StrJoin(input.counts, " "), "\n");
    const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    close(file);
    if (written) raise(strike_.signal);
  }

  std::unique_ptr<Communicator> inner_;
  Strike strike_;
  int64_t calls_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> StruckByEnvironment(std::unique_ptr<Communicator> inner, const std::string& worker) {
  const char* text = std::getenv("HOLDFAST_TEST_STRIKE");
  if (text == nullptr || inner == nullptr) return inner;
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  Strike strike;
  if (words.size() != 4 || words[0] != worker || !absl::SimpleAtoi(words[1], &strike.number) ||
      !absl::SimpleAtoi(words[2], &strike.signal)) {
    return inner;
  }
  strike.file = words[3];
  return std::make_unique<StruckCommunicator>(std::move(inner), std::move(strike));
}

}  // namespace holdfast
