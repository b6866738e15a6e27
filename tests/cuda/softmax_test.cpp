#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <vector>

#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"
#include "support/test_device.h"

// softmax and log_softmax have the CPU's floats and codes: sums in its order, and its exp.

namespace quanta {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// call(x there) is call(x): the same bits or NaN in both, codes, and order of memory.
void check_both(const Tensor& x, const std::function<Tensor(const Tensor&)>& call) {
  const Tensor want = call(x);
  const Tensor got = call(x.to(test::test_device()));
  CHECK(got.device() == test::test_device());
  CHECK(got.sizes() == want.sizes());
  CHECK(got.strides() == want.strides());
  if (want.is_quantized()) {
    CHECK(got.cpu().equal(want));
  } else {
    test::check_same(got.cpu(), want.to_float_vector());
  }
}

void check_floats(const Tensor& x, std::int64_t dim) {
  CAPTURE(x.sizes());
  CAPTURE(x.strides());
  CAPTURE(dim);
  check_both(x, [&](const Tensor& y) { return softmax(y, dim); });
  check_both(x, [&](const Tensor& y) { return log_softmax(y, dim); });
}

void check_codes(const Tensor& codes, std::int64_t dim) {
  CAPTURE(codes.sizes());
  CAPTURE(dim);
  check_both(codes, [&](const Tensor& y) {
    return quantized::softmax(QTensor(y), dim, 1.0 / 256, codes.dtype() == DType::QInt8 ? -128 : 0);
  });
  check_both(codes, [&](const Tensor& y) {
    return quantized::log_softmax(QTensor(y), dim, 0.07, codes.dtype() == DType::QInt8 ? 90 : 200);
  });
}

}  // namespace

TEST_CASE("cuda softmax: rows of any length") {
  Generator generator(41);
  for (std::int64_t length = 1; length <= 48; ++length) {
    check_floats(randn({length % 5 + 1, length}, generator), -1);
  }
  for (const std::int64_t length : {63, 64, 65, 200, 256, 257, 511, 512, 513, 2048, 2049, 4099}) {
    check_floats(mul_scalar(randn({3, length}, generator), 4.0), 1);
  }
}

TEST_CASE("cuda softmax: along any dimension of any layout") {
  Generator generator(42);
  const Tensor image = randn({2, 19, 5, 3}, generator);
  for (const Tensor& x :
       {image, image.contiguous(MemoryFormat::ChannelsLast), image.permute({3, 1, 0, 2}),
        image.narrow(1, 2, 16), image.narrow(1, 4, 1).expand({2, 7, 5, 3})}) {
    for (std::int64_t dim = 0; dim < 4; ++dim) check_floats(x, dim);
  }
  check_floats(randn({1, 40, 1}, generator), -2);
  check_floats(randn({100}, generator), 0);
  check_floats(randn({3, 130, 33}, generator), 1);
  check_floats(Tensor::full({}, -3.0), 0);
  check_floats(Tensor::zeros({0, 3}), 1);
  check_floats(Tensor::zeros({3, 0}), 1);
}

TEST_CASE("cuda softmax: what is no number makes its line NaN and no other") {
  Generator generator(43);
  for (const std::int64_t length : {5, 100, 700}) {
    Tensor x = randn({8, length}, generator);
    float* const rows = x.mutable_data<float>();
    rows[1] = kNan;
    rows[length + 2] = kInfinity;
    rows[2 * length + 3] = -kInfinity;
    rows[3 * length] = kNan;
    rows[3 * length + 4] = kInfinity;
    for (std::int64_t i = 0; i < length; ++i) {
      rows[4 * length + i] = -kInfinity;
      rows[5 * length + i] = kNan;
      rows[6 * length + i] = i % 2 == 0 ? 3e38F : -3e38F;
    }
    check_floats(x, 1);
    check_floats(x.transpose(0, 1).contiguous(), 0);
  }
}

TEST_CASE("cuda softmax: codes") {
  Generator generator(44);
  for (const DType dtype : {DType::QUInt8, DType::QInt8, DType::QInt32}) {
    for (const std::int64_t length : {1, 3, 17, 64, 300, 900}) {
      check_codes(quantize_per_tensor(randn({6, length}, generator), 0.043, 7, dtype), -1);
    }
    const Tensor image = quantize_per_tensor(randn({2, 18, 5, 3}, generator), 0.03, -3 + 20, dtype);
    for (const Tensor& x : {image, image.contiguous(MemoryFormat::ChannelsLast),
                            image.permute({0, 2, 3, 1}), image.narrow(1, 1, 16)}) {
      for (std::int64_t dim = 0; dim < 4; ++dim) check_codes(x, dim);
    }
    check_codes(quantize_per_tensor(Tensor::full({}, 0.4), 0.03, 1, dtype), 0);
    check_codes(quantize_per_tensor(Tensor::zeros({0, 3}), 0.03, 1, dtype), 1);
  }
}

TEST_CASE("cuda softmax: doubles are refused by name") {
  const Tensor x = Tensor::zeros({3, 4}, DType::Float64).to(test::test_device());
  test::fails({"softmax", "Float64", "cuda"}, [&] { softmax(x, 1); });
  test::fails({"log_softmax", "Float64", "cuda"}, [&] { log_softmax(x, 1); });
}

}  // namespace quanta
