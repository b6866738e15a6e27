#pragma once

// Private: packed parameters within an operation.

namespace quanta::detail {

/// A value that an operation borrows from its caller for the time of the call, as another handle
/// would cost two atomic instructions. A copy of the operation owns its value.
template <typename T>
class Borrowed {
 public:
  Borrowed() noexcept : value_(&own_) {}
  Borrowed(const T& value) noexcept : value_(&value) {}
  Borrowed(const Borrowed& other) : own_(*other.value_), value_(&own_) {}
  Borrowed& operator=(const Borrowed& other) {
    if (this != &other) {
      own_ = *other.value_;
      value_ = &own_;
    }
    return *this;
  }
  ~Borrowed() = default;

  const T& operator*() const noexcept { return *value_; }
  const T* operator->() const noexcept { return value_; }

 private:
  T own_;
  const T* value_;
};

}  // namespace quanta::detail
