#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "quanta/nn/aimet/affine_quantizer.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/error.h"
#include "support/compare.h"
#include "support/tensors.h"

namespace quanta::aimet {
namespace {

using test::says;
using test::uniform_tensor;

QuantizeDequantize unsigned_8() { return QuantizeDequantize({.bitwidth = 8, .symmetric = false}); }

// Grid -------------------------------------------------------------------------------------------

TEST_CASE("Grid: bitwidth and signedness change as AIMET does it") {
  const Grid grid = Grid::from_bitwidth(8, true);
  CHECK(grid == Grid(-128, 127));
  CHECK(grid.with_bitwidth(4) == Grid(-8, 7));
  CHECK(grid.with_signed(false) == Grid(0, 255));
  CHECK(Grid(0, 15).with_signed(true) == Grid(-8, 7));
  CHECK(Grid::from_num_steps(14, true) == Grid(-7, 7));
  CHECK(Grid(-127, 127).centroid() == 0);
  CHECK(Grid(0, 255).centroid() == 128);
  CHECK(Grid(-3, 0).centroid() == -1);
}

TEST_CASE("Grid refuses what is none") {
  says([] { Grid(5, 5); }, "qmax: expected qmin < qmax within 2^52, got 5 and 5");
  says([] { Grid::from_bitwidth(0, true); }, "bitwidth: expected 1..52, got 0");
  says([] { Grid::from_bitwidth(53, true); }, "bitwidth: expected 1..52, got 53");
  says([] { Grid::from_num_steps(0, true); }, "num_steps: expected 1..2^52, got 0");
  says([] { static_cast<void>(Grid(-127, 127).bitwidth()); }, "got -127..127");
  says([] { static_cast<void>(Grid(1, 16).is_signed()); }, "got 1..16");
}

// Construction -----------------------------------------------------------------------------------

TEST_CASE("QuantizeDequantize says which of its options do not fit") {
  const auto make = [](const AffineQuantizerOptions& options) {
    return [=] { QuantizeDequantize{options}; };
  };
  says(make({.bitwidth = 8}), "symmetric: expected true or false, got nothing");
  says(make({.symmetric = true}), "bitwidth: expected bitwidth, or qmin and qmax, got neither");
  says(make({.qmin = 0, .symmetric = true}), "got one end");
  says(make({.bitwidth = 8, .qmin = 0, .qmax = 1, .symmetric = true}),
       "bitwidth: expected either bitwidth or qmin and qmax, got bitwidth 8");
  says(make({.bitwidth = 8, .symmetric = true, .zero_point_shift = 0.3}),
       "zero_point_shift: expected 0 or 0.5, got 0.3");
  says(make({.shape = {4, 4}, .bitwidth = 8, .symmetric = true, .block_size = {4}}),
       "block_size: expected one entry for each dimension of [4, 4], got [4]");
  says(make({.shape = {4}, .bitwidth = 8, .symmetric = true, .block_size = {0}}),
       "block_size: expected -1 or entries > 0, got [0]");
  says(make({.shape = {4},
             .bitwidth = 8,
             .symmetric = true,
             .analyzer = std::make_shared<MinMaxAnalyzer>(Dims{3})}),
       "analyzer: expected a shape that can be expanded to [4], got [3]");
}

TEST_CASE("GroupedBlockQuantizeDequantize says which of its options do not fit") {
  const auto make = [](bool symmetric, std::int64_t decompressed, const Dims& grouping) {
    return [=] {
      GroupedBlockQuantizeDequantize(
          {{.shape = {4, 4}, .bitwidth = 4, .symmetric = symmetric}, decompressed, grouping});
    };
  };
  says(make(false, 8, {}), "symmetric: expected true, got false");
  says(make(true, 3, {}), "decompressed_bw: expected 4..32 (at least the bitwidth), got 3");
  says(make(true, 8, {1, 3}), "block_grouping: expected -1 or entries that divide [4, 4]");
  says(make(true, 8, {4}), "block_grouping: expected one entry for each dimension");
}

TEST_CASE("GroupedBlockQuantizeDequantize refuses bits beyond the decompressed and asymmetry") {
  GroupedBlockQuantizeDequantize quantizer(
      {{.shape = {4, 4}, .bitwidth = 4, .symmetric = true}, 8, {1, 4}});
  quantizer.set_range(-1.0, 0.875);
  says([&] { quantizer.set_bitwidth(12); },
       "decompressed_bw: expected 12..32 (at least the bitwidth), got 8");
  says([&] { quantizer.set_symmetric(false); }, "symmetric: expected true, got false");
  CHECK(quantizer.bitwidth() == 4);
  CHECK(quantizer.symmetric());
  quantizer.set_bitwidth(8);
  CHECK(quantizer.bitwidth() == 8);
  CHECK(quantizer.get_scale()->defined());
}

// Use --------------------------------------------------------------------------------------------

TEST_CASE("a quantizer that was never calibrated refuses to quantize") {
  QuantizeDequantize quantizer = unsigned_8();
  CHECK_FALSE(quantizer.is_initialized());
  CHECK_FALSE(quantizer.get_scale().has_value());
  CHECK_FALSE(quantizer.get_offset().has_value());
  CHECK_FALSE(quantizer.get_min().has_value());
  CHECK_FALSE(quantizer.get_max().has_value());
  CHECK(quantizer.encoding() == nullptr);
  says([&] { quantizer(Tensor::ones({3})); }, "expected quantization parameters to be initialized");
  CHECK(quantizer(Tensor::ones({0, 3})).tensor().numel() == 0);
}

TEST_CASE("a quantizer is initialized once both ends were written in any way") {
  QuantizeDequantize quantizer = unsigned_8();
  quantizer.set_range(Tensor::scalar(-1.0), std::nullopt);
  CHECK_FALSE(quantizer.is_initialized());
  quantizer.named_parameters()[1].tensor.fill_(2.0);
  CHECK(quantizer.is_initialized());
  CHECK(quantizer.get_max()->item() == doctest::Approx(2.0).epsilon(0.01));
}

TEST_CASE("the documentation's per-tensor example comes out") {
  Quantize quantizer({.bitwidth = 8, .symmetric = false});
  Tensor x = Tensor::arange(256);
  auto* values = x.mutable_data<float>();
  for (int i = 0; i < 256; ++i) values[i] /= 256.0F;
  quantizer.compute_encodings([&] { quantizer(x); });
  CHECK(quantizer.get_scale()->item() == doctest::Approx(0.0039).epsilon(0.01));
  CHECK(quantizer.get_offset()->item() == 0.0);
  const QuantizedTensor q = quantizer(x);
  CHECK(q.type_name() == "QuantizedTensor");
  CHECK(q.tensor().equal(Tensor::arange(256)));
}

TEST_CASE("compute_encodings takes the range of all batches and quantizes each with its own") {
  QuantizeDequantize quantizer = unsigned_8();
  quantizer.compute_encodings([&] {
    const DequantizedTensor narrow = quantizer(Tensor::from_values({-0.1F, 0.1F}));
    CHECK(narrow.tensor().to_float_vector()[1] == doctest::Approx(0.1).epsilon(0.01));
    quantizer(Tensor::empty({0}));
    quantizer(Tensor::from_values({-1.0F, 3.0F}));
    // A later batch is not squeezed into the range of the earlier ones, nor stretched to it.
    const DequantizedTensor again = quantizer(Tensor::from_values({-0.1F, 0.1F}));
    CHECK(again.tensor().equal(narrow.tensor()));
  });
  CHECK(quantizer.get_min()->item() == doctest::Approx(-1.0).epsilon(0.01));
  CHECK(quantizer.get_max()->item() == doctest::Approx(3.0).epsilon(0.01));
  CHECK(quantizer.warning().empty());
}

TEST_CASE("compute_encodings without data or after an exception leaves the range") {
  QuantizeDequantize quantizer = unsigned_8();
  { const CalibrationScope scope = quantizer.compute_encodings(); }
  CHECK_FALSE(quantizer.is_initialized());
  quantizer.set_range(-1.0, 1.0);
  const Tensor before = *quantizer.get_max();
  const auto interrupted = [&] {
    const CalibrationScope scope = quantizer.compute_encodings();
    quantizer(Tensor::from_values({-50.0F, 50.0F}));
    throw std::runtime_error("stop");
  };
  CHECK_THROWS_AS(interrupted(), std::runtime_error);
  CHECK_FALSE(quantizer.is_calibrating());
  CHECK(quantizer.get_max()->equal(before));
  const CalibrationScope scope = quantizer.compute_encodings();
  says([&] { auto second = quantizer.compute_encodings(); }, "expected no other scope");
}

TEST_CASE("compute_encodings warns of infinite ranges") {
  QuantizeDequantize quantizer = unsigned_8();
  quantizer.compute_encodings([&] {
    quantizer(Tensor::from_values({0.0F, std::numeric_limits<float>::infinity()}));
  });
  CHECK(quantizer.warning().find("near the limits") != std::string::npos);
}

TEST_CASE("allow_overwrite protects an end of the range from calibration") {
  QuantizeDequantize quantizer = unsigned_8();
  quantizer.set_range(-4.0, 4.0);
  quantizer.allow_overwrite(false, true);
  quantizer.compute_encodings([&] { quantizer(Tensor::from_values({-1.0F, 1.0F})); });
  CHECK(quantizer.named_parameters()[0].tensor.item() == -4.0);
  CHECK(quantizer.named_parameters()[1].tensor.item() == 1.0);
  quantizer.allow_overwrite(false, false);
  quantizer.compute_encodings([&] { quantizer(Tensor::from_values({-9.0F, 9.0F})); });
  CHECK(quantizer.named_parameters()[1].tensor.item() == 1.0);
}

TEST_CASE("calibrating one end by scale and offset needs a range and fails whole without") {
  struct Two : nn::Module {
    nn::Child<QuantizeDequantize> first, second;
    Two() {
      register_module("first", first, {.bitwidth = 8, .symmetric = false});
      register_module("second", second, {.bitwidth = 8, .symmetric = false});
    }
    Tensor forward(const Tensor& x) const override { return add(first(x), second(x)); }
  };
  Two two;
  two.second->use_scale_offset();
  two.second->allow_overwrite(true, false);
  const Tensor x = Tensor::from_values({-1.0F, 1.0F});
  says([&] { compute_encodings(two, [&] { two(x); }); },
       "compute_encodings: expected a quantizer by scale and offset that is initialized");
  CHECK_FALSE(two.first->is_initialized());
  two.second->set_range(-4.0, 4.0);
  compute_encodings(two, [&] { two(mul_scalar(x, 2.0)); });
  CHECK(two.first->is_initialized());
  CHECK(two.second->get_min()->item() == doctest::Approx(-2.0).epsilon(0.02));
}

TEST_CASE("a batch that does not fit the shape is refused while calibrating") {
  QuantizeDequantize quantizer(
      {.shape = {4, 2}, .bitwidth = 4, .symmetric = true, .block_size = {1, 8}});
  quantizer.compute_encodings([&] {
    says([&] { quantizer(Tensor::ones({4, 15})); }, "block_size: expected size of shape");
  });
  CHECK_FALSE(quantizer.is_initialized());
}

TEST_CASE("set_range by scale and offset needs both ends the first time") {
  QuantizeDequantize quantizer = unsigned_8();
  quantizer.use_scale_offset();
  says([&] { quantizer.set_range(Tensor::scalar(-1.0), std::nullopt); },
       "set_range: expected both ends");
  quantizer.set_range(-1.0, 1.55);
  CHECK(quantizer.get_scale()->item() == doctest::Approx(0.01));
  CHECK(quantizer.get_offset()->item() == -100.0);
  quantizer.set_range(std::nullopt, Tensor::scalar(4.1));
  CHECK(quantizer.get_min()->item() == doctest::Approx(-1.0));
  says([&] { quantizer.set_range(Tensor::ones({2}), std::nullopt); },
       "min: expected a floating tensor that can be expanded to []");
}

TEST_CASE("use_scale_offset keeps range and results") {
  QuantizeDequantize quantizer({.shape = {3, 1}, .bitwidth = 8, .symmetric = false});
  const Tensor x = uniform_tensor({3, 20}, 1);
  quantizer.compute_encodings([&] { quantizer(x); });
  const Tensor before = quantizer(x);
  quantizer.use_scale_offset();
  CHECK(quantizer.named_parameters()[0].path == "scale");
  CHECK(Tensor(quantizer(x)).equal(before));
}

TEST_CASE("minimum and maximum are trained through scale and offset") {
  QuantizeDequantize quantizer({.bitwidth = 4, .symmetric = false});
  quantizer.set_range(-1.0, 1.0);
  quantizer.requires_grad_();
  const Tensor x = Tensor::from_values({-5.0F, 5.0F});
  x.set_requires_grad();
  quantizer(x).tensor().backward(Tensor::ones({2}));
  // Both values lie outside: they are the ends themselves, so each end moves its own.
  CHECK(x.grad().equal(Tensor::zeros({2})));
  const auto parameters = quantizer.named_parameters();
  const double sum = parameters[0].tensor.grad().item() + parameters[1].tensor.grad().item();
  CHECK(sum == doctest::Approx(2.0));
}

TEST_CASE("a state brings back grid, shape, blocks and range") {
  for (const bool by_scale : {false, true}) {
    QuantizeDequantize from(
        {.shape = {4, 2}, .qmin = -7, .qmax = 7, .symmetric = true, .block_size = {1, 8}});
    from.compute_encodings([&] { from(uniform_tensor({4, 16}, 1)); });
    if (by_scale) from.use_scale_offset();
    StateDict state;
    for (const auto& [name, tensor] : from.state_dict()) state.set("w." + name, tensor);
    QuantizeDequantize to = unsigned_8();
    says([&] { to.load_state_dict(from.state_dict()); }, "load_state_dict: state: expected");
    to.load_state_and_shape(state, "w.");
    CHECK(to.to_string() ==
          "QuantizeDequantize(shape=(4, 2), block_size=(1, 8), qmin=-7, qmax=7, symmetric=True)");
    const Tensor x = uniform_tensor({4, 16}, 2);
    CHECK(Tensor(to(x)).equal(from(x)));
    state.erase("w._extra_state.qmin");
    says([&] { to.load_state_and_shape(state, "w."); }, "missing names: '_extra_state.qmin'");
    CHECK(Tensor(to(x)).equal(from(x)));
  }
}

TEST_CASE("an uninitialized state stays uninitialized") {
  QuantizeDequantize to = unsigned_8();
  to.set_range(-1.0, 1.0);
  to.load_state_dict(unsigned_8().state_dict());
  CHECK_FALSE(to.is_initialized());
}

TEST_CASE("a clone has parameters of its own") {
  QuantizeDequantize from = unsigned_8();
  from.set_range(-1.0, 1.0);
  const auto copy = std::dynamic_pointer_cast<QuantizeDequantize>(from.clone());
  from.set_range(-9.0, 9.0);
  CHECK(copy->get_max()->item() == doctest::Approx(1.0).epsilon(0.01));
  CHECK(std::dynamic_pointer_cast<QuantizeDequantize>(unsigned_8().clone())->is_initialized() ==
        false);
}

TEST_CASE("grouped blocks share whole multiples of one scale") {
  GroupedBlockQuantizeDequantize quantizer(
      {{.shape = {3, 8}, .bitwidth = 4, .symmetric = true, .block_size = {1, 4}}, 8, {1, 4}});
  const Tensor x = uniform_tensor({3, 32}, 5);
  quantizer.compute_encodings([&] { quantizer(x); });
  const std::vector<float> scale = quantizer.get_scale()->to_float_vector();
  const std::vector<float> channel = quantizer.per_channel_scale()->to_float_vector();
  const std::vector<float> whole = quantizer.per_block_int_scale()->to_float_vector();
  REQUIRE(channel.size() == 6);
  for (std::size_t i = 0; i < scale.size(); ++i) {
    CHECK(whole[i] >= 1.0F);
    CHECK(whole[i] <= 16.0F);
    CHECK(whole[i] == std::nearbyint(whole[i]));
    CHECK(scale[i] == whole[i] * channel[i / 4]);
  }
}

}  // namespace
}  // namespace quanta::aimet
