// Whatever a server or the network does to one request after the other ends in success after retries or in one clear
// error. Faults come from a proxy; what has become of the objects is seen past it.
#include <gmock/gmock.h>

#include <random>
#include <stop_token>
#include <thread>

#include "tests/framework/s3/s3_bed.h"

namespace holdfast {
namespace {

using Kind = Fault::Kind;
using ::testing::HasSubstr;
using ::testing::Not;

class S3Faults : public S3Bed {
 protected:
  // Every operation once, each with `fault` first.
  void TryEverything(const Fault& fault, int times = 1) {
    static int round = 0;
    const std::string name = "a-" + std::to_string(++round), contents = Pattern(1000);
    Fail(fault, times);
    absl::Status status = storage_->Create(name, contents);
    ASSERT_TRUE(status.ok()) << status;
    ExpectObject(name, contents);
    Fail(fault, times);
    EXPECT_EQ(*storage_->Size(name), contents.size());
    Fail(fault, times);
    std::string out(500, '\0');
    status = Read(name, &out, 100);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(out == contents.substr(100, 500));
    Fail(fault, times);
    EXPECT_EQ(*storage_->List(name), (std::vector<StoredObject>{{name, contents.size()}}));
    Fail(fault, times);
    status = storage_->Delete(name);
    ASSERT_TRUE(status.ok()) << status;
    ExpectNothing(name);
    Fail(fault, times);
    status = storage_->Sweep();
    ASSERT_TRUE(status.ok()) << status;
  }
};

TEST_F(S3Faults, ErrorsThatMayPass) {
  TryEverything({Kind::kAnswer, ErrorAnswer(503, "SlowDown")}, 3);
  TryEverything({Kind::kAnswer, ErrorAnswer(500, "InternalError")});
  Fail({Kind::kAnswer, ErrorAnswer(400, "RequestTimeout")}, 3);  // the server had to wait for our bytes
  EXPECT_TRUE(storage_->Create("slow", "x").ok());
  TryEverything({Kind::kAnswer, "HTTP/1.1 502 x\r\nContent-Length: 26\r\n\r\n<html>Bad Gateway & co.</p>"});
}

TEST_F(S3Faults, BrokenConnections) { TryEverything({.kind = Kind::kReset}, 3); }

TEST_F(S3Faults, LostAnswers) { TryEverything({.kind = Kind::kLoseAnswer}, 3); }

TEST_F(S3Faults, ErrorsAfterTheDeed) { TryEverything({Kind::kAnswerLate, ErrorAnswer(500, "InternalError")}, 3); }

TEST_F(S3Faults, AnswersCutShort) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{40}, size_t{250}}) {
    SCOPED_TRACE(bytes);
    TryEverything({.kind = Kind::kCutAnswer, .bytes = bytes});
  }
}

TEST_F(S3Faults, SilenceAndTrickles) {
  ASSERT_TRUE(storage_->Create("a", Pattern(1000)).ok());
  options_.request_timeout = std::chrono::milliseconds(2000);  // a busy server may need much of it
  Open();
  for (const Kind kind : {Kind::kHang, Kind::kTrickle}) {
    std::string out(1000, '\0');
    Fail({.kind = kind});
    const absl::Status status = Read("a", &out);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(out == Pattern(1000));
  }
}

TEST_F(S3Faults, GivesUpAfterTheTimeAllowed) {
  Fail({Kind::kAnswer, ErrorAnswer(503, "SlowDown")}, 1000);
  const size_t before = proxy_->log().size();
  const absl::Status status = storage_->Create("a", "x");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  const size_t attempts = proxy_->log().size() - before;
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr(absl::StrCat("failed in ", attempts, " attempts within 300 s: HTTP status 503, SlowDown: as told")));
  const auto waited = std::accumulate(sleeps_.begin(), sleeps_.end(), std::chrono::milliseconds(0));
  EXPECT_GE(waited, std::chrono::seconds(270));
  EXPECT_LE(waited, std::chrono::seconds(300));
  ExpectNothing("a");
}

