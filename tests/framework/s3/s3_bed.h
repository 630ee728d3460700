#pragma once
// A storage on an S3 server with a fault proxy in between, and a look behind it.

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "framework/s3/open_s3_storage.h"
#include "framework/s3/s3_listing.h"
#include "tests/framework/s3/fault_proxy.h"
#include "tests/framework/s3/moto_server.h"

namespace holdfast {

inline std::string Pattern(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>((i * 2654435761u) >> 13);
  return text;
}

class S3Bed : public testing::Test {
 protected:
  static constexpr size_t kPart = 128u << 10;

  void SetUp() override {
    HOLDFAST_MOTO_OR_SKIP(moto);
    proxy_ = std::make_unique<FaultProxy>(moto->port());
    options_ = moto->NewBucket();
    direct_ = std::make_unique<S3Client>(options_, *ResolveAddress(options_), RealS3Shell());
    options_.endpoint = proxy_->url();
    options_.prefix = "run";
    options_.part_bytes = kPart;
    options_.connections = 4;
    Open();
  }

  void Open() {
    S3Shell shell = RealS3Shell();
    shell.now = [this] { return std::chrono::system_clock::now() + clock_error_; };
    shell.elapsed = [this, real = shell.elapsed] {
      const std::lock_guard lock(mutex_);
      return std::accumulate(sleeps_.begin(), sleeps_.end(), real());
    };
    shell.sleep = [this](std::chrono::milliseconds delay, const std::stop_token&) {  // nobody waits in a test
      const std::lock_guard lock(mutex_);
      sleeps_.push_back(delay);
    };
    absl::StatusOr<std::unique_ptr<Storage>> storage = OpenS3Storage(options_, shell);
    ASSERT_TRUE(storage.ok()) << storage.status();
    storage_ = *std::move(storage);
  }

  absl::Status Put(const std::string& name, const std::string& contents) {
    absl::StatusOr<std::unique_ptr<StagedFile>> file = storage_->Stage(name, contents.size());
    if (!file.ok()) return file.status();
    std::ofstream((*file)->path(), std::ios::binary) << contents;
    return (*file)->Commit();
  }

  absl::Status Read(const std::string& name, std::string* out, uint64_t offset = 0) {
    return storage_->ReadAt(name, offset, absl::MakeSpan(reinterpret_cast<std::byte*>(out->data()), out->size()));
  }

  // Past the proxy: the object has these bytes.
  void ExpectObject(const std::string& name, const std::string& contents) {
    const absl::StatusOr<HttpAnswer> answer = direct_->Send({.method = "GET", .key = "run/" + name});
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE(answer->body == contents) << name << " has other bytes";
  }

  // Past the proxy: no object, and no parts of one.
  void ExpectNothing(const std::string& name) {
    EXPECT_TRUE(ListKeys(*direct_, "run/" + name)->empty());
    ExpectNoUploads();
  }
  void ExpectNoUploads() { EXPECT_TRUE(ListUploads(*direct_, "")->empty()) << "parts were left behind"; }

  void Fail(const Fault& fault, int times = 1) { proxy_->Inject(fault, times); }
  void Fail(const Fault& fault, int times, const std::string& method, const std::string& in_target) {
    proxy_->Inject(fault, times, [=](const ProxiedRequest& request) {
      return request.method == method && request.target.find(in_target) != std::string::npos;
    });
  }
  size_t CountRequests(const std::string& part) {
    return proxy_->Count([&](const std::string& line) { return line.find(part) != std::string::npos; });
  }

  std::unique_ptr<FaultProxy> proxy_;
  S3Options options_;
  std::unique_ptr<S3Client> direct_;
  std::unique_ptr<Storage> storage_;
  std::chrono::system_clock::duration clock_error_{};
  std::mutex mutex_;
  std::vector<std::chrono::milliseconds> sleeps_;
};

}  // namespace holdfast
