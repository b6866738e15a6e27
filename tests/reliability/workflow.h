#pragma once

// What `quanta demo` does, in steps that can be tried again and again.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace quanta::reliability {

/// One step of the work. `run` does it anew and drops what it made; `check` throws when something
/// that was there before is no longer as it was.
struct Step {
  std::string name;
  std::function<void()> run;
};

/// A network on its way from float to int8, with all that its steps need made before.
class Workflow {
 public:
  /// Files lie in `folder`, which has to be there.
  explicit Workflow(std::filesystem::path folder);
  ~Workflow();
  Workflow(const Workflow&) = delete;
  Workflow& operator=(const Workflow&) = delete;

  const std::vector<Step>& steps() const { return steps_; }
  /// Throws std::logic_error when a network gives other results than at first.
  void check() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
  std::vector<Step> steps_;
};

}  // namespace quanta::reliability
