#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "conform/compare.h"
#include "conform/integer_hash.h"
#include "quanta/ops/quantize.h"

namespace quanta::conform {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Object one(std::string name, Value value) {
  Object object;
  object.set(std::move(name), std::move(value));
  return object;
}

Comparison hold(Value got, Value want, const Tolerance& tolerance = {},
                const std::string& op = "relu", const std::string& name = "out") {
  return compare(one(name, std::move(got)), one(name, std::move(want)), tolerance,
                 rules_for(op, tolerance));
}

QTensor codes(const std::vector<std::int64_t>& values, double scale = 0.5,
              std::int64_t zero_point = 3, DType dtype = DType::UInt8) {
  const Tensor plain = Tensor::from_int64(values).to(dtype);
  return QTensor::from_int_repr(plain, Quantizer::per_tensor(scale, zero_point));
}

/// 100 codes, the first `off` of them one too high.
QTensor hundred(std::int64_t off) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < 100; ++i) values.push_back(i < off ? i + 1 : i);
  return codes(values);
}

QTensor per_channel(std::vector<double> scales, std::int64_t axis) {
  const Tensor plain = Tensor::zeros({2, 2}, DType::Int8);
  return QTensor::from_int_repr(plain, Quantizer::per_channel(std::move(scales), {0, 0}, axis));
}

Tolerance tolerance(std::int64_t max_int_diff, double min_exact, double rtol = 0.0,
                    double atol = 0.0) {
  Tolerance result;
  result.max_int_diff = max_int_diff;
  result.min_exact = min_exact;
  result.rtol = rtol;
  result.atol = atol;
  return result;
}

}  // namespace

TEST_CASE("compare: equal tensors pass and another code names leaf and index") {
  CHECK(hold(codes({1, 2, 3}), codes({1, 2, 3})).passed);
  const Comparison result = hold(codes({1, 2, 4}), codes({1, 2, 3}));
  CHECK_FALSE(result.passed);
  CHECK(result.mismatch.starts_with("out: [2]: got 4, expected 3"));
  CHECK(result.exact_fraction == doctest::Approx(2.0 / 3.0));
}

TEST_CASE("compare: a wrong dtype is a mismatch although the values are equal") {
  CHECK(hold(Tensor::zeros({3}, DType::UInt8), Tensor::zeros({3}, DType::Int8)).mismatch ==
        "out: got dtype UInt8, expected Int8");
  CHECK_FALSE(hold(codes({1, 2}), Tensor::from_int64(std::vector<std::int64_t>{1, 2})).passed);
  CHECK_FALSE(hold(Tensor::zeros({3}, DType::Float32), Tensor::zeros({3}, DType::Float64)).passed);
}

TEST_CASE("compare: a wrong shape is a mismatch although the values are equal") {
  CHECK(hold(Tensor::zeros({1, 6}), Tensor::zeros({6, 1})).mismatch ==
        "out: got shape [1, 6], expected [6, 1]");
  CHECK_FALSE(hold(Tensor::zeros({0, 4}), Tensor::zeros({0, 5})).passed);
}

TEST_CASE("compare: units within max_int_diff pass while enough elements are equal") {
  CHECK(hold(hundred(2), hundred(0), tolerance(1, 0.98)).passed);
  const Comparison result = hold(hundred(3), hundred(0), tolerance(1, 0.98));
  CHECK_FALSE(result.passed);
  CHECK(result.mismatch.find("equal: 0.970000, at least 0.980000 expected") != std::string::npos);
  CHECK_FALSE(hold(hundred(1), hundred(0), tolerance(0, 0.5)).passed);
  CHECK_FALSE(hold(codes({9, 2, 3}), codes({7, 2, 3}), tolerance(1, 0.0)).passed);
}

TEST_CASE("compare: min_exact counts as it is printed with six digits") {
  std::vector<std::int64_t> got(120, 5);
  const std::vector<std::int64_t> want = got;
  got[0] = 6;
  CHECK(hold(codes(got), codes(want), tolerance(1, 0.991667)).passed);
  CHECK_FALSE(hold(codes(got), codes(want), tolerance(1, 0.991669)).passed);
}

TEST_CASE("compare: an empty tensor passes") {
  CHECK(hold(Tensor::zeros({0, 4}), Tensor::zeros({0, 4})).passed);
  CHECK(hold(codes({}), codes({})).passed);
}

TEST_CASE("compare: the scale of an output may differ by a millionth") {
  CHECK(hold(codes({1}, 0.5), codes({1}, 0.5 * (1.0 + 9e-7))).passed);
  const Comparison result = hold(codes({1}, 0.5), codes({1}, 0.5 * (1.0 + 3e-6)));
  CHECK_FALSE(result.passed);
  CHECK(result.mismatch.starts_with("out: scale: got 0.5, expected 0.5000015"));
  // The case's rtol is for values; it does not loosen the scale of an op's output.
  CHECK_FALSE(hold(codes({1}, 0.5), codes({1}, 0.501), tolerance(0, 1.0, 0.1)).passed);
}

