#include "quanta/fusion/freeze.h"

#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <vector>

#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/linear.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/conv.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/allocator.h"
#include "quanta/runtime/cuda/emulation.h"
#include "quanta/runtime/cuda/graph.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/profiler.h"
#include "quanta/runtime/random.h"

// Plans on a device, whose steps are captured.

namespace quanta {
namespace {

namespace emulation = cuda::emulation;

const Device kDevice = Device::cuda_emulated();

std::size_t bytes_in_use() { return allocator_stats(kDevice).in_use; }

// Two convolutions of codes and a float input and output.
struct Convs : nn::Module {
  quantized::ConvPackedParams first, second;

  Convs() {
    Generator generator(11);
    for (auto* conv : {&first, &second}) {
      const QTensor weight =
          quantize_per_tensor(randn({8, 8, 3, 3}, generator), 0.02, 0, DType::QInt8);
      *conv = {weight, randn({8}, generator), ConvOptions{.padding = {1}}, 2};
    }
    eval();
  }
  Tensor forward(const Tensor& x) const override {
    const QTensor codes(quantize_per_tensor(x, 0.04, 121, DType::QUInt8));
    const QTensor y = quantized::conv_relu(codes, first, 0.11, 3);
    return dequantize(quantized::conv(y, second, 0.3, 97));
  }
};

Tensor image(std::uint64_t seed) {
  Generator generator(seed);
  return randn({1, 8, 6, 7}, generator).contiguous(MemoryFormat::ChannelsLast);
}

// Between ops that a graph can hold: a dynamic layer, which is one of them, and an embedding, whose
// indices the host has to look at.
struct Dynamic : nn::Module {
  nn::Child<nn::Linear> linear;

  Dynamic() { register_module("linear", linear, {.in_features = 20, .out_features = 33}); }
  Tensor forward(const Tensor& x) const override {
    const Tensor codes = dequantize(quantize_per_tensor(x, 0.04, 121, DType::QUInt8));
    return dequantize(quantize_per_tensor(linear(codes), 0.04, 121, DType::QUInt8));
  }
};
struct Embedded : nn::Module {
  nn::Child<nn::Embedding> embedding;
  nn::Child<nn::Linear> linear;

