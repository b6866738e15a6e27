#include "quanta/observers/min_max_observer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "quanta/runtime/error.h"
#include "quanta/runtime/parallel.h"

namespace quanta {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor random_tensor(const Dims& sizes, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.3F, 2.0F);
  Tensor x = Tensor::empty(sizes);
  auto* data = x.mutable_data<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) data[i] = normal(generator);
  return x;
}

std::vector<float> mins(const RangeObserver& observer) {
  return observer.min_val().to_float_vector();
}
std::vector<float> maxs(const RangeObserver& observer) {
  return observer.max_val().to_float_vector();
}

// One row a channel, by the plain definition.
void check_channels(const Tensor& x, std::int64_t axis) {
  PerChannelMinMaxObserver observer({.ch_axis = axis});
  observer.forward(x);
  const std::int64_t wrapped = axis < 0 ? axis + x.dim() : axis;
  std::vector<float> low;
  std::vector<float> high;
  for (std::int64_t c = 0; c < x.size(wrapped); ++c) {
    const std::vector<float> row = x.select(wrapped, c).to_float_vector();
    low.push_back(*std::min_element(row.begin(), row.end()));
    high.push_back(*std::max_element(row.begin(), row.end()));
  }
  CHECK(mins(observer) == low);
  CHECK(maxs(observer) == high);
}

}  // namespace

TEST_CASE("MinMaxObserver: the range of any length and any threads is that of the elements") {
  for (const std::int64_t count : {1, 2, 7, 31, 32, 33, 64, 100, 200001}) {
    CAPTURE(count);
    const Tensor x = random_tensor({count}, static_cast<std::uint32_t>(count));
    const std::vector<float> values = x.to_float_vector();
    MinMaxObserver observer;
    CHECK(observer.forward(x).is_same(x));
    CHECK(mins(observer)[0] == *std::min_element(values.begin(), values.end()));
    CHECK(maxs(observer)[0] == *std::max_element(values.begin(), values.end()));
  }
}

TEST_CASE("MinMaxObserver: memory order and dtype of the input do not matter") {
  const Tensor x = random_tensor({2, 5, 6, 7}, 1);
  MinMaxObserver plain;
  plain.forward(x);
  MinMaxObserver last;
  last.forward(x.contiguous(MemoryFormat::ChannelsLast));
  MinMaxObserver strided;
  strided.forward(x.slice(3, 0, 7, 2));
  strided.forward(x.slice(3, 1, 7, 2));
  MinMaxObserver wide;
  wide.forward(x.to(DType::Float64));
  for (const MinMaxObserver* other : {&last, &strided, &wide}) {
    CHECK(mins(*other) == mins(plain));
    CHECK(maxs(*other) == maxs(plain));
  }
}

TEST_CASE("MinMaxObserver: a NaN anywhere is refused and the batch is left out") {
  for (const std::int64_t position : {0, 3, 40, 99}) {
    Tensor x = random_tensor({100}, 3);
    x.mutable_data<float>()[position] = kNan;
    MinMaxObserver observer;
    CHECK_THROWS_WITH_AS(observer.forward(x),
                         doctest::Contains("MinMaxObserver: x: expected finite values"),
                         ArgumentError);
    CHECK_FALSE(observer.has_data());
    observer.forward(random_tensor({10}, 4));
    const std::vector<float> before = maxs(observer);
    CHECK_THROWS_AS(observer.forward(x), ArgumentError);
    CHECK(maxs(observer) == before);
  }
}

TEST_CASE("MinMaxObserver: empty tensors change nothing and integers are refused") {
  MinMaxObserver observer;
  observer.forward(Tensor::empty({0, 3}));
  CHECK_FALSE(observer.has_data());
  CHECK(mins(observer)[0] == kInfinity);
  CHECK(observer.min_val().dim() == 0);
  CHECK(observer.calculate_qparams().scale.to_float_vector() == std::vector<float>{1.0F});
  CHECK(observer.calculate_qparams().zero_point.to_int64_vector() == std::vector<std::int64_t>{0});
  CHECK_THROWS_WITH_AS(observer.forward(Tensor::ones({2}, DType::Int32)),
                       doctest::Contains("MinMaxObserver: x: expected a floating tensor"),
                       ArgumentError);
  CHECK_THROWS_AS(observer.forward(Tensor()), ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_with(Tensor::ones({2}), observer),
                       doctest::Contains("expected a MinMaxObserver that saw data"), ArgumentError);
}

