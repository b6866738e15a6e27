#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

/// Objects that count their owners. Counts are atomic: threads may share an object, each through
/// pointers of its own. Nothing here throws.
namespace quanta {

/// Base of objects that count their own references.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  std::uint32_t use_count() const noexcept { return count_.load(std::memory_order_acquire); }

 protected:
  ~RefCounted() = default;

 private:
  template <typename T>
  friend class IntrusivePtr;
  mutable std::atomic<std::uint32_t> count_{0};
};

/// An owner of a RefCounted object, as wide as one pointer.
template <typename T>
class IntrusivePtr {
 public:
  IntrusivePtr() = default;
  explicit IntrusivePtr(T* object) noexcept : object_(object) { retain(); }
  IntrusivePtr(const IntrusivePtr& other) noexcept : object_(other.object_) { retain(); }
  IntrusivePtr(IntrusivePtr&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  IntrusivePtr& operator=(IntrusivePtr other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~IntrusivePtr() { release(); }

  T* get() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  T* operator->() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  bool operator==(const IntrusivePtr&) const = default;

 private:
  void retain() const noexcept {
    if (object_ != nullptr) object_->count_.fetch_add(1, std::memory_order_relaxed);
  }
  void release() noexcept {
    if (object_ != nullptr && object_->count_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      delete object_;
    }
    object_ = nullptr;
  }

  T* object_ = nullptr;
};

}  // namespace quanta
