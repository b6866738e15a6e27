#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include "quanta/runtime/error.h"
#include "quanta/runtime/tensor.h"

// Memory in and out: spans, and memory of the user's that must not change.

using namespace quanta;

TEST_CASE("a tensor is a copy of a span of any element type") {
  const std::vector<double> doubles{1.5, 2.5};
  const Tensor x = Tensor::from_span(doubles);
  CHECK(x.dtype() == DType::Float64);
  CHECK(x.sizes() == Dims{2});
  CHECK(x.data<double>() != doubles.data());
  CHECK(x.data<double>()[1] == 2.5);

  const std::array<std::int8_t, 4> bytes{-1, 2, -3, 4};
  const Tensor y = Tensor::from_span(bytes, {2, 2});
  CHECK(y.dtype() == DType::Int8);
  CHECK(y.to_int64_vector() == std::vector<std::int64_t>{-1, 2, -3, 4});
  CHECK(Tensor::from_span(std::span<const std::uint16_t>()).numel() == 0);
  const std::array<bool, 2> flags{true, false};
  CHECK(Tensor::from_span(flags).dtype() == DType::Bool);
  CHECK_THROWS_AS(Tensor::from_span(bytes, {3}), ArgumentError);

  static_assert(dtype_of<float>() == DType::Float32);
  static_assert(dtype_of<long long>() == DType::Int64);
  static_assert(dtype_of<std::uint8_t>() == DType::UInt8);
  static_assert(!is_element_type<const float> && !is_element_type<std::uint32_t> &&
                !is_element_type<float*>);
}

TEST_CASE("spans see the elements of a contiguous tensor") {
  const Tensor x = Tensor::arange(6).view({2, 3});
  const std::span<const float> seen = x.span<float>();
  CHECK(seen.size() == 6);
  CHECK(seen.data() == x.data<float>());
  const std::uint32_t version = x.version();
  x.mutable_span<float>()[5] = 9.0F;
  CHECK(x.version() > version);
  CHECK(seen[5] == 9.0F);
  CHECK(x[1].span<float>()[2] == 9.0F);
  CHECK_THROWS_AS(x.t().span<float>(), ArgumentError);
  CHECK_THROWS_AS(x.t().mutable_span<float>(), ArgumentError);
  CHECK_THROWS_AS(x.span<double>(), ArgumentError);

  const QTensor nibbles =
      QTensor::from_packed_bytes(Tensor::from_span(std::vector<std::uint8_t>{0x21, 0x03}), {3},
                                 DType::QUInt4x2, Quantizer::per_tensor(1.0, 0));
  CHECK(nibbles.span<std::uint8_t>().size() == 2);
}

TEST_CASE("a tensor over constant memory is not written to") {
  const std::vector<float> memory{1.0F, 2.0F, 3.0F, 4.0F};
  int deleted = 0;
  {
    const Tensor x =
        Tensor::from_blob(memory.data(), {2, 2}, DType::Float32, [&](const void* data) {
          CHECK(data == memory.data());
          ++deleted;
        });
    CHECK(x.storage()->is_read_only());
    CHECK(x.to_float_vector() == memory);
    CHECK(x.data<float>() == memory.data());
    CHECK_THROWS_AS(x.mutable_data<float>(), ArgumentError);
    CHECK_THROWS_AS(x.mutable_span<float>(), ArgumentError);
    CHECK_THROWS_AS(x.fill_(0.0), ArgumentError);
    CHECK_THROWS_AS(x.copy_(Tensor::zeros({2, 2})), ArgumentError);
    CHECK_THROWS_AS(x.t().fill_(0.0), ArgumentError);
    CHECK_THROWS_AS(x[0].mutable_data<float>(), ArgumentError);
    CHECK(x.to_float_vector() == memory);
    const Tensor copy = x.clone();
    CHECK(!copy.storage()->is_read_only());
    copy.fill_(0.0);
    const Tensor columns = Tensor::from_blob(memory.data(), {2, 2}, {1, 2}, DType::Float32);
    CHECK(columns.to_float_vector() == std::vector<float>{1.0F, 3.0F, 2.0F, 4.0F});
    CHECK_THROWS_AS(columns.fill_(0.0), ArgumentError);
    CHECK(deleted == 0);
  }
  CHECK(deleted == 1);
}

TEST_CASE("one number stands for sizes without braces") {
  CHECK(Tensor::zeros(3).sizes() == Dims{3});
  CHECK(Tensor::zeros({3}).sizes() == Dims{3});
  const Dims one = 5;
  CHECK(one == Dims{5});
  CHECK(one.size() == 1);
  static_assert(!std::is_convertible_v<bool, Dims> && !std::is_convertible_v<double, Dims>);
}
