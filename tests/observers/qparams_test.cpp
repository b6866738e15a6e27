#include "quanta/observers/qparams.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "quanta/observers/min_max_observer.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Row {
  const char* what;
  float min, max;
  MinMaxObserverOptions options;
  double scale;
  std::int64_t zero_point;
};

}  // namespace

TEST_CASE("calculate_qparams: the table of torch's answers holds") {
  const std::vector<Row> table{
      {"quint8 affine", -1, 2, {}, 0.0117647, 85},
      {"qint8 affine", -1, 2, {.dtype = DType::QInt8}, 0.0117647, -43},
      {"quint8 symmetric", -1, 2, {.qscheme = QScheme::PerTensorSymmetric}, 0.0156863, 128},
      {"qint8 symmetric",
       -1,
       2,
       {.dtype = DType::QInt8, .qscheme = QScheme::PerTensorSymmetric},
       0.0156863,
       0},
      {"quint8 affine reduced", -1, 2, {.reduce_range = true}, 0.0236220, 42},
      {"quint8 symmetric 0..127",
       -1,
       2,
       {.qscheme = QScheme::PerTensorSymmetric, .quant_min = 0, .quant_max = 127},
       0.0314961,
       63},
      {"qint8 symmetric -127..127",
       -1,
       2,
       {.dtype = DType::QInt8,
        .qscheme = QScheme::PerTensorSymmetric,
        .quant_min = -127,
        .quant_max = 127},
       0.0157480,
       0},
      {"quint4x2 affine", -1, 2, {.dtype = DType::QUInt4x2}, 0.2, 5},
      {"qint32 affine", -1, 2, {.dtype = DType::QInt32}, 1.1920929e-07, -2139095040},
      {"uint16 symmetric",
       -1,
       2,
       {.dtype = DType::UInt16, .qscheme = QScheme::PerTensorSymmetric},
       2.0 / 32767.5,
       32768},
      {"constant 2", 2, 2, {}, 0.00784314, 0},
      {"constant -3", -3, -3, {}, 0.0117647, 255},
      {"zero", 0, 0, {}, 1.1920929e-07, 0},
  };
  for (const Row& row : table) {
    CAPTURE(row.what);
    const ObservedScale got =
        calculate_qparams(row.min, row.max, MinMaxObserver(row.options).rule());
    CHECK(got.scale == doctest::Approx(row.scale).epsilon(2e-6));
    CHECK(got.zero_point == row.zero_point);
  }
}

TEST_CASE("calculate_qparams: infinite and NaN ranges give scales that cannot be used") {
  CHECK(std::isinf(calculate_qparams(-kInfinity, 1, {}).scale));
  CHECK(std::isinf(calculate_qparams(0, kInfinity, {}).scale));
  CHECK(std::isnan(calculate_qparams(kNan, kNan, {}).scale));
  const QParamsRule symmetric{.qscheme = QScheme::PerTensorSymmetric};
  CHECK(std::isnan(calculate_qparams(kNan, kNan, symmetric).scale));
  CHECK(std::isinf(calculate_qparams(-kInfinity, 0, symmetric).scale));
}

TEST_CASE("calculate_qparams: float zero points leave the range as it is") {
  const QParamsRule rule{.qscheme = QScheme::PerChannelAffineFloatQParams};
  const ObservedScale positive = calculate_qparams(1.0F, 3.55F, rule);
  CHECK(positive.scale == doctest::Approx(0.01).epsilon(1e-6));
  CHECK(positive.float_zero_point == doctest::Approx(-100.0).epsilon(1e-6));
  CHECK(calculate_qparams(5.0F, 5.0F, rule).scale == 1.0F);
  CHECK(calculate_qparams(5.0F, 5.0F, rule).float_zero_point == -5.0F);
}

TEST_CASE("calculate_qparams: a 32-bit range ends at its bounds") {
  const QParamsRule rule = MinMaxObserver({.dtype = DType::QInt32}).rule();
  CHECK(calculate_qparams(0.0F, 1e6F, rule).zero_point == -2147483648LL);
  CHECK(calculate_qparams(-1e6F, 0.0F, rule).zero_point == 2147483647LL);
}

TEST_CASE("observer_range: reduce_range halves 8-bit types and custom bounds, rounding down") {
  const auto range = [](DType dtype, bool reduce, std::optional<std::int64_t> min = {},
                        std::optional<std::int64_t> max = {}) {
    return observer_range("test", dtype, reduce, min, max);
  };
  CHECK(range(DType::QInt8, false) == IntRange{-128, 127});
  CHECK(range(DType::Int8, true) == IntRange{-64, 63});
  CHECK(range(DType::UInt8, true) == IntRange{0, 127});
  CHECK(range(DType::QInt32, true) == IntRange{-2147483648LL, 2147483647LL});
  CHECK(range(DType::UInt16, true) == IntRange{0, 65535});
  CHECK(range(DType::QUInt4x2, true) == IntRange{0, 15});
  CHECK(range(DType::QUInt8, true, 0, 255) == IntRange{0, 127});
  CHECK(range(DType::QUInt8, true, 0, 127) == IntRange{0, 63});
  CHECK(range(DType::QInt8, true, -128, 127) == IntRange{-64, 63});
  CHECK(range(DType::QInt8, true, -127, 127) == IntRange{-64, 63});
  CHECK(range(DType::Float8E4M3FN, false, -8, 7) == IntRange{-8, 7});
}

TEST_CASE("observer_range: bounds that no codes fit are refused by name") {
  const auto with = [](DType dtype, std::optional<std::int64_t> min,
                       std::optional<std::int64_t> max) {
    return observer_range("MinMaxObserver", dtype, false, min, max);
  };
  CHECK_THROWS_WITH_AS(with(DType::QUInt8, 0, {}), doctest::Contains("got only quant_min"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(with(DType::QUInt8, 1, 255),
                       doctest::Contains("quant_min <= 0 <= quant_max"), ArgumentError);
  CHECK_THROWS_AS(with(DType::QUInt8, -5, -1), ArgumentError);
  CHECK_THROWS_AS(with(DType::QUInt8, 0, 0), ArgumentError);
  CHECK_THROWS_WITH_AS(with(DType::QInt8, -200, 100), doctest::Contains("at most 256 codes"),
                       ArgumentError);
  CHECK_THROWS_AS(with(DType::QInt32, -3000000000LL, 3000000000LL), ArgumentError);
  CHECK_THROWS_AS(with(DType::QInt32, std::numeric_limits<std::int64_t>::min(),
                       std::numeric_limits<std::int64_t>::max()),
                  ArgumentError);
  CHECK_THROWS_WITH_AS(with(DType::Float8E5M2, {}, {}), doctest::Contains("Float8E5M2"),
                       UnsupportedError);
}

}  // namespace quanta