TEST_CASE("MinMaxObserver: reset_min_max_vals forgets") {
  MinMaxObserver observer;
  observer.forward(Tensor::from_values({-1, 2}));
  CHECK(observer.has_data());
  observer.reset_min_max_vals();
  CHECK_FALSE(observer.has_data());
  PerChannelMinMaxObserver channels;
  channels.forward(Tensor::ones({2, 2}));
  channels.reset_min_max_vals();
  CHECK(channels.min_val().sizes() == Dims{0});
  channels.forward(Tensor::ones({5, 2}));
  CHECK(channels.min_val().sizes() == Dims{5});
}

TEST_CASE("MovingAverageMinMaxObserver: the first batch sets the range and later ones move it") {
  MovingAverageMinMaxObserver observer({.averaging_constant = 0.25});
  observer.forward(Tensor::from_values({-4, 8}));
  CHECK(mins(observer)[0] == -4.0F);
  observer.forward(Tensor::from_values({0, 16}));
  CHECK(mins(observer)[0] == -3.0F);
  CHECK(maxs(observer)[0] == 10.0F);
}

TEST_CASE("PerChannelMinMaxObserver: every axis and memory order gives each channel's range") {
  const Tensor x = random_tensor({3, 17, 4, 5}, 5);
  for (const std::int64_t axis : {0, 1, 2, 3, -1, -3}) {
    CAPTURE(axis);
    check_channels(x, axis);
    check_channels(x.contiguous(MemoryFormat::ChannelsLast), axis);
    check_channels(x.slice(2, 0, 4, 2), axis);
    check_channels(x.permute({2, 0, 3, 1}), axis);
  }
  check_channels(random_tensor({1, 9}, 6), 0);
  check_channels(random_tensor({300, 512}, 7), 1);
  check_channels(random_tensor({64, 4000}, 8), 0);
}

TEST_CASE("PerChannelMinMaxObserver: another number of channels or no such axis is refused") {
  PerChannelMinMaxObserver observer({.ch_axis = 1});
  observer.forward(Tensor::ones({2, 3}));
  CHECK_THROWS_WITH_AS(observer.forward(Tensor::ones({2, 4})),
                       doctest::Contains("expected 3 channels along axis 1 as before, got 4"),
                       ArgumentError);
  CHECK_THROWS_AS(observer.forward(Tensor::ones({2})), ArgumentError);
  CHECK(observer.max_val().sizes() == Dims{3});
}

TEST_CASE("observers of ranges: settings that make no sense are refused at construction") {
  CHECK_THROWS_WITH_AS(MinMaxObserver({.dtype = DType::Float32}),
                       doctest::Contains("MinMaxObserver: dtype: expected QInt8"), ArgumentError);
  CHECK_THROWS_AS(MinMaxObserver({.dtype = DType::QUInt2x4}), ArgumentError);
  CHECK_THROWS_AS(MinMaxObserver({.qscheme = QScheme::PerChannelAffine}), UnsupportedError);
  CHECK_THROWS_AS(MinMaxObserver({.qscheme = QScheme::PerChannelAffineFloatQParams}),
                  UnsupportedError);
  CHECK_THROWS_AS(PerChannelMinMaxObserver({.qscheme = QScheme::PerTensorAffine}),
                  UnsupportedError);
  CHECK_THROWS_WITH_AS(
      MinMaxObserver({.qscheme = QScheme::PerTensorSymmetric, .reduce_range = true}),
      doctest::Contains("reduce_range"), UnsupportedError);
  CHECK_NOTHROW(MinMaxObserver({.is_dynamic = true}));
  CHECK_THROWS_AS(MovingAverageMinMaxObserver({.is_dynamic = true}), UnsupportedError);
  CHECK_NOTHROW(MovingAverageMinMaxObserver({.averaging_constant = 1.0, .is_dynamic = true}));
  CHECK_THROWS_AS(PerChannelMinMaxObserver({.is_dynamic = true}), UnsupportedError);
  CHECK_THROWS_AS(
      MovingAveragePerChannelMinMaxObserver({.averaging_constant = 1.0, .is_dynamic = true}),
      UnsupportedError);
  CHECK_THROWS_AS(MovingAverageMinMaxObserver({.averaging_constant = 1.5}), ArgumentError);
  CHECK_THROWS_AS(MovingAverageMinMaxObserver({.averaging_constant = kNan}), ArgumentError);
  CHECK_THROWS_AS(MinMaxObserver({.eps = -1.0}), ArgumentError);
  CHECK_THROWS_AS(MinMaxObserver::with_args({.quant_min = 3, .quant_max = 9}), ArgumentError);
}

