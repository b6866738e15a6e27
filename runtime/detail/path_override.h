#pragma once

#include <string_view>

namespace quanta {

/// While it lives, current_module_path() of the calling thread is `path`, whichever modules run:
/// for ops that run without the module that they were recorded in. `path` must outlive it.
class PathOverride {
 public:
  explicit PathOverride(std::string_view path) noexcept;
  ~PathOverride();
  PathOverride(const PathOverride&) = delete;
  PathOverride& operator=(const PathOverride&) = delete;

 private:
  std::string_view outer_;
};

}  // namespace quanta
