#pragma once
// Alerts as the services want them.

#include <string>

#include "elastic/alerts/alert.h"

namespace holdfast {

/// The body for a Slack incoming webhook: {"text": ...}.
std::string SlackBody(const Alert& alert);

/// The body for PagerDuty's events API v2. Not for kNotify.
std::string PagerDutyBody(const Alert& alert, const std::string& routing_key);

}  // namespace holdfast