TEST_CASE("compare: in pipelines the scale of an output goes by the rtol of the case") {
  const Tolerance loose = tolerance(1, 0.9, 1e-3);
  for (const char* op : {"static_pipeline", "run_pt"}) {
    CHECK(hold(codes({1}, 0.5), codes({1}, 0.5003), loose, op).passed);
    CHECK_FALSE(hold(codes({1}, 0.5), codes({1}, 0.502), loose, op).passed);
    CHECK_FALSE(hold(codes({1}, 0.5, 4), codes({1}, 0.5, 3), loose, op).passed);
  }
  CHECK(hold(codes({1}, 0.5, 4), codes({1}, 0.5, 3), loose, "qat_pipeline").passed);
  CHECK_FALSE(hold(codes({1}, 0.5, 5), codes({1}, 0.5, 3), loose, "qat_pipeline").passed);
}

TEST_CASE("compare: zero points have to be equal") {
  const Comparison result = hold(codes({1}, 0.5, 4), codes({1}, 0.5, 3), tolerance(1, 0.0));
  CHECK(result.mismatch == "out: zero_point: got 4, expected 3");
}

TEST_CASE("compare: per channel the scheme and axis and every scale count") {
  CHECK(hold(per_channel({0.5, 0.25}, 0), per_channel({0.5, 0.25}, 0)).passed);
  CHECK(hold(per_channel({0.5, 0.25}, 1), per_channel({0.5, 0.25}, 0)).mismatch ==
        "out: got axis 1, expected 0");
  CHECK(hold(per_channel({0.5, 0.26}, 0), per_channel({0.5, 0.25}, 0)).mismatch ==
        "out: scales[1]: got 0.26, expected 0.25");
  const QTensor per_tensor =
      QTensor::from_int_repr(Tensor::zeros({2, 2}, DType::Int8), Quantizer::per_tensor(0.5, 0));
  CHECK_FALSE(hold(per_tensor, per_channel({0.5, 0.5}, 0)).passed);
}

TEST_CASE("compare: codes below a byte are compared one by one") {
  const auto packed = [](std::int64_t byte) {
    const Tensor bytes = Tensor::from_int64(std::vector<std::int64_t>{byte}).to(DType::UInt8);
    return QTensor::from_packed_bytes(bytes, {1, 2}, DType::QUInt4x2,
                                      Quantizer::per_channel_float_qparams({0.5F}, {1.0F}, 0));
  };
  CHECK(hold(packed(0x21), packed(0x21)).passed);
  CHECK(hold(packed(0x31), packed(0x21)).mismatch.starts_with("out: [0, 1]: got 3, expected 2"));
}

TEST_CASE("compare: floats pass within atol and rtol of the expected value") {
  const Tolerance close = tolerance(0, 1.0, 1e-2, 1e-3);
  CHECK(hold(Tensor::from_values({1.0F, 0.0F}), Tensor::from_values({1.0099F, 0.0009F}), close)
            .passed);
  CHECK_FALSE(hold(Tensor::from_values({1.02F}), Tensor::from_values({1.0F}), close).passed);
  CHECK_FALSE(hold(Tensor::from_values({0.002F}), Tensor::from_values({0.0F}), close).passed);
  CHECK_FALSE(hold(Tensor::from_values({1.0F}), Tensor::from_values({1.0000001F})).passed);
}

TEST_CASE("compare: min_exact does not excuse a float") {
  CHECK_FALSE(hold(Tensor::from_values({1.0F, 2.0F, 3.0F}), Tensor::from_values({1.0F, 2.0F, 3.5F}),
                   tolerance(1, 0.5, 1e-3))
                  .passed);
}

TEST_CASE("compare: NaN equals NaN and an infinity itself and nothing else does") {
  const Tolerance loose = tolerance(0, 1.0, 10.0, 10.0);
  CHECK(hold(Tensor::from_values({kNaN, kInfinity, -kInfinity}),
             Tensor::from_values({kNaN, kInfinity, -kInfinity}))
            .passed);
  CHECK(hold(Tensor::from_values({-0.0F}), Tensor::from_values({0.0F})).passed);
  CHECK_FALSE(hold(Tensor::from_values({1.0F}), Tensor::from_values({kNaN}), loose).passed);
  CHECK_FALSE(hold(Tensor::from_values({kNaN}), Tensor::from_values({1.0F}), loose).passed);
  CHECK_FALSE(
      hold(Tensor::from_values({kInfinity}), Tensor::from_values({-kInfinity}), loose).passed);
  CHECK_FALSE(hold(Tensor::from_values({1e30F}), Tensor::from_values({kInfinity}), loose).passed);
}

