#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "quanta/nn/aimet/float_quantizer.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/error.h"
#include "support/compare.h"
#include "support/tensors.h"

namespace quanta::aimet {
namespace {

using test::says;
using test::uniform_tensor;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

const std::vector<FloatSpec> kSpecs{FloatSpec::from_name("float16"),
                                    FloatSpec::from_name("bfloat16"),
                                    FloatSpec::from_name("float8_e4m3fn"),
                                    FloatSpec::from_name("float8_e4m3fnuz"),
                                    FloatSpec::from_name("float8_e5m2"),
                                    FloatSpec::from_name("float8_e5m2fnuz"),
                                    FloatSpec::from_name("float4_e2m1fn"),
                                    {4, 3, false, false},
                                    {2, 1, false, false},
                                    {3, 0, false, false},
                                    {6, 9, false, false},
                                    {8, 10, false, false},
                                    {3, 2, true, false},
                                    {5, 2, true, false},
                                    {3, 4, true, true},
                                    {4, 3, false, true},
                                    {6, 1, true, true},
                                    {4, 0, true, false},
                                    {8, 12, true, true}};

TEST_CASE("FloatSpec: names and maxima of the formats") {
  CHECK(FloatSpec::from_name("torch.float8_e4m3fn").max() == 448.0);
  CHECK(FloatSpec::from_name("float8_e4m3fnuz").max() == 240.0);
  CHECK(FloatSpec::from_name("float16").max() == 65504.0);
  CHECK(FloatSpec{4, 3, false, false}.max() == 240.0);
  CHECK(FloatSpec{4, 3, false, false}.name() == "float8_e4m3");
  CHECK(FloatSpec::from_name("float4_e2m1fn").onnx_name() == "float4e2m1");
  says([] { FloatSpec::from_name("float32"); }, "dtype: expected float16, bfloat16");
  // OCP's fp6 have no NaN; from 8 bits on the code of all ones is one.
  CHECK(FloatSpec{3, 2, true, false}.max() == 28.0);
  CHECK(FloatSpec{2, 3, true, false}.max() == 7.5);
  CHECK(FloatSpec{5, 2, true, false}.max() == 1.5 * 65536.0);
  CHECK(FloatSpec{7, 0, true, false}.max() == std::exp2(63.0));
  CHECK(FloatSpec{3, 4, true, true}.max() == 1.9375 * 8.0);
  CHECK(FloatSpec{4, 3, false, true}.max() == 1.875 * 64.0);
  for (const FloatSpec& spec : kSpecs) {
    CAPTURE(spec.name());
    const FloatSpec back = FloatSpec::from_onnx_name(spec.onnx_name());
    // ONNX has one name for e2m1 with and without infinity.
    CHECK((back == spec || (spec == FloatSpec{2, 1, false, false} && back.finite)));
  }
  says([] { FloatSpec::from_onnx_name("float8e4m4fn"); }, "output_dtype: expected float16");
  says(
      [] {
        static_cast<void>(FloatSpec{3, 2, true, false}.released_max());
      },
      "expected a format whose maximum AIMET's release knows");
  says(
      [] {
        static_cast<void>(FloatSpec{8, 7, true, false}.max());
      },
      "expected numbers within float32's");
  says(
      [] {
        static_cast<void>(FloatSpec{9, 2, false, false}.max());
      },
      "exponent_bits: expected 1..8, got 9");
}

TEST_CASE("float_quantize_dequantize agrees with the arithmetic fake cast away from its slips") {
  // The fake cast takes log2 in float32, which slips at some powers of two; elsewhere both round to
  // the same grid. Builtin formats keep a code or an exponent for infinities and are left out.
  for (const FloatSpec& spec : kSpecs) {
    if (spec.is_builtin() || spec.finite || spec.unsigned_zero) continue;
    CAPTURE(spec.name());
    const Tensor x = uniform_tensor({4000}, 3, static_cast<float>(std::min(spec.max(), 1e4)));
    const Tensor y = float_quantize_dequantize(x, Tensor::scalar(1.0), spec);
    const Tensor cast =
        fake_cast_to_ieee_float(x, spec.max(), spec.exponent_bits, spec.mantissa_bits);
    const std::vector<float> got = y.to_float_vector();
    const std::vector<float> want = cast.to_float_vector();
    std::size_t different = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      different += std::fabs(got[i] - want[i]) > 1e-6F * std::fabs(want[i]) ? 1U : 0U;
    }
    CHECK(different <= got.size() / 100);
  }
}

TEST_CASE("float_quantize_dequantize is idempotent and saturates") {
  for (const FloatSpec& spec : kSpecs) {
    CAPTURE(spec.name());
    const Tensor scale = Tensor::scalar(0.25);
    const Tensor x = uniform_tensor({500}, 4);
    const Tensor y = float_quantize_dequantize(x, scale, spec);
    CHECK(float_quantize_dequantize(y, scale, spec).equal(y));
    const Tensor ends = float_quantize_dequantize(
        Tensor::from_values({kInfinity, -kInfinity, NAN, 0.0F}), scale, spec);
    const std::vector<float> values = ends.to_float_vector();
    CHECK(values[0] == static_cast<float>(spec.max()) * 0.25F);
    CHECK(values[1] == -static_cast<float>(spec.max()) * 0.25F);
    CHECK(std::isnan(values[2]));
    CHECK(values[3] == 0.0F);
  }
}

TEST_CASE("float_quantize_dequantize: scales of channels and blocks belong to their elements") {
  const FloatSpec spec = FloatSpec::from_name("float8_e5m2");
  const Tensor x = uniform_tensor({6, 24}, 5);
  const Tensor scale = uniform_tensor({6, 3}, 6);
  auto* scales = scale.mutable_data<float>();
  for (std::int64_t i = 0; i < scale.numel(); ++i) scales[i] = std::fabs(scales[i]) + 0.1F;
  const Tensor y = float_quantize_dequantize(x, scale, spec, {1, 8});
  for (std::int64_t row = 0; row < 6; ++row) {
    for (std::int64_t block = 0; block < 3; ++block) {
      const Tensor part = x[row].slice(0, block * 8, block * 8 + 8);
      const Tensor alone = float_quantize_dequantize(part, scale[row][block], spec);
      CHECK(y[row].slice(0, block * 8, block * 8 + 8).equal(alone));
    }
  }
}

// All numbers >= 0 of a format with finite or unsigned_zero, by the text of FloatSpec.
std::vector<double> numbers_of(const FloatSpec& spec) {
  const double bias =
      std::exp2(static_cast<double>(spec.exponent_bits - 1)) - (spec.unsigned_zero ? 0.0 : 1.0);
  const auto fields = static_cast<std::int64_t>(1) << spec.exponent_bits;
  const auto mantissas = static_cast<std::int64_t>(1) << spec.mantissa_bits;
  std::vector<double> numbers;
  for (std::int64_t field = 0; field < fields; ++field) {
    for (std::int64_t mantissa = 0; mantissa < mantissas; ++mantissa) {
      const bool is_top = field == fields - 1;
      if (is_top && !spec.finite) continue;
      const bool all_ones = is_top && mantissa == mantissas - 1;
      if (all_ones && !spec.unsigned_zero && spec.bitwidth() >= 8) continue;
      const double fraction = static_cast<double>(mantissa) / static_cast<double>(mantissas);
      numbers.push_back(field == 0
                            ? fraction * std::exp2(1.0 - bias)
                            : (1.0 + fraction) * std::exp2(static_cast<double>(field) - bias));
    }
  }
  return numbers;
}

TEST_CASE("float_quantize_dequantize: any finite or unsigned split rounds to its nearest number") {
  for (std::int64_t exponent = 2; exponent <= 6; ++exponent) {
    for (std::int64_t mantissa = 0; mantissa <= 5; ++mantissa) {
      for (const auto& [finite, unsigned_zero] :
           {std::pair(true, false), std::pair(true, true), std::pair(false, true)}) {
        const FloatSpec spec{exponent, mantissa, finite, unsigned_zero};
        if (spec.is_builtin()) continue;
        CAPTURE(spec.name());
        const std::vector<double> numbers = numbers_of(spec);
        REQUIRE(numbers.back() == spec.max());
        const auto bound = static_cast<float>(std::min(spec.max() * 1.2, 100.0));
        const Tensor x = uniform_tensor({200}, 8, bound);
        const std::vector<float> from = x.to_float_vector();
        const Tensor y = float_quantize_dequantize(x, Tensor::scalar(1.0), spec);
        const std::vector<float> got = y.to_float_vector();
        for (std::size_t i = 0; i < from.size(); ++i) {
          const auto magnitude = static_cast<double>(std::fabs(from[i]));
          double best = numbers[0];
          for (const double number : numbers) {
            if (std::fabs(number - magnitude) < std::fabs(best - magnitude)) best = number;
          }
          CHECK(std::fabs(static_cast<double>(got[i])) == best);
        }
        CHECK(y.equal(float_quantize_dequantize(x.to(DType::Float64), Tensor::scalar(1.0), spec)
                          .to(DType::Float32)));
      }
    }
  }
}

TEST_CASE("float_quantize_dequantize: Float64 is divided and multiplied in float64") {
  const FloatSpec spec = FloatSpec::from_name("float8_e4m3fn");
  const Tensor x = uniform_tensor({50}, 8).to(DType::Float64);
  x.set_requires_grad();
  const Tensor scale = Tensor::scalar(0.1);
  const Tensor y = float_quantize_dequantize(x, scale, spec);
  CHECK(y.dtype() == DType::Float64);
  const Tensor grad = uniform_tensor({50}, 9).to(DType::Float64);
  y.backward(grad);
  CHECK(x.grad().equal(grad));
  const FloatEncoding encoding(scale, spec);
  const Tensor codes = encoding.quantize(x.detach());
  CHECK(codes.dtype() == DType::Float64);
  CHECK(encoding.dequantize(codes).equal(y.detach()));
}

TEST_CASE("float_quantize_dequantize: gradients of either kind") {
  const FloatSpec e4m3 = FloatSpec::from_name("float8_e4m3fn");
  const FloatSpec custom{3, 2, false, false};
  const auto gradient = [](const FloatSpec& spec, FloatGradient kind) {
    const Tensor x = Tensor::from_values({0.3F, -1.0F, 1e6F});
    x.set_requires_grad();
    float_quantize_dequantize(x, Tensor::scalar(1.0), spec, {}, kind)
        .backward(Tensor::from_values({1.0F, 1.05F, 1.0F}));
    return x.grad().to_float_vector();
  };
  const Tensor x = Tensor::from_values({0.3F, 1e6F});
  x.set_requires_grad();
  FloatQuantizeDequantize({.exponent_bits = 3, .mantissa_bits = 2})
      .forward(x)
      .backward(Tensor::ones({2}));
  CHECK(x.grad().to_float_vector() == std::vector<float>{1.0F, 0.0F});
  CHECK(gradient(e4m3, FloatGradient::Aimet) == std::vector<float>{1.0F, 1.0F, 0.0F});
  CHECK(gradient(e4m3, FloatGradient::StraightThrough) == std::vector<float>{1.0F, 1.05F, 0.0F});
  CHECK(gradient(custom, FloatGradient::Aimet) == std::vector<float>{0.0F, 0.0F, 0.0F});
  CHECK(gradient(custom, FloatGradient::StraightThrough) == std::vector<float>{1.0F, 1.05F, 0.0F});
}

TEST_CASE("FloatQuantizeDequantize says which of its options do not fit") {
  const auto make = [](const FloatQuantizerOptions& options) {
    return [=] { FloatQuantizeDequantize{options}; };
  };
  says(make({}), "exponent_bits: expected dtype, or exponent_bits and mantissa_bits");
  says(make({.exponent_bits = 4}), "mantissa_bits: expected dtype, or exponent_bits");
  says(make({.dtype = "float16", .exponent_bits = 4}), "dtype: expected either dtype or");
  says(make({.dtype = "float16", .finite = false}), "dtype: expected either dtype or");
  says(make({.dtype = "float32"}), "got float32");
  says(make({.exponent_bits = 8, .mantissa_bits = 2, .finite = true}), "float11_e8m2fn");
  says(make({.exponent_bits = 0, .mantissa_bits = 2}), "exponent_bits: expected 1..8, got 0");
  says(make({.dtype = "float8_e5m2", .shape = {4}, .block_size = {1, 2}}),
       "block_size: expected one entry for each dimension of [4], got [1, 2]");
}

TEST_CASE("FloatQuantizeDequantize: calibration sets maxval below 16 bits") {
  FloatQuantizeDequantize narrow({.dtype = "float8_e4m3fn", .shape = {3, 1}});
  FloatQuantizeDequantize wide({.dtype = "float16"});
  const Tensor x = uniform_tensor({3, 50}, 7);
  CHECK(narrow.get_scale().equal(Tensor::ones({3, 1})));
  for (FloatQuantizeDequantize* one : {&narrow, &wide}) {
    one->compute_encodings([&] { (*one)(x); });
  }
  CHECK(wide.get_scale().item() == 1.0);
  for (std::int64_t row = 0; row < 3; ++row) {
    float largest = 0.0F;
    for (const float value : x[row].to_float_vector()) {
      largest = std::max(largest, std::fabs(value));
    }
    CHECK(narrow.maxval()[row].item() == static_cast<double>(largest));
    CHECK(narrow.get_scale()[row].item() * 448.0 == doctest::Approx(largest));
  }
  says([&] { narrow.set_maxval(Tensor::zeros({3, 1})); }, "maxval: expected numbers > 0, got 0");
  says(
      [&] {
        narrow.set_maxval(Tensor::ones({2, 1}));
      },
      "maxval: expected a floating tensor that can be expanded to [3, 1], got [2, 1]");
}

TEST_CASE("FloatQuantizeDequantize: formats without a mantissa are calibrated like others") {
  FloatQuantizeDequantize quantizer({.exponent_bits = 3, .mantissa_bits = 0});
  const Tensor x = Tensor::from_values({0.7F, -3.0F, 1.0F});
  quantizer.compute_encodings([&] { quantizer(x); });
  CHECK(quantizer.maxval().item() == 3.0);
  CHECK(quantizer(x).tensor().to_float_vector()[1] == doctest::Approx(-3.0));
}

TEST_CASE("FloatQuantizeDequantize leaves integers alone and prints itself") {
  FloatQuantizeDequantize builtin({.dtype = "float16"});
  const Tensor x = Tensor::zeros({3}, DType::Int32);
  CHECK(builtin.forward(x).is_same(x));
  CHECK(builtin.to_string() == "FloatQuantizeDequantize(dtype=torch.float16)");
  const FloatQuantizeDequantize custom(
      {.exponent_bits = 3, .mantissa_bits = 2, .shape = {4, 2}, .block_size = {1, 8}});
  CHECK(custom.to_string() ==
        "FloatQuantizeDequantize(exponent_bits=3, mantissa_bits=2, finite=False, "
        "unsigned_zero=False, shape=(4, 2), block_size=(1, 8))");
}

TEST_CASE("a float quantizer's state brings back its format and maxval") {
  FloatQuantizeDequantize from({.exponent_bits = 3, .mantissa_bits = 2, .shape = {4, 1}});
  from.compute_encodings([&] { from(uniform_tensor({4, 16}, 1)); });
  StateDict state = from.state_dict();
  FloatQuantizeDequantize to({.dtype = "float8_e5m2"});
  to.load_state_and_shape(state, "");
  const Tensor x = uniform_tensor({4, 16}, 2);
  CHECK(Tensor(to(x)).equal(from(x)));
  state.erase("maxval");
  to.load_state_dict(state);
  CHECK_FALSE(to.maxval().defined());
  CHECK(to.get_scale().equal(Tensor::ones({4, 1})));
  state.erase("_extra_state.finite");
  says([&] { to.load_state_dict(state); }, "missing names: '_extra_state.finite'");
}

TEST_CASE("a float quantizer's state brings back whether its scales are powers of two") {
  const Tensor x = uniform_tensor({4, 32}, 1);
  const auto options = [](bool power_of_two) {
    return FloatQuantizerOptions{.dtype = "float4_e2m1fn",
                                 .shape = {4, 1},
                                 .block_size = {1, 32},
                                 .power_of_two_scale = power_of_two};
  };
  for (const bool power_of_two : {true, false}) {
    FloatQuantizeDequantize from(options(power_of_two));
    from.compute_encodings([&] { from(x); });
    FloatQuantizeDequantize other(options(!power_of_two));
    StateDict state = from.state_dict();
    other.load_state_dict(state);
    CHECK(other.get_scale().equal(from.get_scale()));
    // A state that does not say so leaves it.
    state.erase("_extra_state.power_of_two_scale");
    FloatQuantizeDequantize same(options(power_of_two));
    same.load_state_dict(state);
    CHECK(same.get_scale().equal(from.get_scale()));
  }
}

TEST_CASE("a float quantizer's state without a range is refused") {
  FloatQuantizeDequantize to({.dtype = "float8_e5m2", .shape = {2}});
  for (const float value : {0.0F, -1.0F, std::numeric_limits<float>::quiet_NaN()}) {
    StateDict state = to.state_dict();
    state.set("maxval", Tensor::from_values({2.0F, value}));
    says([&] { to.load_state_dict(state); }, "maxval: expected numbers > 0, got");
    CHECK(to.maxval().equal(Tensor::full({2}, to.spec().max())));
  }
}

TEST_CASE("float encodings know microscaling formats and reject others") {
  const FloatSpec e2m1 = FloatSpec::from_name("float4_e2m1fn");
  CHECK(FloatEncoding(Tensor::from_values({0.5F, 4.0F}), e2m1).is_mxfp4());
  CHECK_FALSE(FloatEncoding(Tensor::from_values({0.5F, 3.0F}), e2m1).is_mxfp4());
  CHECK(FloatEncoding::nvfp4(Tensor::from_values({0.2F, 4.48F}, {1, 2}), Tensor::scalar(0.01),
                             {1, 16})
            ->meta_scale()
            .item() == doctest::Approx(0.01));
  says(
      [] {
        FloatEncoding::nvfp4(Tensor::from_values({0.171F}, {1, 1}), Tensor::scalar(0.01), {1, 16});
      },
      "scale: expected float8_e4m3fn numbers times 0.01");
}

TEST_CASE("fake_cast_to_ieee_float refuses what it cannot calculate") {
  const Tensor x = Tensor::ones({3});
  says([&] { fake_cast_to_ieee_float(x, 0.0, 3, 2); }, "maxval: expected a number > 0, got 0");
  says([&] { fake_cast_to_ieee_float(x, Tensor::zeros({}), 3, 2); }, "expected numbers > 0, got 0");
  says([&] { fake_cast_to_ieee_float(x, Tensor::ones({2}), 3, 2); },
       "maxval: expected Float32 that can be expanded to [3], got [2]");
  says([&] { fake_cast_to_ieee_float(x, 1.0, 0, 2); }, "exponent_bits: expected 1..8, got 0");
  says([&] { fake_cast_to_ieee_float(x.to(DType::Int32), 1.0, 3, 2); }, "x: expected Float32");
}

}  // namespace
}  // namespace quanta::aimet
