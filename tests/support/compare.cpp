#include "support/compare.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <exception>

#include "quanta/ops/sqnr.h"
#include "quanta/runtime/error.h"

namespace quanta::test {

double largest_difference(const Tensor& lhs, const Tensor& rhs) {
  REQUIRE(lhs.sizes() == rhs.sizes());
  const std::vector<float> a = lhs.to_float_vector();
  const std::vector<float> b = rhs.to_float_vector();
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) != std::isnan(b[i])) return HUGE_VAL;
    if (std::isnan(a[i]) || a[i] == b[i]) continue;
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return largest;
}

double sqnr_db(const Tensor& reference, const Tensor& value) {
  REQUIRE(reference.sizes() == value.sizes());
  return sqnr(reference, value);
}

bool same_bits(const std::vector<float>& lhs, const std::vector<float>& rhs) {
  return lhs.size() == rhs.size() &&
         std::memcmp(lhs.data(), rhs.data(), lhs.size() * sizeof(float)) == 0;
}

bool same_bits(const Tensor& lhs, const Tensor& rhs) {
  return lhs.sizes() == rhs.sizes() && same_bits(lhs.to_float_vector(), rhs.to_float_vector());
}

bool same_state(const StateDict& lhs, const StateDict& rhs) {
  if (lhs.size() != rhs.size()) return false;
  for (const auto& [name, tensor] : lhs) {
    if (!rhs.contains(name) || !rhs.at(name).equal(tensor)) return false;
  }
  return true;
}

void check_close(const Tensor& got, const Tensor& want, float tolerance) {
  REQUIRE(got.sizes() == want.sizes());
  const std::vector<float> lhs = got.to_float_vector();
  const std::vector<float> rhs = want.to_float_vector();
  for (std::size_t i = 0; i < lhs.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(lhs[i] - rhs[i]) <= tolerance * (1.0F + std::abs(rhs[i])));
  }
}

void check_same(const Tensor& got, const std::vector<float>& want) {
  const std::vector<float> values = got.detach().to_float_vector();
  REQUIRE(values.size() == want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    const bool both_nan = std::isnan(values[i]) && std::isnan(want[i]);
    if (both_nan || values[i] == want[i]) continue;
    FAIL_CHECK("at " << i << ": got " << values[i] << ", expected " << want[i]);
    return;
  }
}

void says(const std::function<void()>& call, const char* text) {
  CHECK_THROWS_WITH_AS(call(), doctest::Contains(text), ArgumentError);
}

void fails(const std::vector<std::string>& parts, const std::function<void()>& call) {
  std::string text;
  try {
    call();
  } catch (const Error& error) {
    text = error.what();
  }
  CAPTURE(text);
  REQUIRE_FALSE(text.empty());
  for (const std::string& part : parts) {
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  }
}

void refuses(std::vector<std::string> parts, const std::function<void()>& call) {
  parts.emplace_back("expected");
  fails(parts, call);
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace quanta::test