TEST_F(S3Faults, WithoutTimeThereIsOneAttempt) {
  options_.retry_for = std::chrono::milliseconds(0);
  S3Shell shell = RealS3Shell();
  shell.elapsed = [] { return std::chrono::milliseconds(0); };  // another attempt could be made at once
  shell.random = [] { return 0; };
  const std::unique_ptr<Storage> storage = *OpenS3Storage(options_, shell);
  Fail({Kind::kAnswer, ErrorAnswer(503, "SlowDown")});
  EXPECT_EQ(storage->Create("a", "x").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(CountRequests("PUT"), 1u);
}

// An outage of four minutes, as object stores have them, is nothing that a run notices but by its log.
TEST_F(S3Faults, OutagesOfMinutesPass) {
  const auto begin = std::chrono::minutes(4);
  proxy_->SetRule([&](const ProxiedRequest&) {
    const std::lock_guard lock(mutex_);
    const auto waited = std::accumulate(sleeps_.begin(), sleeps_.end(), std::chrono::milliseconds(0));
    return waited < begin ? Fault{.kind = Kind::kReset} : Fault{};
  });
  testing::internal::CaptureStderr();
  const absl::Status status = storage_->Create("a", "x");
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("run/a: PUT: "));
}

TEST_F(S3Faults, WhatIsNoAnswerOfS3IsTriedAgain) {
  const std::string page = "<html><body>Welcome to nginx</body></html>";
  ASSERT_TRUE(storage_->Create("a", "x").ok());
  for (const int status : {302, 404, 500, 520, 530, 599}) {
    const std::string answer =
        absl::StrCat("HTTP/1.1 ", status, " x\r\nLocation: https://login.example/\r\nContent-Length: ", page.size(),
                     "\r\n\r\n", page);
    std::string out(1, '\0');
    Fail({Kind::kAnswer, answer}, 3);
    const absl::Status read = Read("a", &out);
    EXPECT_TRUE(read.ok()) << status << ": " << read;
    Fail({Kind::kAnswer, answer}, 1000);
    const absl::Status down = Read("a", &out);
    EXPECT_EQ(down.code(), absl::StatusCode::kUnavailable) << down;
    EXPECT_THAT(std::string(down.message()),
                HasSubstr(absl::StrCat("HTTP status ", status, ", not in the words of S3")));
    Fail({}, 0);
  }
}

TEST_F(S3Faults, AWrongClockIsCorrected) {
  const std::string refusal = ErrorAnswer(403, "RequestTimeTooSkewed", "Date: Wed, 11 Nov 2026 10:00:00 GMT\r\n");
  std::vector<std::string> times;
  proxy_->SetRule([&](const ProxiedRequest& request) {
    for (const auto& [name, value] : request.headers) {
      if (name == "x-amz-date") times.push_back(value.substr(0, 13));  // to the hour and minute
    }
    return times.size() == 1 ? Fault{Kind::kAnswer, refusal} : Fault{};
  });
  storage_->Size("a").status().IgnoreError();  // the server behind the proxy may or may not like that date
  ASSERT_GE(times.size(), 2u);
  EXPECT_EQ(times[1], "20261111T1000");
}

TEST_F(S3Faults, WaitsAsLongAsTheServerAsks) {
  Fail({Kind::kAnswer, ErrorAnswer(503, "SlowDown", "Retry-After: 7\r\n")});
  ASSERT_TRUE(storage_->Create("a", "x").ok());
  ASSERT_EQ(sleeps_.size(), 1u);
  EXPECT_EQ(sleeps_[0], std::chrono::seconds(7));
  Fail({Kind::kAnswer, ErrorAnswer(503, "SlowDown", "Retry-After: 86400\r\n")});
  ASSERT_TRUE(storage_->Create("b", "x").ok());
  EXPECT_EQ(sleeps_[1], std::chrono::seconds(60)) << "a day is not for a server to ask";
}