  Embedded() {
    register_module("embedding", embedding, {.num_embeddings = 9, .embedding_dim = 20});
    register_module("linear", linear, {.in_features = 20, .out_features = 33});
  }
  Tensor forward(const Tensor& indices) const override {
    return relu(linear(embedding(indices.to(DType::Int64))));
  }
};

class NoFailure {
 public:
  ~NoFailure() {
    for (const auto call : {emulation::Call::Allocation, emulation::Call::Copy,
                            emulation::Call::Launch, emulation::Call::Capture}) {
      emulation::fail_later(call, 0);
    }
  }
};

}  // namespace

TEST_CASE("freeze on a device: later runs are a copy and a graph and a copy") {
  const Convs convs;
  const auto frozen = freeze(convs, image(1).to(kDevice));
  const std::uint64_t steps = frozen.info().steps;
  CHECK(frozen.to_string().find("CUDA graphs: " + std::to_string(steps) + " steps captured, 0") !=
        std::string::npos);
  std::vector<Tensor> results;
  for (std::uint64_t seed = 1; seed < 5; ++seed) {
    const Tensor x = image(seed).to(kDevice);
    emulation::reset_counters();
    results.push_back(frozen(x));
    const emulation::Counters counters = emulation::counters();
    CHECK(counters.graph_launches == 1);
#ifdef NDEBUG  // with assertions each run is compared with the network's
    CHECK(counters.launches == 0);
    CHECK(counters.copies == 2);
#endif
    CHECK(counters.captures == 0);
  }
  // A result is its caller's: later runs have not written to it.
  for (std::uint64_t seed = 1; seed < 5; ++seed) {
    CHECK(results[seed - 1].cpu().equal(static_cast<const nn::Module&>(convs)(image(seed))));
  }
}

TEST_CASE("freeze on a device: an input in another memory order gives the same result") {
  const Convs convs;
  const auto frozen = freeze(convs, image(1).to(kDevice));
  const Tensor x = image(2);
  const Tensor expected = static_cast<const nn::Module&>(convs)(x);
  CHECK(frozen(x.contiguous().to(kDevice)).cpu().equal(expected));
  const Tensor wide = Tensor::zeros({1, 8, 6, 14}).to(kDevice);
  const Tensor view = wide.narrow(3, 2, 7);
  view.copy_(x.to(kDevice));
  CHECK(frozen(view).cpu().equal(expected));
}

TEST_CASE("freeze on a device: dynamic layers choose their scale there, within the graph") {
  Dynamic network;
  network.eval();
  auto int8 = quantize_dynamic(network);
  Generator generator(5);
  const Tensor x = randn({4, 20}, generator);
  const Tensor expected = int8(x);
  const Tensor other = mul(x, Tensor::scalar(3.0));
  const Tensor expected_other = int8(other);
  int8.to(kDevice);
  const auto frozen = freeze(int8, x.to(kDevice));
  CHECK(frozen.to_string().find(" captured, 0 launched one by one\n") != std::string::npos);
  for (int run = 0; run < 2; ++run) {
    emulation::reset_counters();
    CHECK(frozen(x.to(kDevice)).cpu().equal(expected));
    CHECK(frozen(other.to(kDevice)).cpu().equal(expected_other));
    CHECK(emulation::counters().graph_launches == 2);
  }
}

TEST_CASE("freeze on a device: steps that wait for the host run between graphs") {
  Embedded network;
  network.eval();
  auto int8 = quantize_dynamic(network);
  const Tensor x = Tensor::from_int64(std::vector<std::int64_t>{1, 4, 0, 8}).to(DType::Int32);
  const Tensor expected = int8(x);
  int8.to(kDevice);
  const auto frozen = freeze(int8, x.to(kDevice));
  const std::string text = frozen.to_string();
  CHECK_MESSAGE(text.find(" captured, 1 launched one by one\n") != std::string::npos, text);
  const std::size_t alone = text.find("(launched alone)");
  REQUIRE(alone != std::string::npos);
  const std::size_t line = text.rfind('\n', alone);
  const std::string step = text.substr(line, alone - line);
  CHECK_MESSAGE(step.find(" embedding -> ") != std::string::npos, text);
  CHECK(text.find("(launched alone)", alone + 1) == std::string::npos);
  for (int run = 0; run < 2; ++run) {
    emulation::reset_counters();
    CHECK(frozen(x.to(kDevice)).cpu().equal(expected));
    CHECK(emulation::counters().graph_launches == 2);
    CHECK(emulation::counters().captures == 0);
    CHECK(emulation::counters().launches > 0);
  }
}

TEST_CASE("freeze on a device: a failure leaves the plan usable and no memory behind") {
  const Convs convs;
  const NoFailure none;
  const std::size_t before = bytes_in_use();
  const Tensor x = image(3).to(kDevice);
  const Tensor expected = convs.forward(x);
  const std::size_t with_tensors = bytes_in_use();
  for (const auto call : {emulation::Call::Launch, emulation::Call::Copy,
                          emulation::Call::Allocation, emulation::Call::Capture}) {
    int failures = 0;
    for (std::uint64_t n = 1; n <= 16; ++n) {
      const replay::ReplayPlan plan = [&] {
        const std::vector<Tensor> inputs{x.clone(x.suggested_format())};
        const replay::Recording recording(inputs);
        return replay::ReplayPlan(recording, inputs[0], convs.forward(inputs[0]));
      }();
      const std::size_t with_plan = bytes_in_use();
      empty_cache(kDevice);  // allocations ask the driver
      emulation::fail_later(call, n, call == emulation::Call::Allocation ? 2 : 1);
      // The n-th call is in the first run, its capture, or the second run.
      try {
        plan.run(x);
        plan.run(x);
      } catch (const BackendError&) {
        ++failures;
        CHECK(bytes_in_use() == with_plan);
      }
      emulation::fail_later(call, 0);
      CHECK_FALSE(cuda::is_capturing());
      for (int run = 0; run < 3; ++run) CHECK(plan.run(x).equal(expected));
      emulation::reset_counters();
      CHECK(plan.run(x).equal(expected));
      CHECK(emulation::counters().graph_launches == 1);
    }
    CHECK(failures > 0);
    CHECK(failures < 16);
  }
  CHECK(bytes_in_use() == with_tensors);
  CHECK(with_tensors > before);
}

TEST_CASE("freeze on a device: many threads run one plan and each block has its graphs") {
  const Convs convs;
  const auto frozen = freeze(convs, image(1).to(kDevice));
  std::vector<Tensor> expected;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    expected.push_back(static_cast<const nn::Module&>(convs)(image(seed)));
  }
  emulation::reset_counters();
  constexpr int kRuns = 6;
  std::vector<int> equal(expected.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int run = 0; run < kRuns; ++run) {
        equal[i] += frozen(image(i).to(kDevice)).cpu().equal(expected[i]) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : equal) CHECK(count == kRuns);
  const emulation::Counters counters = emulation::counters();
  CHECK(counters.captures + counters.graph_launches == expected.size() * kRuns);
}

