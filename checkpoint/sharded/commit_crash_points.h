#pragma once
// The crash points (crash_point.h) of claiming, committing and deleting.

namespace holdfast {

inline constexpr char kCrashFenceBefore[] = "fence.claim.before";
inline constexpr char kCrashFenceAfter[] = "fence.claim.after";           // older claims still there
inline constexpr char kCrashModelBefore[] = "commit.model.before";        // shards are durable
inline constexpr char kCrashManifestBefore[] = "commit.manifest.before";  // all files are durable
inline constexpr char kCrashManifestAfter[] = "commit.manifest.after";    // the checkpoint exists
inline constexpr char kCrashDeleteBefore[] = "delete.manifest.before";
inline constexpr char kCrashDeleteAfter[] = "delete.manifest.after";  // the checkpoint does not exist any more
inline constexpr char kCrashDeleteFile[] = "delete.file.after";       // each of its files

inline constexpr const char* kCommitCrashPoints[] = {kCrashFenceBefore,    kCrashFenceAfter,    kCrashModelBefore,
                                                     kCrashManifestBefore, kCrashManifestAfter, kCrashDeleteBefore,
                                                     kCrashDeleteAfter,    kCrashDeleteFile};

}  // namespace holdfast