TEST_F(S3Faults, WhatWasNeverAllowedIsRefusedAtOnce) {
  const struct {
    int status;
    const char* code;
    absl::StatusCode expected;
  } cases[] = {{403, "AccessDenied", absl::StatusCode::kPermissionDenied},
               {401, "Unauthorized", absl::StatusCode::kPermissionDenied},
               {400, "ExpiredToken", absl::StatusCode::kPermissionDenied},
               {404, "NoSuchBucket", absl::StatusCode::kFailedPrecondition},
               {507, "XMinioStorageFull", absl::StatusCode::kResourceExhausted},
               {403, "QuotaExceeded", absl::StatusCode::kResourceExhausted},
               {400, "EntityTooLarge", absl::StatusCode::kFailedPrecondition}};
  for (const auto& [http, code, expected] : cases) {
    const size_t before = proxy_->log().size();
    Fail({Kind::kAnswer, ErrorAnswer(http, code, "x-amz-request-id: REQ1\r\n")}, 100);
    const absl::Status status = storage_->Create("a", "x");
    EXPECT_EQ(status.code(), expected) << status;
    for (const char* part : {code, "as told", "REQ1", "run/a", "PUT"}) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    }
    EXPECT_EQ(proxy_->log().size() - before, 1u) << code;
  }
  EXPECT_TRUE(sleeps_.empty());
}

// Credentials that expire, a policy that is being changed, a bucket whose disks are away.
TEST_F(S3Faults, WhatWasAllowedOnceIsWaitedFor) {
  std::string out(1, '\0');
  const auto waited = [this] {
    const std::lock_guard lock(mutex_);
    return std::accumulate(sleeps_.begin(), sleeps_.end(), std::chrono::milliseconds(0));
  };
  // In turn: writing, asking for the size, reading, listing.
  const std::vector<std::function<absl::Status(const std::string&)>> calls = {
      [&](const std::string& name) { return storage_->Create(name, "x"); },
      [&](const std::string& name) { return storage_->Size(name).status(); },
      [&](const std::string& name) { return Read(name, &out); },
      [&](const std::string& name) { return storage_->List(name).status(); }};
  for (const auto& call : calls) ASSERT_TRUE(call("a").ok());
  const std::pair<int, std::string> refusals[] = {{403, "AccessDenied"}, {400, "ExpiredToken"}, {404, "NoSuchBucket"}};
  for (const auto& [status, code] : refusals) {
    const Fault refusal{Kind::kAnswer, ErrorAnswer(status, code)};
    for (size_t i = 0; i < calls.size(); ++i) {
      const std::string which = absl::StrCat(code, " of call ", i);
      const std::chrono::milliseconds end = waited() + std::chrono::minutes(4);
      proxy_->SetRule([&](const ProxiedRequest&) { return waited() < end ? refusal : Fault{}; });
      testing::internal::CaptureStderr();
      const absl::Status passed = calls[i](code);
      EXPECT_TRUE(passed.ok()) << which << ": " << passed;
      const std::string logged = testing::internal::GetCapturedStderr();
      // Without a body nothing but the status says what is wrong with a HEAD.
      EXPECT_THAT(logged, HasSubstr(i == 1 && status == 403 ? "HTTP status 403" : code)) << which;
      EXPECT_THAT(logged, HasSubstr("it is tried again for another")) << which;
      proxy_->SetRule([&](const ProxiedRequest&) { return refusal; });
      const absl::Status refused = calls[i](code + "-b");
      EXPECT_TRUE(absl::IsUnavailable(refused)) << which << ": " << refused;
      EXPECT_THAT(std::string(refused.message()), HasSubstr("within 300 s: HTTP status ")) << which;
    }
  }
}

TEST_F(S3Faults, RedirectsAreNotFollowed) {
  const std::string elsewhere = "Location: http://127.0.0.1:1/\r\nx-amz-bucket-region: eu-west-3\r\n";
  Fail({Kind::kAnswer, ErrorAnswer(301, "PermanentRedirect", elsewhere)}, 100);
  const absl::Status status = storage_->Size("a").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("lies in region eu-west-3"));
}