TEST_CASE("freeze on a device: a graph keeps what an operation's cache lets go of") {
  const Convs convs;
  const Tensor x = image(1).to(kDevice);
  const auto frozen = freeze(convs, x);
  const Tensor expected = convs.forward(x);
  // Enough other quantization parameters to push out those of the plan.
  const QTensor codes(quantize_per_tensor(x, 0.04, 121, DType::QUInt8));
  for (int i = 1; i < 20; ++i) {
    for (const auto* conv : {&convs.first, &convs.second}) {
      quantized::conv(codes, *conv, 0.11 + 0.01 * i, 3);
    }
  }
  empty_cache(kDevice);
  CHECK(frozen(x).equal(expected));
}

TEST_CASE("freeze on a device: a plan that is watched runs each step by itself") {
  const Convs convs;
  const Tensor x = image(1).to(kDevice);
  const auto frozen = freeze(convs, x);
  emulation::reset_counters();
  Profiler profiler;
  const Tensor y = frozen(x);
  profiler.stop();
  CHECK(emulation::counters().graph_launches == 0);
  std::vector<std::string> names;
  for (const ProfileEvent& event : profiler.events()) names.push_back(event.name);
  const std::vector<std::string> steps{"quantize_per_tensor", "quantized::conv2d_relu",
                                       "quantized::conv2d", "dequantize"};
#ifndef NDEBUG  // with assertions the network runs behind the plan
  REQUIRE(names.size() > steps.size());
  names.resize(steps.size());
#endif
  CHECK(names == steps);
  CHECK(y.equal(convs.forward(x)));
  emulation::reset_counters();
  frozen(x);
  CHECK(emulation::counters().graph_launches == 1);
}

TEST_CASE("freeze on a device: plans for several batches have a graph each") {
  const Convs convs;
  Generator generator(3);
  const Tensor x = randn({3, 8, 6, 7}, generator).contiguous(MemoryFormat::ChannelsLast);
  const auto frozen = freeze(convs, x.narrow(0, 0, 1).to(kDevice), {.batch_sizes = {1, 2}});
  emulation::reset_counters();
  CHECK(frozen(x.to(kDevice)).cpu().equal(static_cast<const nn::Module&>(convs)(x)));
  CHECK(emulation::counters().graph_launches == 2);
}

}  // namespace quanta
