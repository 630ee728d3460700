// Alerts against a real HTTP server that accepts, refuses, fails for a while, or hangs: what is sent, what is tried
// again, what is reported, and that nobody waits.

#include "elastic/alerts/alert_sender.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>

#include "elastic/alerts/alert_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/elastic/alerts/http_server.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTestTimeout(120);  // for what happens soon, be the machine ever so busy
constexpr char kSecret[] = "T0P5ECRET";

Alert Lost(const std::string& what = "lost") {
  return {Alert::Action::kTrigger, Alert::Severity::kError, "holdfast/r/worker/a", what, "h7"};
}
Alert Back() { return {Alert::Action::kResolve, Alert::Severity::kError, "holdfast/r/worker/a", "lost - back", "h7"}; }
Alert News() { return {Alert::Action::kNotify, Alert::Severity::kInfo, "holdfast/r/run", "finished", "r"}; }

nlohmann::json BodyOf(const std::string& request) {
  return nlohmann::json::parse(request.substr(request.find("\r\n\r\n") + 4));
}

class AlertSenderTest : public ::testing::Test {
 protected:
  AlertOptions Options() {
    AlertOptions options;
    options.allow_plain_http = true;
    options.timeout = options.drain_timeout = options.retry_for = kTestTimeout;
    options.first_backoff = 20ms;
    options.on_failure = [this](const std::string& problem) {
      const std::lock_guard lock(mutex_);
      problems_.push_back(problem);
    };
    return options;
  }
  AlertOptions Slack(const HttpServer& server) {
    AlertOptions options = Options();
    options.slack_webhook = server.url(std::string("/services/") + kSecret);
    return options;
  }
  AlertOptions PagerDuty(const HttpServer& server) {
    AlertOptions options = Options();
    options.pagerduty_key = kSecret;
    options.pagerduty_url = server.url("/v2/enqueue");
    return options;
  }
  std::vector<std::string> problems() {
    const std::lock_guard lock(mutex_);
    return problems_;
  }
  void SendAll(const AlertOptions& options, const std::vector<Alert>& alerts) {
    AlertSender sender(options);
    for (const Alert& alert : alerts) sender.Send(alert);
  }  // waits for delivery

 private:
  std::mutex mutex_;
  std::vector<std::string> problems_;
};