// ---- stops

TEST_F(S3Faults, AStopEndsATransfer) {
  ASSERT_TRUE(storage_->Create("a", Pattern(1000)).ok());
  const std::shared_ptr<const RandomAccessFile> file = *storage_->Open("a");
  std::vector<std::byte> out(1000);
  for (const Kind kind : {Kind::kHang, Kind::kTrickle}) {
    std::stop_source stop;
    proxy_->SetRule([&](const ProxiedRequest&) {
      stop.request_stop();
      return Fault{.kind = kind};
    });
    const absl::Status read = file->ReadUnlessStopped(0, absl::MakeSpan(out), stop.get_token());
    EXPECT_TRUE(absl::IsCancelled(read)) << read;
    proxy_->SetRule([](const ProxiedRequest&) { return Fault{}; });
    EXPECT_TRUE(file->ReadAt(0, absl::MakeSpan(out)).ok()) << "others go on";
  }
  std::stop_source stop;
  options_.stop = stop.get_token();
  Open();
  proxy_->SetRule([&](const ProxiedRequest&) {
    stop.request_stop();
    return Fault{.kind = Kind::kHang};
  });
  const absl::Status created = storage_->Create("b", "x");
  EXPECT_TRUE(absl::IsCancelled(created)) << created;
  const size_t requests = proxy_->log().size();
  EXPECT_TRUE(absl::IsCancelled(storage_->Size("a").status()));
  EXPECT_EQ(proxy_->log().size(), requests);
}

TEST_F(S3Faults, AStopEndsTheWaitForAnotherAttempt) {
  std::stop_source stop;
  options_.stop = stop.get_token();
  options_.retry_for = std::chrono::hours(1);
  S3Shell shell = RealS3Shell();
  const auto sleep = shell.sleep;
  shell.sleep = [&](std::chrono::milliseconds, const std::stop_token& given) {
    const std::jthread other([&] { stop.request_stop(); });
    sleep(std::chrono::hours(1), given);
  };
  const std::unique_ptr<Storage> storage = *OpenS3Storage(options_, shell);
  Fail({Kind::kAnswer, ErrorAnswer(503, "SlowDown")}, 1000);
  const size_t before = proxy_->log().size();
  const absl::Status created = storage->Create("a", "x");
  EXPECT_TRUE(absl::IsCancelled(created)) << created;
  EXPECT_EQ(proxy_->log().size(), before + 1);
}

// ---- answers that lie

TEST_F(S3Faults, ARangeMustBeWhatWasAskedFor) {
  ASSERT_TRUE(storage_->Create("a", "0123456789").ok());
  const auto read = [&](const std::string& answer) {
    Fail({Kind::kAnswer, answer}, 1000);
    std::string out(4, '\0');
    return Read("a", &out, 2);
  };
  const std::string tag = "HTTP/1.1 206 x\r\nETag: \"1\"\r\n",
                    ok = tag + "Content-Range: bytes 2-5/10\r\nContent-Length: ";
  EXPECT_TRUE(read(ok + "4\r\n\r\n2345").ok());
  // What S3 says of an object that ends too early.
  for (const std::string& answer :
       {tag + "Content-Range: bytes 2-4/5\r\nContent-Length: 3\r\n\r\n234", ErrorAnswer(416, "InvalidRange")}) {
    const absl::Status status = read(answer);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("run/a")) << answer;
  }
  for (const std::string& answer :
       {ok + "3\r\n\r\n234", ok + "5\r\n\r\n23456", ok + "0\r\n\r\n",
        tag + "Content-Range: bytes 0-3/10\r\nContent-Length: 4\r\n\r\n0123",
        std::string("HTTP/1.1 206 x\r\nContent-Range: bytes 2-5/10\r\nContent-Length: 4\r\n\r\n2345"),
        tag + "Content-Length: 4\r\n\r\n0123", std::string("HTTP/1.1 200 x\r\nContent-Length: 10\r\n\r\n0123456789"),
        std::string("HTTP/1.1 200 x\r\nContent-Length: 4\r\n\r\n0123"),
        std::string("HTTP/1.1 416 x\r\nContent-Length: 4\r\n\r\nnope")}) {
    const absl::Status status = read(answer);
    EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("run/a")) << answer;
  }
}

