#pragma once
// A test's knob: a process that ends or freezes in an exchange of rows that a test has chosen (tests/chaos).

#include <memory>
#include <string>

#include "framework/comm/communicator.h"

namespace holdfast {

/// `inner`; but if HOLDFAST_TEST_STRIKE is "WORKER NUMBER SIGNAL FILE" and names `worker`, the first all-to-all with
/// that number, from 1, of such a communicator raises the signal before anything is sent. It makes the file first, with
/// the process id, the rank and the bytes for each member in it; once it is there nothing happens any more.
std::unique_ptr<Communicator> StruckByEnvironment(std::unique_ptr<Communicator> inner, const std::string& worker);

}  // namespace holdfast
