#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

/// Sizes and strides. Plain values: threads may share what none of them changes.
namespace quanta {

/// Sizes, strides, kernel sizes: up to kMaxDims signed 64-bit numbers, a plain value without
/// allocation. Also used for "one number per spatial dimension" arguments. More than kMaxDims
/// numbers throw ArgumentError.
class Dims {
 public:
  static constexpr std::size_t kMaxDims = 10;

  constexpr Dims() = default;
  constexpr Dims(std::initializer_list<std::int64_t> values)
      : Dims(values.begin(), values.size()) {}
  /// One number, without braces: `.kernel_size = 3`. A bool is no size.
  template <std::integral T>
  requires(!std::same_as<T, bool>) constexpr Dims(T value)
      : Dims({static_cast<std::int64_t>(value)}) {}
  explicit Dims(std::span<const std::int64_t> values) : Dims(values.data(), values.size()) {}
  explicit Dims(const std::vector<std::int64_t>& values) : Dims(values.data(), values.size()) {}

  /// `count` copies of `value`.
  static Dims filled(std::size_t count, std::int64_t value) {
    Dims dims;
    dims.resize(count, value);
    return dims;
  }

  constexpr std::size_t size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr std::int64_t& operator[](std::size_t i) noexcept { return values_[i]; }
  constexpr const std::int64_t& operator[](std::size_t i) const noexcept { return values_[i]; }
  constexpr std::int64_t back() const noexcept { return values_[size_ - 1]; }
  constexpr const std::int64_t* begin() const noexcept { return values_.data(); }
  constexpr const std::int64_t* end() const noexcept { return values_.data() + size_; }
  constexpr std::int64_t* begin() noexcept { return values_.data(); }
  constexpr std::int64_t* end() noexcept { return values_.data() + size_; }

  constexpr void push_back(std::int64_t value) {
    if (size_ == kMaxDims) throw_too_many(size_ + 1);
    values_[size_++] = value;
  }
  constexpr void resize(std::size_t count, std::int64_t value = 0) {
    if (count > kMaxDims) throw_too_many(count);
    for (std::size_t i = size_; i < count; ++i) values_[i] = value;
    for (std::size_t i = count; i < size_; ++i) values_[i] = 0;
    size_ = static_cast<std::uint8_t>(count);
  }
  constexpr void erase(std::size_t position) {
    for (std::size_t i = position; i + 1 < size_; ++i) values_[i] = values_[i + 1];
    values_[--size_] = 0;
  }
  constexpr void insert(std::size_t position, std::int64_t value) {
    push_back(0);
    for (std::size_t i = static_cast<std::size_t>(size_) - 1; i > position; --i)
      values_[i] = values_[i - 1];
    values_[position] = value;
  }
  std::vector<std::int64_t> to_vector() const { return {begin(), end()}; }

  constexpr bool operator==(const Dims& other) const noexcept {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  constexpr Dims(const std::int64_t* values, std::size_t count) {
    if (count > kMaxDims) throw_too_many(count);
    std::copy_n(values, count, values_.begin());
    size_ = static_cast<std::uint8_t>(count);
  }
  [[noreturn]] static void throw_too_many(std::size_t count);

  std::array<std::int64_t, kMaxDims> values_{};
  std::uint8_t size_ = 0;
};

/// "[2, 3, 4]".
std::string to_string(const Dims& dims);
std::ostream& operator<<(std::ostream& stream, const Dims& dims);

/// Product of all entries (1 for none). Throws ArgumentError when an entry is negative or the
/// product of those that are not 0 exceeds 2^57.
std::int64_t checked_numel(const Dims& sizes);

/// Product without checks, for sizes that belong to an existing tensor.
constexpr std::int64_t product(const Dims& sizes) noexcept {
  std::int64_t result = 1;
  for (const std::int64_t size : sizes) result *= size;
  return result;
}

}  // namespace quanta