TEST_F(S3Faults, AnswersWithoutEndAreCutOff) {
  std::string headers = "HTTP/1.1 200 x\r\n";
  for (int i = 0; i < 3000; ++i) headers += "x-more-" + std::to_string(i) + ": yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n";
  Fail({Kind::kAnswer, headers + "Content-Length: 1\r\n\r\n"}, 100);
  EXPECT_EQ(storage_->Size("a").status().code(), absl::StatusCode::kFailedPrecondition);
  Fail({}, 0);
  options_.retry_for = std::chrono::milliseconds(0);
  Open();
  Fail({Kind::kAnswer, "HTTP/1.1 200 x\r\nContent-Length: 20000000\r\n\r\n" + std::string(20'000'000, ' ')});
  const absl::Status listed = storage_->List("").status();
  EXPECT_EQ(listed.code(), absl::StatusCode::kUnavailable) << "it could be listed before";
  EXPECT_THAT(std::string(listed.message()), HasSubstr("more bytes than the"));
}

TEST_F(S3Faults, PromisesOfMoreThanFitsAnyMemory) {
  options_.request_timeout = std::chrono::milliseconds(500);
  Open();
  for (const char* size : {"9000000000000000000", "99999999999999999999999999", "-5", "x"}) {
    Fail({Kind::kAnswer, std::string("HTTP/1.1 200 x\r\nContent-Length: ") + size + "\r\n\r\nxx"});
    const absl::StatusOr<std::vector<StoredObject>> listed = storage_->List("");
    EXPECT_TRUE(listed.ok() || absl::IsFailedPrecondition(listed.status()) || absl::IsUnavailable(listed.status()))
        << size;
  }
}

