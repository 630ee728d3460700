// Proves what becomes of a lease when its store fails: a leader stops counting on it before another one may take it,
// goes on when it has it again, and an answer that was lost gives it to nobody or to whoever wrote.

#include "elastic/lease/store_lease.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "elastic/lease/etcd_store.h"
#include "elastic/lease/open_lease.h"
#include "elastic/lease/port_probe.h"
#include "elastic/lease/s3_lease_store.h"
#include "framework/net/socket_address.h"
#include "tests/elastic/lease/etcd_server.h"
#include "tests/elastic/lease/memory_store.h"
#include "tests/framework/base/temporary_directory.h"
#include "tests/framework/net/test_ports.h"
#include "tests/framework/s3/fault_proxy.h"
#include "tests/framework/s3/moto_server.h"

namespace holdfast {
namespace {

using std::chrono::milliseconds;

class StoreLeaseTest : public testing::Test {
 protected:
  std::unique_ptr<StoreLease> Make(milliseconds lease = std::chrono::minutes(10)) {
    return std::make_unique<StoreLease>(std::make_unique<MemoryStore>(place_), directory_, lease);
  }
  static LeaseSight LookAt(StoreLease& lease) { return *lease.Look(); }

  const std::shared_ptr<MemoryPlace> place_ = std::make_shared<MemoryPlace>();
  const TemporaryDirectory root_;
  const RunDirectory directory_{root_ / "run"};
};

TEST_F(StoreLeaseTest, WithoutItsStoreALeaseEndsAndIsHadAgain) {
  const auto lease = Make(milliseconds(200));
  ASSERT_TRUE(lease->Take(LookAt(*lease), true).ok());
  place_->is_gone = true;
  EXPECT_TRUE(absl::IsUnavailable(lease->Say({.beat = 2})));
  while (lease->Check().ok()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(absl::IsUnavailable(lease->Check())) << lease->Check();
  place_->is_gone = false;
  while (!lease->Check().ok()) ASSERT_TRUE(lease->Say({.beat = 3}).ok());
}

TEST_F(StoreLeaseTest, WhoComesBackWhenAnotherOneHasHadItLeadsNoMore) {
  const auto lease = Make(), next = Make();
  ASSERT_TRUE(lease->Take(LookAt(*lease), true).ok());
  ASSERT_TRUE(next->Take(LookAt(*next), false).ok());
  ASSERT_TRUE(next->Say({.has_left = true}).ok());
  lease->Say({.beat = 2}).IgnoreError();  // is refused
  EXPECT_TRUE(absl::IsFailedPrecondition(lease->Say({.beat = 3})));
  EXPECT_TRUE(absl::IsFailedPrecondition(lease->Check())) << lease->Check();
}

TEST_F(StoreLeaseTest, ARenewalWhoseAnswerIsLostIsMadeAgain) {
  const auto lease = Make();
  ASSERT_TRUE(lease->Take(LookAt(*lease), true).ok());
  place_->answers_to_lose = 1;
  EXPECT_TRUE(absl::IsUnavailable(lease->Say({.beat = 2})));
  EXPECT_TRUE(lease->Say({.beat = 3}).ok());
  EXPECT_TRUE(lease->Check().ok()) << lease->Check();
}

TEST_F(StoreLeaseTest, ATakeWhoseAnswerIsLostIsOurs) {
  const auto silent = Make(), lease = Make();
  ASSERT_TRUE(silent->Take(LookAt(*silent), true).ok());
  place_->answers_to_lose = 1;
  EXPECT_TRUE(absl::IsUnavailable(lease->Take(LookAt(*lease), false)));
  const LeaseSight seen = LookAt(*lease);
  EXPECT_EQ(seen.text.owner, lease->owner());
  EXPECT_TRUE(lease->Take(seen, false).ok());
  EXPECT_TRUE(lease->Check().ok()) << lease->Check();
  EXPECT_TRUE(absl::IsFailedPrecondition(silent->Check())) << silent->Check();
}

TEST_F(StoreLeaseTest, WhatTheStoreHasLostIsWrittenAnew) {
  const auto lease = Make();
  ASSERT_TRUE(lease->Take(LookAt(*lease), true).ok());
  place_->entry = {};
  lease->Say({.beat = 2}).IgnoreError();
  EXPECT_TRUE(lease->Say({.beat = 3}).ok());
  EXPECT_EQ(LookAt(*lease).text.owner, lease->owner());
  EXPECT_TRUE(lease->Check().ok()) << lease->Check();
}

// One took the lease and died before it had the directory, and another one did the same.
TEST_F(StoreLeaseTest, ADirectoryIsKnownThoughTheLastOwnersNeverHadIt) {
  const auto first = Make();
  ASSERT_TRUE(first->Take(LookAt(*first), true).ok());
  const std::string lock = RunLock::Read(directory_)->owner;
  for (int i = 0; i < 2; ++i) {
    const LeaseSight dead{.text = {absl::StrCat("process ", i, " on x\nmark\n"), "beat 1\n"}, .lock_before = lock};
    place_->entry = {LeaseText(dead), absl::StrCat("dead", i)};
  }
  const auto next = Make();
  EXPECT_TRUE(next->Take(LookAt(*next), false).ok());
  EXPECT_TRUE(next->Check().ok()) << next->Check();
}

// The leader died together with what the store knew of it.
TEST_F(StoreLeaseTest, WhoHasSeenALeaseKnowsItsDirectoryWhenTheStoreHasLostIt) {
  auto dead = Make();
  ASSERT_TRUE(dead->Take(LookAt(*dead), true).ok());
  const auto next = Make(), stranger = std::make_unique<StoreLease>(std::make_unique<MemoryStore>(place_),
                                                                    RunDirectory(root_ / "elsewhere"), milliseconds(1));
  LookAt(*next);
  LookAt(*stranger);
  dead.reset();
  place_->entry = {};
  EXPECT_TRUE(absl::IsFailedPrecondition(stranger->Take({}, false)));
  EXPECT_TRUE(next->Take({}, false).ok());
}

TEST_F(StoreLeaseTest, WhatIsNoLeaseIsLeftAlone) {
  for (const char* text : {"", "{}", "process 1 on x\nmark\nwho knows\n", "process 1 on x\nmark\nbeat 1"}) {
    place_->entry = {text, "1"};
    EXPECT_TRUE(absl::IsFailedPrecondition(Make()->Look().status())) << text;
  }
}

TEST_F(StoreLeaseTest, TheLeaderIsFoundWhereItSaysThatItListens) {
  MemoryStore store(place_);
  EXPECT_TRUE(absl::IsNotFound(FindLeader(store).status()));
  const auto lease = Make();
  ASSERT_TRUE(lease->Take(LookAt(*lease), true).ok());
  EXPECT_TRUE(absl::IsNotFound(FindLeader(store).status()));
  lease->ListensAt("10.0.0.1:29400");
  ASSERT_TRUE(lease->Say({.beat = 2}).ok());
  EXPECT_EQ(*FindLeader(store), "10.0.0.1:29400");
  ASSERT_TRUE(lease->Say({.exit_code = 0, .reason = "done"}).ok());
  EXPECT_TRUE(absl::IsNotFound(FindLeader(store).status()));
}

TEST(OpenLease, SaysWhatItExpects) {
  for (const char* where : {"", "etcd://", "etcd://db", "etcd://db/", "etcd:///run", "etcd://,/run", "s3://", "s3://b",
                            "s3://b/", "s3:///run", "zookeeper://db/run", "/runs/a"}) {
    const auto store = OpenLeaseStore(where, milliseconds(100), false);
    EXPECT_TRUE(absl::IsInvalidArgument(store.status())) << where << ": " << store.status();
  }
  EXPECT_EQ((*OpenLeaseStore("etcd://db1,[fe80::1]:7/run", milliseconds(100), false))->Describe(),
            "etcd://db1:2379/run/leader");
  EXPECT_EQ((*OpenLeaseStore("etcds://db1/run", milliseconds(100), false))->Describe(), "etcds://db1:2379/run/leader");
}

TEST(OpenLease, APasswordIsNotSentInPlainText) {
  setenv("ETCDCTL_USER", "root:secret", 1);
  EXPECT_TRUE(absl::IsInvalidArgument(OpenLeaseStore("etcd://192.0.2.1/run", milliseconds(100), false).status()));
  EXPECT_TRUE(OpenLeaseStore("etcds://192.0.2.1/run", milliseconds(100), false).ok());
  EXPECT_TRUE(OpenLeaseStore("etcd://127.0.0.1/run", milliseconds(100), false).ok());
  unsetenv("ETCDCTL_USER");
}

TEST(PortProbe, SaysWhetherAProcessListens) {
  const auto listener = Listen(*ResolveHost("127.0.0.1"));
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_FALSE(IsRefused(HostAndPort(listener->address), std::chrono::minutes(1)));
  EXPECT_TRUE(IsRefused(RefusingPort().address(), std::chrono::minutes(1)));
  EXPECT_FALSE(IsRefused("nowhere", std::chrono::minutes(1)));
}

class EtcdStoreTest : public testing::Test {
 protected:
  static EtcdStore At(const std::vector<std::string>& endpoints, milliseconds timeout = std::chrono::minutes(1)) {
    return EtcdStore({.endpoints = endpoints, .key = "/run", .timeout = timeout});
  }
};

TEST_F(EtcdStoreTest, OneThatIsNotThereIsUnavailable) {
  EtcdStore store = At({"http://127.0.0.1:1"});
  EXPECT_TRUE(absl::IsUnavailable(store.Read().status())) << store.Read().status();
  EXPECT_NE(store.Read().status().message().find("etcd://127.0.0.1:1/run"), std::string::npos);
}

TEST_F(EtcdStoreTest, WhileOneMemberIsAwayAnotherIsAsked) {
  HOLDFAST_ETCD_OR_SKIP(etcd);
  EtcdStore store = At({"http://127.0.0.1:1", "http://" + etcd->address()});
  EXPECT_TRUE(store.Replace("", "a").ok());
  EXPECT_EQ(store.Read()->text, "a");
}

TEST_F(EtcdStoreTest, OverTlsBothSidesShowCertificates) {
  const std::unique_ptr<EtcdServer> etcd = EtcdServer::Start(/*tls=*/true);
  if (etcd == nullptr) GTEST_SKIP() << "etcd is not installed: run tools/setup.sh --with-test";
  const auto open = [&](const char* scheme, const std::vector<std::pair<const char*, const char*>>& certificates) {
    for (const auto& [variable, file] : certificates) setenv(variable, EtcdServer::Certificate(file).c_str(), 1);
    auto store = *OpenLeaseStore(absl::StrCat(scheme, etcd->address(), "/run"), std::chrono::minutes(1), false);
    for (const auto& [variable, file] : certificates) unsetenv(variable);
    return store;
  };
  const auto store = open(
      "etcds://", {{"ETCDCTL_CACERT", "authority.pem"}, {"ETCDCTL_CERT", "node.pem"}, {"ETCDCTL_KEY", "node.key"}});
  ASSERT_TRUE(store->Replace("", "a").ok());
  EXPECT_EQ(store->Read()->text, "a");
  const auto without = open("etcds://", {{"ETCDCTL_CACERT", "authority.pem"}});
  EXPECT_FALSE(without->Read().ok());
  const auto of_stranger =
      open("etcds://",
           {{"ETCDCTL_CACERT", "authority.pem"}, {"ETCDCTL_CERT", "stranger.pem"}, {"ETCDCTL_KEY", "stranger.key"}});
  EXPECT_FALSE(of_stranger->Read().ok());
  const auto trusts_another =
      open("etcds://", {{"ETCDCTL_CACERT", "stranger.pem"}, {"ETCDCTL_CERT", "node.pem"}, {"ETCDCTL_KEY", "node.key"}});
  EXPECT_TRUE(absl::IsInvalidArgument(trusts_another->Read().status())) << trusts_another->Read().status();
  const auto no_file = open("etcds://", {{"ETCDCTL_CACERT", "authority.pem"}, {"ETCDCTL_CERT", "no.pem"}});
  EXPECT_TRUE(absl::IsInvalidArgument(no_file->Read().status())) << no_file->Read().status();
  EXPECT_FALSE(open("etcd://", {})->Read().ok());
}

TEST_F(EtcdStoreTest, WhatIsWrittenOutlivesTheServer) {
  HOLDFAST_ETCD_OR_SKIP(etcd);
  EtcdStore store = At({"http://" + etcd->address()});
  const auto version = store.Replace("", std::string("a\0\n\xff", 4));
  ASSERT_TRUE(version.ok()) << version.status();
  etcd->Kill();
  EXPECT_TRUE(absl::IsUnavailable(store.Read().status()));
  EXPECT_TRUE(absl::IsUnavailable(store.Replace(*version, "b").status()));
  etcd->StartAgain();
  EXPECT_EQ(store.Read()->text, std::string("a\0\n\xff", 4));
  EXPECT_EQ(store.Read()->version, *version);
  EXPECT_TRUE(absl::IsAborted(store.Replace("", "b").status()));
  EXPECT_TRUE(store.Replace(*version, "b").ok());
}

TEST_F(EtcdStoreTest, UsersSignInAndSignInAgain) {
  HOLDFAST_ETCD_OR_SKIP(etcd);
  etcd->Call("/v3/auth/user/add", R"({"name":"root","password":"secret"})");
  etcd->Call("/v3/auth/role/add", R"({"name":"root"})");
  etcd->Call("/v3/auth/user/grant", R"({"user":"root","role":"root"})");
  ASSERT_NE(etcd->Call("/v3/auth/enable", "{}").find("header"), std::string::npos);
  EXPECT_TRUE(absl::IsPermissionDenied(At({"http://" + etcd->address()}).Read().status()));
  EtcdOptions options{.endpoints = {"http://" + etcd->address()},
                      .key = "/run",
                      .user = "root",
                      .password = "wrong",
                      .timeout = std::chrono::minutes(1)};
  EXPECT_TRUE(absl::IsPermissionDenied(EtcdStore(options).Read().status())) << EtcdStore(options).Read().status();
  options.password = "secret";
  EtcdStore store(options);
  EXPECT_TRUE(store.Replace("", "a").ok());
  const std::string token =
      nlohmann::json::parse(etcd->Call("/v3/auth/authenticate", R"({"name":"root","password":"secret"})"))["token"];
  // Ends all tokens of the user. (A restart does not: the log in which they stand is read again.)
  const std::string changed = etcd->Call("/v3/auth/user/changepw", R"({"name":"root","password":"secret"})", token);
  EXPECT_NE(changed.find("header"), std::string::npos) << changed;
  const auto read = store.Read();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->text, "a");
}

TEST_F(EtcdStoreTest, AnswersOfSomethingElseAreNoLease) {
  HOLDFAST_ETCD_OR_SKIP(etcd);
  FaultProxy proxy(std::stoi(etcd->address().substr(etcd->address().find(':') + 1)));
  EtcdStore store = At({proxy.url()});
  const auto answer = [&](const std::string& head, const std::string& body) {
    proxy.Inject({.kind = Fault::Kind::kAnswer,
                  .answer = absl::StrCat("HTTP/1.1 ", head, "\r\nContent-Length: ", body.size(), "\r\n\r\n", body)});
  };
  for (const char* body :
       {"", "<html>", "[]", R"({"kvs":[{}]})", R"({"kvs":[{"value":"%","mod_revision":"3"}]})", R"({"kvs":{"a":1}})"}) {
    answer("200 OK", body);
    EXPECT_TRUE(absl::IsUnavailable(store.Read().status())) << body << ": " << store.Read().status();
  }
  answer("200 OK", "[]");
  EXPECT_TRUE(absl::IsUnavailable(store.Replace("", "a").status()));
  answer("200 OK", R"({"header":{"revision":"3"},"succeeded":"yes"})");
  EXPECT_TRUE(absl::IsAborted(store.Replace("", "a").status()));
  answer("503 Service Unavailable", R"({"error":"etcdserver: no leader"})");
  EXPECT_TRUE(absl::IsUnavailable(store.Read().status()));
  answer("404 Not Found", "page not found");
  EXPECT_TRUE(absl::IsInvalidArgument(store.Read().status()));
}

class S3LeaseStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    HOLDFAST_MOTO_OR_SKIP(moto);
    proxy_ = std::make_unique<FaultProxy>(moto->port());
    options_ = moto->NewBucket();
    options_.endpoint = proxy_->url();
    options_.prefix = "run/leader";
    options_.retry_for = milliseconds(0);
  }
  std::unique_ptr<FaultProxy> proxy_;
  S3Options options_;
};

