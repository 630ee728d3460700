#pragma once
// Hosts as network namespaces of this machine, all on one switch, whose links can be cut. Needs root and iproute2.

#include <map>
#include <string>
#include <vector>

namespace holdfast::chaos {

class Network {
 public:
  /// Empty if this machine can do it, else why not.
  static std::string WhyNot();

  /// Makes the hosts; everything is gone when it is destroyed.
  explicit Network(const std::vector<std::string>& hosts);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  std::string Address(const std::string& host) const { return addresses_.at(host); }
  /// The calling thread, and what it starts from now on, is on this host until the next call; "" = where it came from.
  void GoTo(const std::string& host);

  /// Pulls the host's plug, and puts it back.
  void CutLink(const std::string& host);
  void MendLink(const std::string& host);
  /// Nothing that `host` sends to `to` arrives; what `to` sends to `host` does.
  void CutOneWay(const std::string& host, const std::string& to);
  void MendOneWay(const std::string& host, const std::string& to);
  /// What the host sends goes at 2 Mbit/s and waits for its turn. False if the kernel cannot do that.
  bool SlowDown(const std::string& host);
  void SpeedUp(const std::string& host);

 private:
  std::string Namespace(const std::string& host) const { return prefix_ + host; }

  std::string prefix_;
  std::map<std::string, std::string> addresses_;
  int home_ = -1;
};

}  // namespace holdfast::chaos