TEST_F(S3Faults, ListingsThatAreNone) {
  const auto list = [&](const std::string& body) {
    Fail({Kind::kAnswer, "HTTP/1.1 200 x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body}, 1000);
    return storage_->List("").status();
  };
  const std::string head = "<ListBucketResult>", tail = "</ListBucketResult>";
  EXPECT_TRUE(list(head + "<Contents><Key>run/a</Key><Size>1</Size></Contents>" + tail).ok());
  for (const std::string& body :
       {std::string(), std::string("<html>hello</html>"), head, head + "<Contents><Key>run/a</Key></Contents>" + tail,
        head + "<Contents><Size>1</Size></Contents>" + tail,
        head + "<Contents><Key>run/a</Key><Size>-1</Size></Contents>" + tail,
        head + "<Contents><Key>run/a</Key><Size>18446744073709551616</Size></Contents>" + tail,
        head + "<IsTruncated>true</IsTruncated>" + tail,
        head + "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>" + tail}) {
    const absl::Status status = list(body);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << body << ": " << status;
  }
}

TEST_F(S3Faults, KeysOfOthersAreNotListed) {
  const std::string body =
      "<ListBucketResult><Contents><Key>run/a</Key><Size>1</Size></Contents>"
      "<Contents><Key>run/</Key><Size>0</Size></Contents><Contents><Key>run/../../etc/passwd</Key><Size>1</Size></"
      "Contents>"
      "<Contents><Key>other/b</Key><Size>1</Size></Contents></ListBucketResult>";
  Fail({Kind::kAnswer, "HTTP/1.1 200 x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body});
  EXPECT_EQ(*storage_->List(""), (std::vector<StoredObject>{{"a", 1}}));
}

// ---- conditional writes

TEST_F(S3Faults, AnAnswerLostIsNotSomebodyElsesObject) {
  Fail({.kind = Kind::kLoseAnswer}, 1, "PUT", "");
  EXPECT_TRUE(storage_->Create("mine", "x").ok());
  EXPECT_EQ(CountRequests("PUT"), 2u);
  EXPECT_EQ(CountRequests("HEAD"), 1u) << "the second attempt was refused, so somebody must have looked";
}

TEST_F(S3Faults, SomebodyElsesObjectIsNotOurs) {
  for (const std::string contents : {"theirs", "ours"}) {  // the same bytes are no proof
    const std::string name = "of-" + contents;
    // They come first while our first attempt is on its way.
    proxy_->SetRule([&, first = true](const ProxiedRequest& request) mutable {
      if (request.method != "PUT" || !std::exchange(first, false)) return Fault{};
      const MemoryBody body(contents);
      EXPECT_TRUE(direct_->Send({.method = "PUT", .key = "run/" + name, .body = &body}).ok());
      return Fault{.kind = Kind::kLoseAnswer};
    });
    EXPECT_EQ(storage_->Create(name, "ours").code(), absl::StatusCode::kAlreadyExists);
    ExpectObject(name, contents);
  }
}

TEST_F(S3Faults, ConflictsAreTriedAgain) {
  Fail({Kind::kAnswer, ErrorAnswer(409, "ConditionalRequestConflict")}, 2, "PUT", "");
  EXPECT_TRUE(storage_->Create("a", "x").ok());
  EXPECT_EQ(CountRequests("PUT"), 3u);
}

TEST_F(S3Faults, ServersWithoutConditionalWrites) {
  proxy_->SetRule([](const ProxiedRequest& request) {
    return request.Has("if-none-match") ? Fault{Kind::kAnswer, ErrorAnswer(501, "NotImplemented")} : Fault{};
  });
  ASSERT_TRUE(storage_->Create("a", "first").ok());
  EXPECT_EQ(storage_->Create("a", "second").code(), absl::StatusCode::kAlreadyExists);
  ExpectObject("a", "first");
  const std::string large = Pattern(3 * kPart + 5);
  const absl::Status status = Put("b", large);
  ASSERT_TRUE(status.ok()) << status;
  ExpectObject("b", large);
  EXPECT_EQ(Put("b", large).code(), absl::StatusCode::kAlreadyExists);
  ExpectNoUploads();
}

// ---- everything at once

TEST_F(S3Faults, Storm) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  proxy_->SetRule([random = std::mt19937(seed)](const ProxiedRequest&) mutable {
    const std::vector<Fault> faults = {{Kind::kAnswer, ErrorAnswer(503, "SlowDown")},
                                       {Kind::kAnswerLate, ErrorAnswer(500, "InternalError")},
                                       {.kind = Kind::kReset},
                                       {.kind = Kind::kLoseAnswer},
                                       {.kind = Kind::kCutAnswer, .bytes = random() % 400},
                                       {.kind = Kind::kFlipBody}};
    return random() % 3 == 0 ? faults[random() % faults.size()] : Fault{};
  });
  std::vector<StoredObject> expected;
  for (int i = 0; i < 8; ++i) {
    const std::string name = "storm-" + std::to_string(i), contents = Pattern(static_cast<size_t>(i) * 70'001);
    const absl::Status put = i % 2 ? Put(name, contents) : storage_->Create(name, contents);
    ASSERT_TRUE(put.ok()) << put;
    EXPECT_EQ(Put(name, "another").code(), absl::StatusCode::kAlreadyExists);
    const absl::StatusOr<std::string> got = ReadObject(*storage_, name, contents.size());
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_TRUE(*got == contents);
    expected.push_back({name, contents.size()});
  }
  EXPECT_EQ(*storage_->List("storm-"), expected);
  proxy_->SetRule([](const ProxiedRequest&) { return Fault{}; });
  ExpectNoUploads();
}

}  // namespace
}  // namespace holdfast
