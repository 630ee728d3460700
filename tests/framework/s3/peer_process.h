#pragma once
// A program that tests speak to, with a folder of its own; it dies with the test. Mostly a Python script, run by the
// peers' interpreter (tools/test_peers.sh).

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

namespace holdfast {

class PeerProcess {
 public:
  /// tests/framework/s3/`script`; "{}" in an argument stands for the folder. nullptr if the peers are not installed.
  static std::unique_ptr<PeerProcess> Start(const std::string& script, const std::vector<std::string>& arguments);
  /// Any program. "{}" as above.
  static std::unique_ptr<PeerProcess> StartProgram(std::vector<std::string> words);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  pid_t pid() const { return pid_; }
  bool IsRunning() const;
  /// Removed at the end. Everything it prints goes to "log" there.
  const std::string& folder() const { return folder_; }
  /// Waits until a file of the folder has `before`, a number, and the end of a line or file; gives the number. Aborts
  /// if the process ends instead.
  int WaitForNumber(const std::string& file, const std::string& before) const;

 private:
  PeerProcess() = default;
  std::string folder_;
  pid_t pid_ = -1;
};

}  // namespace holdfast