TEST_F(AlertSenderTest, SlackGetsTriggerResolveAndNewsInOrder) {
  HttpServer server({200});
  SendAll(Slack(server), {Lost("a < b & c"), Back(), News()});
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_THAT(requests[0], AllOf(HasSubstr("POST /services/"), HasSubstr("content-type: application/json")));
  EXPECT_EQ(BodyOf(requests[0]), nlohmann::json({{"text", "[error] a &lt; b &amp; c"}}));
  EXPECT_EQ(BodyOf(requests[1])["text"], "[resolved] lost - back");
  EXPECT_EQ(BodyOf(requests[2])["text"], "[holdfast] finished");
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(AlertSenderTest, PagerDutyGetsTriggerAndResolveOfOneKeyAndNoNews) {
  HttpServer server({202});
  Alert lost = Lost();
  lost.advice = "wait";
  lost.run = {.name = "r", .directory = "/runs/r", .total_steps = 100, .step = 7, .tokens = 4096, .worker_hours = 2.5};
  SendAll(PagerDuty(server), {lost, Back(), News()});
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_THAT(requests[0], HasSubstr("POST /v2/enqueue"));
  EXPECT_EQ(BodyOf(requests[0]), nlohmann::json({{"routing_key", kSecret},
                                                 {"event_action", "trigger"},
                                                 {"dedup_key", "holdfast/r/worker/a"},
                                                 {"payload",
                                                  {{"summary", "lost"},
                                                   {"source", "h7"},
                                                   {"severity", "error"},
                                                   {"component", "holdfast"},
                                                   {"group", "r"},
                                                   {"custom_details",
                                                    {{"run", "r"},
                                                     {"run_directory", "/runs/r"},
                                                     {"step", 7},
                                                     {"total_steps", 100},
                                                     {"tokens", 4096},
                                                     {"worker_hours", 2.5},
                                                     {"what_to_do", "wait"}}}}}}));
  EXPECT_EQ(
      BodyOf(requests[1]),
      nlohmann::json({{"routing_key", kSecret}, {"event_action", "resolve"}, {"dedup_key", "holdfast/r/worker/a"}}));
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(AlertSenderTest, WhatFailsForAWhileIsTriedAgain) {
  HttpServer server({500, 429, 200});
  SendAll(Slack(server), {Lost()});
  EXPECT_EQ(server.requests().size(), 3u);
  EXPECT_THAT(problems(), ElementsAre("slack: HTTP status 500; trying again: lost"));  // once
}

TEST_F(AlertSenderTest, WhatKeepsFailingIsReportedWithoutTheSecret) {
  HttpServer server({500});
  AlertOptions options = Slack(server);
  options.retry_for = 100ms;
  SendAll(options, {Lost()});
  EXPECT_GE(server.requests().size(), 1u);
  ASSERT_FALSE(problems().empty());
  EXPECT_EQ(problems().back(), "slack: HTTP status 500; not delivered: lost");
}

// An outage of some 600 attempts: the pauses do not grow beyond max_backoff.
TEST_F(AlertSenderTest, ALongOutageLosesNothing) {
  std::vector<int> answers(600, 503);
  answers.push_back(200);
  HttpServer server(answers);
  AlertOptions options = Slack(server);
  options.first_backoff = options.max_backoff = 1ms;
  options.retry_for = options.drain_timeout = 1h;  // so many requests take their time on a busy machine
  SendAll(options, {Lost("1"), Lost("2")});
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 602u);
  EXPECT_EQ(BodyOf(requests[600])["text"], "[error] 1");
  EXPECT_EQ(BodyOf(requests[601])["text"], "[error] 2");
  EXPECT_THAT(problems(), ElementsAre("slack: HTTP status 503; trying again: 1"));
}

// The pause has grown beyond the drain: without another attempt the end of the run would be told to nobody.
TEST_F(AlertSenderTest, AServiceThatIsBackIsToldWhenTheRunEnds) {
  HttpServer server({503, 200});
  AlertOptions options = Slack(server);
  options.first_backoff = options.max_backoff = 1h;
  options.retry_for = 3h;
  {
    AlertSender sender(options);
    sender.Send(Lost());
    ASSERT_TRUE(server.WaitForRequests(1));
    sender.Send(News());
  }
  EXPECT_EQ(server.requests().size(), 3u);
  EXPECT_THAT(problems(), ElementsAre("slack: HTTP status 503; trying again: lost"));
}

TEST_F(AlertSenderTest, ARefusalIsFinal) {
  for (const int status : {400, 404, 302}) {
    HttpServer server({status});
    SendAll(Slack(server), {Lost()});
    EXPECT_EQ(server.requests().size(), 1u) << status;  // also: the redirect was not followed
  }
  EXPECT_EQ(problems().size(), 3u);
  for (const std::string& problem : problems()) EXPECT_THAT(problem, Not(HasSubstr(kSecret)));
}

TEST_F(AlertSenderTest, NobodyThereIsReported) {
  AlertOptions options = Options();
  options.slack_webhook = std::string("http://127.0.0.1:1/") + kSecret;
  options.retry_for = 100ms;
  SendAll(options, {Lost()});
  ASSERT_FALSE(problems().empty());
  for (const std::string& problem : problems()) {
    EXPECT_THAT(problem, AllOf(HasSubstr("slack: "), Not(HasSubstr(kSecret))));
  }
}

TEST_F(AlertSenderTest, PlainHttpIsNotSpokenByDefault) {
  HttpServer server({200});
  AlertOptions options = Slack(server);
  options.allow_plain_http = false;
  SendAll(options, {Lost()});
  EXPECT_THAT(server.requests(), IsEmpty());
  EXPECT_EQ(problems().size(), 1u);
}

TEST_F(AlertSenderTest, NobodyWaitsForAServiceThatHangs) {
  HttpServer hangs({HttpServer::kHang}), answers({202});
  AlertOptions options = Slack(hangs);
  options.pagerduty_key = kSecret;
  options.pagerduty_url = answers.url("/");
  options.drain_timeout = 300ms;
  AlertSender sender(options);
  const auto begin = Clock::now();
  for (int i = 0; i < 100; ++i) sender.Send(Lost());
  EXPECT_LT(Clock::now() - begin, kTestTimeout);
  EXPECT_TRUE(answers.WaitForRequests(50));  // the other service is served meanwhile
  EXPECT_LE(hangs.requests().size(), 1u);
}

TEST_F(AlertSenderTest, AHangingRequestEndsAtItsTimeout) {
  HttpServer server({HttpServer::kHang, 200});
  AlertOptions options = Slack(server);
  options.timeout = 300ms;
  const auto begin = Clock::now();
  SendAll(options, {Lost()});
  EXPECT_GE(Clock::now() - begin, options.timeout);
  EXPECT_GE(server.requests().size(), 2u);
  EXPECT_EQ(problems().size(), 1u);  // that it is tried again
}

TEST_F(AlertSenderTest, TheEndDoesNotWaitForEver) {
  HttpServer server({HttpServer::kHang});
  AlertOptions options = Slack(server);
  options.drain_timeout = 200ms;
  const auto begin = Clock::now();
  SendAll(options, {Lost("1"), Lost("2")});
  EXPECT_LT(Clock::now() - begin, options.timeout);
  ASSERT_EQ(problems().size(), 2u);
  EXPECT_THAT(problems()[1], HasSubstr("no time left to send: 2"));
}

TEST_F(AlertSenderTest, WhoIsInHasteSaysSo) {
  HttpServer server({HttpServer::kHang});
  {
    AlertSender sender(Slack(server));
    sender.Send(Lost("1"));
    sender.Send(Lost("2"));
    ASSERT_TRUE(server.WaitForRequests(1));
    sender.EndIn(100ms);
  }  // else it would wait for the request's timeout and drain_timeout
  ASSERT_EQ(problems().size(), 2u);
  EXPECT_THAT(problems()[0], HasSubstr("not delivered: 1"));
  EXPECT_THAT(problems()[1], HasSubstr("no time left to send: 2"));
}

TEST_F(AlertSenderTest, TheOldestAreDroppedWhenTooManyWait) {
  HttpServer server({HttpServer::kHang, 200});
  AlertOptions options = Slack(server);
  options.max_queued = 3;
  {
    AlertSender sender(options);
    sender.Send(Lost("first"));
    ASSERT_TRUE(server.WaitForRequests(1));  // it hangs; what follows waits
    for (int i = 0; i < 10; ++i) sender.Send(Lost(std::to_string(i)));
    server.EndHanging();
  }
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 5u);  // the first one twice, then the newest three
  EXPECT_EQ(BodyOf(requests[2])["text"], "[error] 7");
  EXPECT_EQ(BodyOf(requests[4])["text"], "[error] 9");
  EXPECT_THAT(problems(), Contains("slack: too many alerts wait; 7 were dropped"));
}