TEST_CASE("merge: observers of random parts give what one of the whole gives") {
  std::mt19937 generator(11);
  for (int round = 0; round < 20; ++round) {
    MinMaxObserver whole;
    PerChannelMinMaxObserver whole_channels;
    std::vector<MinMaxObserver> parts(3);
    std::vector<PerChannelMinMaxObserver> channel_parts(3);
    for (int batch = 0; batch < 6; ++batch) {
      const Tensor x = random_tensor({5, 9}, static_cast<std::uint32_t>(generator()));
      const std::size_t part = generator() % 3;
      whole.forward(x);
      whole_channels.forward(x);
      parts[part].forward(x);
      channel_parts[part].forward(x);
    }
    for (std::size_t i = 1; i < 3; ++i) {
      parts[0].merge(parts[i]);
      channel_parts[0].merge(channel_parts[i]);
    }
    CHECK(mins(parts[0]) == mins(whole));
    CHECK(maxs(parts[0]) == maxs(whole));
    CHECK(mins(channel_parts[0]) == mins(whole_channels));
    CHECK(maxs(channel_parts[0]) == maxs(whole_channels));
  }
}

TEST_CASE("merge: other classes and settings and moving averages are refused") {
  MinMaxObserver observer;
  CHECK_THROWS_WITH_AS(observer.merge(PerChannelMinMaxObserver()),
                       doctest::Contains("expected a MinMaxObserver, got a PerChannel"),
                       ArgumentError);
  CHECK_THROWS_AS(observer.merge(MinMaxObserver({.dtype = DType::QInt8})), ArgumentError);
  CHECK_THROWS_AS(PerChannelMinMaxObserver().merge(PerChannelMinMaxObserver({.ch_axis = 1})),
                  ArgumentError);
  CHECK_THROWS_AS(MovingAverageMinMaxObserver().merge(MovingAverageMinMaxObserver()),
                  UnsupportedError);
  PerChannelMinMaxObserver three;
  three.forward(Tensor::ones({3, 1}));
  PerChannelMinMaxObserver four;
  four.forward(Tensor::ones({4, 1}));
  CHECK_THROWS_AS(three.merge(four), ArgumentError);
  observer.forward(Tensor::from_values({1, 2}));
  observer.merge(observer);
  CHECK(maxs(observer)[0] == 2.0F);
}

TEST_CASE("state: what was saved can be loaded under a prefix") {
  MinMaxObserver observer({.eps = 0.25});
  observer.forward(Tensor::from_values({-1, 2}));
  StateDict state;
  observer.save_state(state, "conv.activation_post_process.");
  CHECK(state.at("conv.activation_post_process.eps").sizes() == Dims{1});
  CHECK(state.at("conv.activation_post_process.min_val").dim() == 0);
  MinMaxObserver loaded;
  loaded.load_state(state, "conv.activation_post_process.");
  CHECK(mins(loaded)[0] == -1.0F);
  CHECK(maxs(loaded)[0] == 2.0F);
  CHECK(loaded.calculate_qparams().scale.item() == 0.25);

  PerChannelMinMaxObserver channels;
  channels.forward(random_tensor({4, 3}, 1));
  StateDict channel_state;
  channels.save_state(channel_state, "");
  PerChannelMinMaxObserver resized;
  resized.forward(random_tensor({7, 3}, 2));
  resized.load_state(channel_state, "");
  CHECK(mins(resized) == mins(channels));
  CHECK(maxs(resized) == maxs(channels));
}

