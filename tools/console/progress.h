#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace quanta::console {

/// A bar on stderr while something long runs; on a file or pipe only one line at the end.
///   calibrating  [##########----------]  512/1024  3.1 s left
class ProgressBar {
 public:
  ProgressBar(std::string label, std::int64_t total);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `note` stands behind the bar from now on: "loss 0.231".
  void advance(std::int64_t amount, std::string note = {});

 private:
  void draw(bool last);

  std::string label_;
  std::int64_t total_;
  std::int64_t done_ = 0;
  std::string note_;
  bool terminal_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point drawn_;
};

}  // namespace quanta::console
