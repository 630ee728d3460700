#pragma once
// The end of what a process reads, as a sign that whoever started it has gone (`holdfast agent --while-stdin-open`).

#include <stop_token>

namespace holdfast {

/// Waits until `input`, a descriptor such as STDIN_FILENO, ends or cannot be read; what it holds is passed over. False:
/// asked to stop before that.
bool WaitForEndOfInput(int input, const std::stop_token& stop);

}  // namespace holdfast