TEST_CASE("state: torch's old per-channel names are understood") {
  StateDict state;
  state.set("eps", Tensor::from_values({0.5}));
  state.set("min_vals", Tensor::from_values({-1, -2}));
  state.set("max_vals", Tensor::from_values({1, 2}));
  PerChannelMinMaxObserver observer;
  observer.load_state(state, "");
  CHECK(maxs(observer) == std::vector<float>{1, 2});
}

TEST_CASE("state: a failed load names the tensor and changes nothing") {
  MinMaxObserver observer;
  observer.forward(Tensor::from_values({-1, 2}));
  StateDict state;
  state.set("eps", Tensor::from_values({0.5}));
  state.set("min_val", Tensor::scalar(-9));
  CHECK_THROWS_WITH_AS(observer.load_state(state, ""), doctest::Contains("max_val"), ArgumentError);
  state.set("max_val", Tensor::ones({3}));
  CHECK_THROWS_WITH_AS(observer.load_state(state, ""),
                       doctest::Contains("max_val: expected one value, got 3"), ArgumentError);
  state.set("max_val", Tensor::ones({1}, DType::Int32));
  CHECK_THROWS_AS(observer.load_state(state, ""), ArgumentError);
  CHECK(mins(observer)[0] == -1.0F);
  CHECK(observer.calculate_qparams().scale.item() == doctest::Approx(3.0 / 255.0));

  PerChannelMinMaxObserver channels;
  state.set("min_val", Tensor::ones({2}));
  state.set("max_val", Tensor::ones({3}));
  CHECK_THROWS_AS(channels.load_state(state, ""), ArgumentError);
  CHECK_FALSE(channels.has_data());
}