TEST(AlertTextTest, SlackIsToldHowFarTheRunIsAndWhatToDo) {
  Alert alert = Lost();
  alert.advice = "start `holdfast agent`";
  alert.run = {
      .name = "r", .directory = "/runs/r", .total_steps = 100, .step = 7, .tokens = 4096, .worker_hours = 1.25};
  EXPECT_EQ(nlohmann::json::parse(SlackBody(alert))["text"],
            "[error] lost\nstep 7 of 100, 4096 tokens and 1.2 worker hours so far, in /runs/r\nstart `holdfast agent`");
  alert.action = Alert::Action::kResolve;
  EXPECT_EQ(nlohmann::json::parse(SlackBody(alert))["text"],
            "[resolved] lost\nstep 7 of 100, 4096 tokens and 1.2 worker hours so far, in /runs/r");
}

TEST(AlertTextTest, WhatTheRunHasCostIsToldWhereThePriceIsKnown) {
  Alert alert = Lost();
  alert.run = {.name = "r", .directory = "/runs/r", .worker_hours = 100, .on_gpus = true, .price_per_hour = 2.5};
  EXPECT_EQ(nlohmann::json::parse(SlackBody(alert))["text"],
            "[error] lost\nstep 0, 0 tokens and 100.0 GPU hours (cost 250.00) so far, in /runs/r");
  const nlohmann::json details = nlohmann::json::parse(PagerDutyBody(alert, "k"))["payload"]["custom_details"];
  EXPECT_EQ(details["gpu_hours"], 100);
  EXPECT_EQ(details["cost"], 250);
}

TEST(AlertTextTest, ALongSummaryIsCutBetweenCharacters) {
  const std::string kept(1023, 'x');
  const Alert alert = Lost(kept + "\xC3\xA9 and more");
  EXPECT_EQ(nlohmann::json::parse(PagerDutyBody(alert, "k"))["payload"]["summary"], kept);
  const std::string slack = nlohmann::json::parse(SlackBody(alert))["text"];
  EXPECT_EQ(slack, "[error] " + kept);
}

TEST(AlertTextTest, BytesThatAreNotUtf8AreReplaced) {
  EXPECT_TRUE(nlohmann::json::accept(SlackBody(Lost("bad \xFF byte"))));
  EXPECT_TRUE(nlohmann::json::accept(PagerDutyBody(Lost("bad \xFF byte"), "k")));
}

TEST(AlertOptionsTest, SecretsComeFromFiles) {
  const std::string directory = ::testing::TempDir() + "/alerts_test." + std::to_string(getpid());
  std::filesystem::create_directories(directory);
  const std::string slack = directory + "/slack", pager = directory + "/pager";
  std::ofstream(slack) << "https://hooks.slack.com/services/x\n";
  std::ofstream(pager) << "key\n";
  const auto options = ReadAlertOptions(slack, pager);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->slack_webhook, "https://hooks.slack.com/services/x");
  EXPECT_EQ(options->pagerduty_key, "key");
  EXPECT_TRUE(ReadAlertOptions("", "")->slack_webhook.empty());
  EXPECT_EQ(ReadAlertOptions(directory + "/none", "").status().code(), absl::StatusCode::kNotFound);
  std::ofstream(slack) << std::string("http://") + kSecret;
  const absl::Status plain = ReadAlertOptions(slack, "").status();
  EXPECT_EQ(plain.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(plain.message()), Not(HasSubstr(kSecret)));
  std::ofstream(pager) << "two words";
  EXPECT_EQ(ReadAlertOptions("", pager).status().code(), absl::StatusCode::kInvalidArgument);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace holdfast
