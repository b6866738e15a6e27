#pragma once

#include <cstdint>
#include <mutex>
#include <utility>

#include "quanta/ops/conv.h"
#include "quanta/runtime/tensor.h"

// Throws what packing throws.

namespace quanta::nn::detail {

/// Keeps the packed form of a float layer's weight and bias until one of them becomes another
/// tensor or is written to. Many threads may call one at once; copies share the packing.
template <typename Packed>
class PackedCache {
 public:
  PackedCache() = default;
  PackedCache(const PackedCache& other) : entry_(other.snapshot()) {}
  PackedCache& operator=(const PackedCache& other) {
    if (this != &other) {
      Entry entry = other.snapshot();
      const std::lock_guard lock(mutex_);
      entry_ = std::move(entry);
    }
    return *this;
  }
  ~PackedCache() = default;

  /// What `pack()` gives for these tensors, or gave when it was last called for them.
  template <typename Pack>
  Packed get(const Tensor& weight, const Tensor& bias, Fusion fusion, Pack&& pack) {
    const std::lock_guard lock(mutex_);
    if (!entry_.matches(weight, bias, fusion)) {
      // Versions are read first: a write during packing makes the entry stale, not wrong.
      Entry entry{weight, bias, version_of(weight), version_of(bias), fusion, {}};
      entry.packed = pack();
      entry_ = std::move(entry);
    }
    return entry_.packed;
  }

 private:
  struct Entry {
    // Handles, so that the addresses that are compared cannot be reused by other tensors.
    Tensor weight;
    Tensor bias;
    std::uint32_t weight_version = 0;
    std::uint32_t bias_version = 0;
    Fusion fusion = Fusion::None;
    Packed packed;

    bool matches(const Tensor& new_weight, const Tensor& new_bias, Fusion new_fusion) const {
      return packed.defined() && weight.is_same(new_weight) && bias.is_same(new_bias) &&
             weight_version == version_of(weight) && bias_version == version_of(bias) &&
             fusion == new_fusion;
    }
  };

  static std::uint32_t version_of(const Tensor& tensor) {
    return tensor.defined() ? tensor.version() : 0;
  }

  Entry snapshot() const {
    const std::lock_guard lock(mutex_);
    return entry_;
  }

  mutable std::mutex mutex_;
  Entry entry_;
};

}  // namespace quanta::nn::detail
