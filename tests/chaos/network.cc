#include "tests/chaos/network.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

namespace holdfast::chaos {
namespace {

constexpr const char* kSwitch = "switch";

bool Ip(const std::string& arguments) { return std::system(("ip " + arguments + " >/dev/null 2>&1").c_str()) == 0; }

void MustIp(const std::string& arguments) {
  if (!Ip(arguments)) throw std::runtime_error("ip " + arguments + " failed");
}

void Enter(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool entered = fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
  if (fd >= 0) close(fd);
  if (!entered) throw std::runtime_error("cannot enter " + path);
}

}  // namespace

std::string Network::WhyNot() {
  if (geteuid() != 0) return "network namespaces need root";
  if (std::system("command -v ip >/dev/null 2>&1") != 0) return "iproute2 is not installed";
  const std::string name = "hf" + std::to_string(getpid()) + "try";
  const bool possible = Ip("netns add " + name) && Ip("-n " + name + " link add br0 type bridge") &&
                        Ip("-n " + name + " link add v0 type veth peer name v1");
  Ip("netns del " + name);
  return possible ? "" : "this kernel or container does not allow network namespaces with a bridge";
}

Network::Network(const std::vector<std::string>& hosts)
    : prefix_("hf" + std::to_string(getpid())), home_(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
  const std::string hub = Namespace(kSwitch);
  MustIp("netns add " + hub);
  MustIp("-n " + hub + " link add br0 type bridge forward_delay 0");
  MustIp("-n " + hub + " link set br0 up");
  for (const std::string& host : hosts) {
    const std::string name = Namespace(host);
    const std::string address = "10.77.0." + std::to_string(addresses_.size() + 1);
    addresses_[host] = address;
    MustIp("netns add " + name);
    MustIp("-n " + hub + " link add to_" + host + " type veth peer name eth0 netns " + name);
    MustIp("-n " + hub + " link set to_" + host + " master br0 up");
    MustIp("-n " + name + " addr add " + address + "/24 dev eth0");
    MustIp("-n " + name + " link set eth0 up");
    MustIp("-n " + name + " link set lo up");
  }
}

Network::~Network() {
  setns(home_, CLONE_NEWNET);
  close(home_);
  for (const auto& [host, address] : addresses_) Ip("netns del " + Namespace(host));
  Ip("netns del " + Namespace(kSwitch));
}

void Network::GoTo(const std::string& host) {
  if (!host.empty()) return Enter("/run/netns/" + Namespace(host));
  if (setns(home_, CLONE_NEWNET) != 0) throw std::runtime_error("cannot go home");
}

// At the switch: a host whose own end is taken down notices, one whose cable is cut elsewhere does not.
void Network::CutLink(const std::string& host) {
  MustIp("-n " + Namespace(kSwitch) + " link set to_" + host + " nomaster");
}

void Network::MendLink(const std::string& host) {
  MustIp("-n " + Namespace(kSwitch) + " link set to_" + host + " master br0");
}

void Network::CutOneWay(const std::string& host, const std::string& to) {
  MustIp("-n " + Namespace(host) + " route add blackhole " + Address(to) + "/32");
}

bool Network::SlowDown(const std::string& host) {
  const std::string command =
      "tc -n " + Namespace(host) + " qdisc add dev eth0 root tbf rate 2mbit burst 16kb latency 200ms >/dev/null 2>&1";
  return std::system(command.c_str()) == 0;
}

void Network::SpeedUp(const std::string& host) {
  const std::string command = "tc -n " + Namespace(host) + " qdisc del dev eth0 root";
  if (std::system(command.c_str()) != 0) throw std::runtime_error(command + " failed");
}

void Network::MendOneWay(const std::string& host, const std::string& to) {
  MustIp("-n " + Namespace(host) + " route del blackhole " + Address(to) + "/32");
}

}  // namespace holdfast::chaos
