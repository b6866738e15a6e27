#include "quanta/nn/reference_cell.h"

#include <doctest/doctest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "quanta/observers/defaults.h"
#include "quanta/observers/histogram_observer.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/tensors.h"

namespace quanta::nn {
namespace {

constexpr std::int64_t kInputs = 5;
constexpr std::int64_t kHidden = 3;
constexpr CellOptions kOptions{.input_size = kInputs, .hidden_size = kHidden};

template <typename Float>
std::shared_ptr<Float> float_cell() {
  manual_seed(2);
  const auto cell = make_module<Float>(kOptions);
  cell->eval();
  return cell;
}

// What the float cell gives with the dequantized weights in the place of its own.
template <typename Reference, typename Float>
void check_cell(const std::string& name) {
  CAPTURE(name);
  const auto source = float_cell<Float>();
  source->set_qconfig(per_channel_dynamic_qconfig());
  const std::shared_ptr<Module> made = Reference::from_float(static_cast<const Module&>(*source));
  const auto& cell = dynamic_cast<const Reference&>(*made);
  CHECK(cell.type_name() == "Quantized" + name + "(Reference)");
  CHECK(cell.qconfig() == nullptr);
  CHECK(cell.weight_ih.equal(source->weight_ih));
  CHECK_FALSE(cell.weight_ih.is_same(source->weight_ih));

  const auto dequantized = float_cell<Float>();
  dequantized->weight_ih = dequantize(cell.get_quantized_weight_ih());
  dequantized->weight_hh = dequantize(cell.get_quantized_weight_hh());
  dequantized->bias_ih = source->bias_ih;
  dequantized->bias_hh = source->bias_hh;
  CHECK_FALSE(dequantized->weight_hh.equal(source->weight_hh));
  const Tensor x = test::random_tensor({4, kInputs}, 8);
  const Tensor got = cell(x);
  const Tensor want = (*dequantized)(x);
  const std::vector<float> lhs = got.to_float_vector();
  const std::vector<float> rhs = want.to_float_vector();
  REQUIRE(got.sizes() == Dims{4, kHidden});
  for (std::size_t i = 0; i < lhs.size(); ++i)
    CHECK(lhs[i] == doctest::Approx(rhs[i]).epsilon(1e-6));
  CHECK(cell(x[0]).sizes() == Dims{kHidden});
}

TEST_CASE("reference cells: compute with both weights as quantizing leaves them") {
  check_cell<reference::RNNCell, RNNCell>("RNNCell");
  check_cell<reference::LSTMCell, LSTMCell>("LSTMCell");
  check_cell<reference::GRUCell, GRUCell>("GRUCell");
}

TEST_CASE("reference cells: the state has torch's names and loads into another cell") {
  const auto source = float_cell<LSTMCell>();
  source->set_qconfig(per_channel_dynamic_qconfig());
  const auto cell = reference::LSTMCell::from_float(static_cast<const Module&>(*source));
  const StateDict state = cell->state_dict();
  for (const char* name :
       {"weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_ih_scale", "weight_ih_zero_point",
        "weight_ih_axis", "weight_hh_scale", "weight_hh_zero_point", "weight_hh_axis"}) {
    CAPTURE(name);
    CHECK(state.contains(name));
  }
  CHECK(state.size() == 10);
  const auto other_source = make_module<LSTMCell>(kOptions);
  other_source->eval();
  other_source->set_qconfig(per_channel_dynamic_qconfig());
  const auto other = reference::LSTMCell::from_float(static_cast<const Module&>(*other_source));
  const Tensor x = test::random_tensor({4, kInputs}, 8);
  CHECK_FALSE((*other)(x).equal((*cell)(x)));
  other->load_state_dict(state);
  CHECK((*other)(x).equal((*cell)(x)));
  StateDict wrong = state;
  wrong.set("weight_hh_scale", Tensor::ones({2}));
  CHECK_THROWS_WITH_AS(other->load_state_dict(wrong), doctest::Contains("weight_hh_scale"),
                       ArgumentError);
  CHECK((*other)(x).equal((*cell)(x)));
}

TEST_CASE("reference cells: another module or none of the parameters is refused") {
  const auto lstm = float_cell<LSTMCell>();
  const auto& module = static_cast<const Module&>(*lstm);
  CHECK_THROWS_WITH_AS(reference::LSTMCell::from_float(module),
                       doctest::Contains("expected a LSTMCell with a qconfig for weights"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(reference::GRUCell::from_float(module), doctest::Contains("got LSTMCell"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(reference::LSTMCell::from_float(*lstm, {}),
                       doctest::Contains("WeightQParams: scale"), ArgumentError);
}

TEST_CASE("reference cells: weights with NaN or infinity are refused") {
  const auto source = float_cell<nn::GRUCell>();
  const reference::WeightQParams one{.scale = Tensor::scalar(0.01),
                                     .zero_point = Tensor::scalar(0.0, DType::Int64)};
  const auto cell = reference::GRUCell::from_float(*source, {one, one});
  for (const char* name : {"weight_ih", "weight_hh"}) {
    CAPTURE(name);
    StateDict state = cell->state_dict();
    const Tensor odd = state.at(name).clone();
    odd.mutable_data<float>()[1] = std::numeric_limits<float>::infinity();
    state.set(name, odd);
    const std::string text =
        std::string(name) + ": load_state_dict: weight: expected finite numbers";
    CHECK_THROWS_WITH_AS(cell->load_state_dict(state), doctest::Contains(text.c_str()),
                         ArgumentError);
    auto broken = float_cell<nn::GRUCell>();
    (std::string(name) == "weight_ih" ? broken->weight_ih : broken->weight_hh).copy_(odd);
    CHECK_THROWS_WITH_AS(reference::GRUCell::from_float(*broken, {one, one}),
                         doctest::Contains("weight: expected finite numbers"), ArgumentError);
    // An observer that leaves infinity out.
    QConfig qconfig = default_dynamic_qconfig();
    qconfig.weight = HistogramObserver::with_args(
        {.dtype = DType::QInt8, .qscheme = QScheme::PerTensorSymmetric});
    broken->set_qconfig(qconfig);
    CHECK_THROWS_WITH_AS(reference::GRUCell::from_float(static_cast<const Module&>(*broken)),
                         doctest::Contains("weight: expected finite numbers"), ArgumentError);
  }
  CHECK(cell->weight_ih.equal(source->weight_ih));
}

}  // namespace
}  // namespace quanta::nn
