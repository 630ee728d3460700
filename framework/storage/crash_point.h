#pragma once
// Named places where tests make a process die as by a loss of power: HOLDFAST_CRASH_POINT=NAME kills it with SIGKILL
// when it passes there the first time, NAME:COUNT the COUNT-th time, counted over all threads. Every room that has such
// places lists their names in one array (local_crash_points.h), for tests to iterate over.
//
//   CrashPoint("local.rename.before");

namespace holdfast {

/// Nothing, unless the environment named this place when the first one was passed. Thread-safe.
void CrashPoint(const char* name);

}  // namespace holdfast