TEST_CASE("compare: JSON numbers and strings and null are leaves too") {
  CHECK(hold(std::int64_t{3}, std::int64_t{3}).passed);
  CHECK_FALSE(hold(std::int64_t{4}, std::int64_t{3}).passed);
  CHECK(hold(1.0005, 1.0, tolerance(0, 1.0, 1e-3)).passed);
  CHECK_FALSE(hold(1.002, 1.0, tolerance(0, 1.0, 1e-3)).passed);
  CHECK(hold("Linear", "Linear").passed);
  CHECK_FALSE(hold("Linear", "LinearReLU").passed);
  CHECK(hold(true, true).passed);
  CHECK_FALSE(hold(true, false).passed);
  CHECK_FALSE(hold(true, std::int64_t{1}).passed);
  CHECK(hold(Value(), Value()).passed);
  CHECK_FALSE(hold(std::int64_t{0}, Value()).passed);
  CHECK_FALSE(hold(Value(), std::int64_t{0}).passed);
}

TEST_CASE("compare: nested members have to be the same ones and are named by path") {
  Object want;
  want.set("fc", one("scale", 0.5));
  Object more = want;
  more.set("relu", one("scale", 0.5));
  CHECK(hold(want, want).passed);
  CHECK(hold(want, more).mismatch == "out.relu: missing");
  CHECK(hold(more, want).mismatch == "out.relu: not expected");
  CHECK(hold(one("fc", one("scale", 0.6)), want).mismatch.starts_with("out.fc.scale: got 0.6"));
  CHECK(hold(List{1.0, 2.0}, List{1.0}).mismatch == "out: got 2 items, expected 1");
  CHECK(hold(List{1.0, 2.0}, List{1.0, 3.0}).mismatch.starts_with("out[1]: got 2, expected 3"));
}

TEST_CASE("compare: a missing output is a mismatch and a further one is not") {
  Object got = one("out", 1.0);
  CHECK(compare(got, one("values", 1.0), {}, {}).mismatch == "values: missing");
  got.set("indices", 2.0);
  CHECK(compare(got, one("out", 1.0), {}, {}).passed);
}

TEST_CASE("compare: scale and zero_point are held by value") {
  const Tensor one_scale = Tensor::full({1}, 0.5);
  const Tensor one_zero = Tensor::full({1}, 3.0, DType::Int64);
  CHECK(hold(Tensor::scalar(0.5), one_scale, {}, "observer", "scale").passed);
  CHECK(hold(one_scale, 0.5, {}, "observer", "scale").passed);
  CHECK(hold(std::int64_t{3}, one_zero, {}, "observer", "zero_point").passed);
  CHECK(hold(one_zero.to(DType::Int32), one_zero, {}, "observer", "zero_point").passed);
  CHECK_FALSE(hold(std::int64_t{4}, one_zero, {}, "observer", "zero_point").passed);
  CHECK_FALSE(hold(one_scale, 0.6, {}, "observer", "scale").passed);
  // Only there: other outputs have their shape and dtype.
  CHECK_FALSE(hold(Tensor::scalar(0.5), one_scale, {}, "observer", "min_val").passed);
  CHECK_FALSE(hold(one_zero.to(DType::Int32), one_zero, {}, "max", "indices").passed);
}

TEST_CASE("compare: ops of the other packages go by the share within the tolerance") {
  Tolerance share = tolerance(0, 0.5, 1e-3);
  const Tensor got = Tensor::from_values({1.0F, 2.0F, 3.0F, 4.1F});
  const Tensor want = Tensor::from_values({1.0F, 2.0F, 3.0F, 4.0F});
  CHECK(hold(got, want, share, "aimet.quantize").passed);
  share.loose_rtol = 1e-2;
  CHECK_FALSE(hold(got, want, share, "aimet.quantize").passed);
  share.loose_rtol = 1e-1;
  CHECK(hold(got, want, share, "aimet.quantize").passed);
  share.min_exact = 0.9;
  CHECK_FALSE(hold(got, want, share, "aimet.quantize").passed);
}

TEST_CASE(
    "IntegerHash: another code or dtype or shape gives another hash and floats do not count") {
  const auto hash = [](const Value& value) {
    IntegerHash result;
    result.add(value);
    return result.hex();
  };
  CHECK(hash(codes({1, 2})) == hash(codes({1, 2})));
  CHECK(hash(codes({1, 2})) != hash(codes({2, 1})));
  CHECK(hash(codes({1, 2})) != hash(codes({1, 2}, 0.5, 3, DType::Int8)));
  CHECK(hash(Tensor::zeros({2, 3}, DType::Int8)) != hash(Tensor::zeros({3, 2}, DType::Int8)));
  CHECK(hash(Tensor::zeros({2})) == hash(Tensor::ones({2})));
}

}  // namespace quanta::conform
