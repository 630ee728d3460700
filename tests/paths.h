#pragma once
// Where what is tested lies. Functions, not macros: so a test compiles to the same in another clone, where the compiler
// cache then finds it.

#include <string>

namespace holdfast {

/// The directory of the sources that the tests were built from.
std::string SourceDir();

/// The binary under test: HOLDFAST_BINARY of the environment, where the tests have been carried to another machine.
std::string TestedBinary();

}  // namespace holdfast
