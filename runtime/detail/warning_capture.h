#pragma once

// Private: warnings as values.

#include <string>
#include <vector>

namespace quanta::detail {

/// While it lives, the calling thread's warnings go nowhere else. Of several the innermost hears.
class WarningCapture {
 public:
  WarningCapture() noexcept;
  ~WarningCapture();
  WarningCapture(const WarningCapture&) = delete;
  WarningCapture& operator=(const WarningCapture&) = delete;

  const std::vector<std::string>& texts() const noexcept { return texts_; }
  void add(const std::string& text) { texts_.push_back(text); }

 private:
  WarningCapture* outer_;
  std::vector<std::string> texts_;
};

}  // namespace quanta::detail