TEST_CASE("forward: many threads at once see what one thread sees") {
  std::vector<Tensor> batches;
  for (std::uint32_t i = 0; i < 64; ++i) batches.push_back(random_tensor({8, 33}, i));
  MinMaxObserver serial;
  PerChannelMinMaxObserver serial_channels;
  for (const Tensor& batch : batches) {
    serial.forward(batch);
    serial_channels.forward(batch);
  }
  MinMaxObserver shared;
  PerChannelMinMaxObserver shared_channels;
  std::vector<std::thread> threads;
  for (std::size_t worker = 0; worker < 4; ++worker) {
    threads.emplace_back([&, worker] {
      for (std::size_t i = worker; i < batches.size(); i += 4) {
        shared.forward(batches[i]);
        shared_channels.forward(batches[i]);
        static_cast<void>(shared.calculate_qparams());
        static_cast<void>(shared.clone());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(mins(shared) == mins(serial));
  CHECK(maxs(shared) == maxs(serial));
  CHECK(mins(shared_channels) == mins(serial_channels));
  CHECK(maxs(shared_channels) == maxs(serial_channels));
}

TEST_CASE("clone: the copy goes its own way") {
  MinMaxObserver observer;
  observer.forward(Tensor::from_values({-1, 2}));
  const std::shared_ptr<Observer> copy = observer.clone();
  copy->forward(Tensor::from_values({-5, 5}));
  CHECK(mins(observer)[0] == -1.0F);
  CHECK(copy->name() == "MinMaxObserver");
}

TEST_CASE("calculate_qparams: a loaded range upside down is refused") {
  StateDict state;
  state.set("eps", Tensor::from_values({0.5}));
  state.set("min_val", Tensor::scalar(2));
  state.set("max_val", Tensor::scalar(1));
  MinMaxObserver observer;
  observer.load_state(state, "");
  CHECK_THROWS_WITH_AS(observer.calculate_qparams(),
                       doctest::Contains("expected min_val <= max_val, got 2 and 1"),
                       ArgumentError);
}

TEST_CASE("RangeObserver: a batch reduction makes the range that is taken in") {
  const ValueRange other{{-4.0F}, {1.0F}};
  const auto widen = [&](ValueRange& batch) { batch.widen(other); };
  MinMaxObserver whole;
  MovingAverageMinMaxObserver moving({.averaging_constant = 0.5});
  for (RangeObserver* observer : std::initializer_list<RangeObserver*>{&whole, &moving}) {
    observer->set_batch_reduction(widen);
    observer->forward(Tensor::from_values({0, 3}));
    CHECK(mins(*observer) == std::vector<float>{-4.0F});
    CHECK(maxs(*observer) == std::vector<float>{3.0F});
    // An empty part has a say as well.
    observer->forward(Tensor::empty({0, 2}));
  }
  CHECK(maxs(whole) == std::vector<float>{3.0F});
  CHECK(maxs(moving) == std::vector<float>{2.0F});

  // Copies, and the observer without it, are on their own.
  const auto copy = std::static_pointer_cast<RangeObserver>(moving.clone());
  moving.set_batch_reduction({});
  for (RangeObserver* observer : {copy.get(), static_cast<RangeObserver*>(&moving)}) {
    observer->forward(Tensor::from_values({-4, 4}));
    CHECK(mins(*observer) == std::vector<float>{-4.0F});
    CHECK(maxs(*observer) == std::vector<float>{3.0F});
    observer->forward(Tensor::empty({0}));
    CHECK(maxs(*observer) == std::vector<float>{3.0F});
  }
}

TEST_CASE("RangeObserver: a batch reduction of channels that is empty or throws changes nothing") {
  PerChannelMinMaxObserver observer({.ch_axis = 1});
  std::size_t entries = 0;
  observer.set_batch_reduction([&](ValueRange& batch) { entries = batch.min.size(); });
  observer.forward(Tensor::empty({0, 3}));
  CHECK(entries == 3);
  CHECK_FALSE(observer.has_data());
  observer.forward(Tensor::from_values({1, 2}, {1, 2}));
  observer.set_batch_reduction([](ValueRange&) { throw NumericError("no"); });
  CHECK_THROWS_AS(observer.forward(Tensor::from_values({5, 6}, {1, 2})), NumericError);
  CHECK(maxs(observer) == std::vector<float>{1.0F, 2.0F});
}

TEST_CASE("quantize_with: codes stay within the observer's range") {
  MinMaxObserver seven_bits({.quant_min = 0, .quant_max = 127});
  seven_bits.forward(Tensor::from_values({0, 127}));
  const QTensor y = quantize_with(Tensor::from_values({-3, 5, 126, 400}), seven_bits);
  CHECK(y.to_int64_vector() == std::vector<std::int64_t>{0, 5, 126, 127});

  PerChannelMinMaxObserver weights({.dtype = DType::QInt8,
                                    .qscheme = QScheme::PerChannelSymmetric,
                                    .quant_min = -127,
                                    .quant_max = 127});
  const Tensor w = Tensor::from_values({-127, 1, 63.5, -10}, {2, 2});
  weights.forward(w);
  CHECK(quantize_with(w, weights).q_per_channel_axis() == 0);
  CHECK(quantize_with(w, weights).to_int64_vector() ==
        std::vector<std::int64_t>{-127, 1, 127, -20});
  CHECK(
      quantize_with(Tensor::from_values({-1000, 1, -64, 64}, {2, 2}), weights).to_int64_vector() ==
      std::vector<std::int64_t>{-127, 1, -127, 127});

  MinMaxObserver nibbles({.dtype = DType::QUInt4x2, .quant_min = 0, .quant_max = 7});
  nibbles.forward(Tensor::from_values({0, 7}));
  const QTensor packed = quantize_with(Tensor::from_values({15, 3, 9}), nibbles);
  CHECK(packed.int_repr_view().to_int64_vector() == std::vector<std::int64_t>{0x37, 0x07});
}

TEST_CASE("quantize_with: float zero points and plain integer dtypes") {
  PerChannelMinMaxObserver embedding({.qscheme = QScheme::PerChannelAffineFloatQParams});
  const Tensor w = Tensor::from_values({0, 255, 10, 20}, {2, 2});
  embedding.forward(w);
  CHECK(quantize_with(w, embedding).to_int64_vector() == std::vector<std::int64_t>{0, 255, 0, 255});
  MinMaxObserver plain({.dtype = DType::Int8});
  plain.forward(w);
  CHECK_THROWS_WITH_AS(quantize_with(w, plain), doctest::Contains("got Int8"), UnsupportedError);
}

}  // namespace quanta
