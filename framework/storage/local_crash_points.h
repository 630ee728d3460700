#pragma once
// The crash points (crash_point.h) of local storage: before and after everything that changes the directory.

namespace holdfast {

inline constexpr const char* kLocalCrashPoints[] = {
    "local.mkdir.before",
    "local.mkdir.after",  // a directory on the way to an object
    "local.temporary.before",
    "local.temporary.after",  // the file under its temporary name
    "local.reserve.before",
    "local.reserve.after",  // space for it
    "local.write.before",
    "local.write.after",  // each piece of what Create writes
    "local.truncate.before",
    "local.truncate.after",  // what was reserved and not needed
    "local.fsync.before",
    "local.fsync.after",  // the file
    "local.rename.before",
    "local.rename.after",  // to its name, where the system can refuse to replace
    "local.link.before",
    "local.link.after",  // where it cannot, but has links
    "local.claim.before",
    "local.claim.after",  // where it has neither
    "local.rename_claimed.before",
    "local.rename_claimed.after",
    "local.unclaim.before",
    "local.unclaim.after",
    "local.unlink_temporary.before",
    "local.unlink_temporary.after",  // after a link or a failure
    "local.fsync_directory.before",
    "local.fsync_directory.after",
    "local.delete.before",
    "local.delete.after",
    "local.rmdir.before",
    "local.rmdir.after",
    "local.sweep.before",
    "local.sweep.after",  // a temporary of a writer that is gone
};

}  // namespace holdfast
