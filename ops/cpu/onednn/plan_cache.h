#pragma once

// Private: ready-to-run kernels, found again by a plain value that holds all they depend on.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace quanta::cpu {

/// Plans, the one used last in front: those of one packed weight, or of an op in all its uses.
/// Holds at most `kCapacity` of them; one that is dropped lives on until its last user is done.
/// Safe from many threads.
template <typename Key, typename Plan, std::size_t kCapacity = 16>
class PlanCache {
 public:
  /// The plan for `key`; `make()` gives a std::shared_ptr<const Plan> when there is none. It runs
  /// outside the lock, so that two threads may both make a plan and one of the two is kept.
  template <typename Make>
  std::shared_ptr<const Plan> get(const Key& key, Make&& make) const {
    {
      const std::lock_guard lock(mutex_);
      if (std::shared_ptr<const Plan> found = find(key)) return found;
    }
    std::shared_ptr<const Plan> made = make();
    const std::lock_guard lock(mutex_);
    if (std::shared_ptr<const Plan> found = find(key)) return found;
    entries_.insert(entries_.begin(), Entry{key, made});
    if (entries_.size() > kCapacity) entries_.pop_back();
    return made;
  }

 private:
  struct Entry {
    Key key;
    std::shared_ptr<const Plan> plan;
  };

  std::shared_ptr<const Plan> find(const Key& key) const {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (!(entries_[i].key == key)) continue;
      const auto position = entries_.begin() + static_cast<std::ptrdiff_t>(i);
      if (i > 0) std::rotate(entries_.begin(), position, position + 1);
      return entries_.front().plan;
    }
    return nullptr;
  }

  mutable std::mutex mutex_;
  mutable std::vector<Entry> entries_;
};

}  // namespace quanta::cpu
