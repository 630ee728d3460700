#pragma once
// All commands of `holdfast`.

#include <string>

#include "tools/cli/command.h"

namespace holdfast {

/// Parsing `app` then sets `body`, which must outlive it.
void AddCommands(CLI::App& app, CommandBody& body);

/// What is said when `app` could not be parsed: the parser's words, and what may have been meant. For
/// CLI::App::failure_message.
std::string ParseErrorText(const CLI::App* app, const CLI::Error& error);

}  // namespace holdfast