TEST_F(S3LeaseStoreTest, AServerThatIgnoresIfMatchIsRefused) {
  EXPECT_TRUE(S3LeaseStore::Open(options_, true).ok());
  const std::vector<std::string> answers{"HTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-Length: 0\r\n\r\n",
                                         ErrorAnswer(501, "NotImplemented")};
  for (const std::string& answer : answers) {
    proxy_->Inject({.kind = Fault::Kind::kAnswer, .answer = answer});
    const auto store = S3LeaseStore::Open(options_, true);
    EXPECT_TRUE(absl::IsInvalidArgument(store.status())) << store.status();
  }
}

TEST_F(S3LeaseStoreTest, AnOutageIsUnavailable) {
  const auto store = S3LeaseStore::Open(options_, true);
  ASSERT_TRUE(store.ok()) << store.status();
  proxy_->Inject({.kind = Fault::Kind::kReset}, 2);
  EXPECT_TRUE(absl::IsUnavailable((*store)->Read().status()));
  EXPECT_TRUE(absl::IsUnavailable((*store)->Replace("", "a").status()));
  proxy_->Inject({.kind = Fault::Kind::kLoseAnswer});
  EXPECT_TRUE(absl::IsUnavailable((*store)->Replace("", "a").status()));
  EXPECT_EQ((*store)->Read()->text, "a") << "it was written";
  EXPECT_TRUE(absl::IsAborted((*store)->Replace("", "b").status()));
  EXPECT_TRUE(absl::IsAborted((*store)->Replace("\"0123\"", "b").status()));
}

}  // namespace
}  // namespace holdfast
