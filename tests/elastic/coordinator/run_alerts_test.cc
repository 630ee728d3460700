// What alerts say of a run: from the events, steps and statuses that the coordinator tells, to what a service gets.

#include "elastic/coordinator/run_alerts.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/elastic/alerts/http_server.h"

namespace holdfast {
namespace {

using namespace std::chrono_literals;

const AlertedRun kRun{.name = "tiny", .directory = "/runs/tiny", .workers = 8, .price_per_hour = 3};

std::unique_ptr<AlertSender> SenderTo(const HttpServer& server) {
  return std::make_unique<AlertSender>(AlertOptions{.pagerduty_key = "key",
                                                    .pagerduty_url = server.url("/"),
                                                    .allow_plain_http = true,
                                                    .timeout = 120s,
                                                    .retry_for = 120s,
                                                    .drain_timeout = 120s});
}

nlohmann::json DetailsOf(const std::string& request) {
  return nlohmann::json::parse(request.substr(request.find("\r\n\r\n") + 4))["payload"]["custom_details"];
}

TEST(RunAlerts, SayWhatTheRunHasCostInAllItsLives) {
  HttpServer server({202});
  RunAlerts alerts(kRun, /*worker_seconds=*/7200, SenderTo(server));
  RunStatus status;
  status.workers.resize(1'000'000);
  alerts.OnStatus(status);
  const auto begin = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(20ms);
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - begin;
  alerts.OnStatus(status);
  alerts.OnEvent(event::TooFewWorkers{});
  alerts.Close();
  ASSERT_EQ(server.requests().size(), 1u);
  const nlohmann::json details = DetailsOf(server.requests()[0]);
  const double hours = details["worker_hours"];
  EXPECT_GE(hours, 2 + since.count() * 1'000'000 / 3600);
  EXPECT_DOUBLE_EQ(details["cost"].get<double>(), 3 * hours);
}

}  // namespace
}  // namespace holdfast
