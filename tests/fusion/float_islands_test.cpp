#include "quanta/fusion/float_islands.h"

#include <doctest/doctest.h>

#include <atomic>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "quanta/fusion/check.h"
#include "quanta/fusion/freeze.h"
#include "quanta/fusion/model_file.h"
#include "quanta/fusion/quantize.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/container.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/stubs.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/elementwise.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/warning.h"
#include "support/compare.h"
#include "support/files.h"
#include "support/tensors.h"

// What runs in float within the quantized part of a network.

namespace quanta::test {
namespace {

const nn::Conv2dOptions kConv{
    .in_channels = 4, .out_channels = 4, .kernel_size = {3}, .padding = {1}};

/// Warnings, instead of lines on stderr.
class Warnings {
 public:
  Warnings() {
    before_ = set_warning_handler([this](std::string_view text) {
      const std::lock_guard lock(mutex_);
      text_ += std::string(text) + "\n";
    });
  }
  ~Warnings() { set_warning_handler(before_); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;
  const std::string& text() const { return text_; }
  bool has(std::string_view part) const { return text_.find(part) != std::string::npos; }

 private:
  std::mutex mutex_;
  std::string text_;
  WarningHandler before_;
};

/// A residual block, a gate and a function that has no form on codes, all written as in float.
struct Residual : nn::Module {
  nn::Child<nn::QuantStub> quant;
  nn::Child<nn::Conv2d> conv1, conv2;
  nn::Child<nn::DeQuantStub> dequant;
  Residual() {
    register_module("quant", quant);
    register_module("conv1", conv1, kConv);
    register_module("conv2", conv2, kConv);
    register_module("dequant", dequant);
    eval();
  }
  Tensor forward(const Tensor& image) const override {
    const Tensor x = conv1(quant(image));
    const Tensor y = relu(x + x * sigmoid(x));
    return softmax(dequant(conv2(exp(mul_scalar(y, -1.0)))), 1);
  }
};

/// One layer between two others; `Stubs`: with stubs of its own around it.
template <bool kStubs>
struct Three : nn::Module {
  nn::Child<nn::QuantStub> quant, quant2;
  nn::Child<nn::Conv2d> conv1, conv2, conv3;
  nn::Child<nn::DeQuantStub> dequant, dequant2;
  Three() {
    register_module("quant", quant);
    register_module("conv1", conv1, kConv);
    register_module("conv2", conv2, kConv);
    register_module("conv3", conv3, kConv);
    register_module("dequant", dequant);
    if (kStubs) {
      register_module("dequant2", dequant2);
      register_module("quant2", quant2);
    }
    eval();
  }
  Tensor forward(const Tensor& image) const override {
    const Tensor x = conv1(quant(image));
    const Tensor y = kStubs ? quant2(conv2(dequant2(x))) : conv2(x);
    return dequant(conv3(y));
  }
};

QConfig min_max() { return default_qconfig(); }

template <typename Body>
void run_threads(int count, const Body& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body] { body(); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("float operations in forward: sums on codes, the rest between dequantize and quantize") {
  manual_seed(5);
  const Residual net;
  const Tensor x = random_tensor({2, 4, 8, 8}, 1);
  const Warnings warnings;
  Residual prepared = prepare(net, min_max(), x);
  CHECK(warnings.has("exp in the forward of 'Residual' runs in float"));
  CHECK_FALSE(warnings.has("softmax"));  // behind the DeQuantStub
  prepared(x);
  const Residual int8 = convert(prepared);
  const Tensor y = int8(x);
  CHECK(sqnr_db(net(x), y) > 25.0);
  std::string islands;
  for (const FloatIsland& island : float_islands(int8)) {
    islands += island.call + (island.is_int8 ? "* " : " ");
  }
  CHECK(islands.find("mul* ") != std::string::npos);
  CHECK(islands.find("add* ") != std::string::npos);
  CHECK(islands.find("exp ") != std::string::npos);
  CHECK(freeze(int8, x)(x).equal(y));
  CHECK(to_string(int8).find("exp(scale=") != std::string::npos);
}

TEST_CASE("a copy that a view needs keeps the codes and their scale") {
  // The convolution gives channels last, which Flatten cannot view as rows.
  struct Flattened : nn::Module {
    nn::Child<nn::QuantStub> quant;
    nn::Child<nn::Conv2d> conv;
    nn::Child<nn::Flatten> flat;
    nn::Child<nn::Linear> fc;
    nn::Child<nn::DeQuantStub> dequant;
    Flattened() {
      register_module("quant", quant);
      register_module("conv", conv, kConv);
      register_module("flat", flat);
      register_module("fc", fc, nn::LinearOptions{.in_features = 36, .out_features = 5});
      register_module("dequant", dequant);
      eval();
    }
    Tensor forward(const Tensor& x) const override { return dequant(fc(flat(conv(quant(x))))); }
  };
  manual_seed(6);
  const Flattened net;
  const Tensor x = random_tensor({2, 4, 3, 3}, 2);
  const Warnings warnings;
  const Flattened prepared = prepare(net, min_max());
  prepared(x);
  const Flattened int8 = convert(prepared);
  const Tensor y = int8(x);
  CHECK(warnings.text().empty());
  CHECK(float_islands(int8).empty());
  const Tensor codes = int8.conv(int8.quant(x));
  CHECK(
      int8.dequant(int8.fc(codes.contiguous(MemoryFormat::Contiguous).reshape({2, 36}))).equal(y));
}

TEST_CASE("without an example the calls are noted while the model calibrates") {
  manual_seed(5);
  const Residual net;
  const Tensor x = random_tensor({2, 4, 8, 8}, 1);
  const Warnings warnings;
  Residual noted = prepare(net, min_max());
  Residual shown = prepare(net, min_max(), x);
  noted(x);
  shown(x);
  Warnings first_run;
  const Residual int8 = convert(noted);
  CHECK(first_run.text().empty());
  CHECK(int8(x).equal(convert(shown)(x)));
  CHECK(first_run.has("exp in the forward of 'Residual' runs in float"));
  const std::string before = first_run.text();
  int8(x);
  CHECK(first_run.text() == before);
}

TEST_CASE("a layer that is excluded by name gets what explicit stubs would give") {
  const auto make = [](auto net) {
    manual_seed(6);
    decltype(net) made;
    return made;
  };
  const Tensor x = random_tensor({2, 4, 8, 8}, 1);
  const QConfigMapping without = QConfigMapping(min_max()).set_module_name("conv2", std::nullopt);
  const auto run = [&](auto net) {
    auto prepared = prepare(net, without);
    prepared(x);
    prepared(random_tensor({2, 4, 8, 8}, 2));
    return convert(prepared)(x);
  };
  CHECK(run(make(Three<false>())).equal(run(make(Three<true>()))));
  const Warnings warnings;
  static_cast<void>(prepare(Three<false>(), without, x));
  CHECK(warnings.has("'conv2' runs in float"));
  Warnings none;
  static_cast<void>(prepare(Three<true>(), without, x));
  CHECK(none.text().empty());
}

TEST_CASE("excluded FloatFunctionals and blocks need no other forward") {
  struct Block : nn::Module {
    nn::Child<nn::Conv2d> conv;
    nn::Child<nn::FloatFunctional> skip;
    Block() {
      register_module("conv", conv, kConv);
      register_module("skip", skip);
    }
    Tensor forward(const Tensor& x) const override { return skip->add(conv(x), x); }
  };
  manual_seed(7);
  nn::Sequential net{nn::QuantStub(), Block(), nn::LogSigmoid(), Block(), nn::DeQuantStub()};
  net.eval();
  const Tensor x = random_tensor({2, 4, 8, 8}, 1);
  for (const char* name : {"1", "3", "1.skip", "3.conv", "2"}) {
    CAPTURE(name);
    const Warnings warnings;
    nn::Sequential prepared =
        prepare(net, QConfigMapping(min_max()).set_module_name(name, std::nullopt), x);
    prepared(x);
    const nn::Sequential int8 = convert(prepared);
    CHECK(sqnr_db(net(x), int8(x)) > 25.0);
    CHECK(freeze(int8, x)(x).equal(int8(x)));
  }
}

TEST_CASE("models with float operations are saved and loaded, prepared and converted") {
  manual_seed(8);
  const Residual net;
  const Tensor x = random_tensor({2, 4, 8, 8}, 1);
  const TemporaryFolder folder;
  const QConfigMapping qconfigs = QConfigMapping(min_max()).set_module_name("conv2", std::nullopt);
  Residual prepared = prepare(net, qconfigs);
  prepared(x);
  save_model(prepared, folder / "prepared.safetensors");
  Residual again;
  load_model(again, folder / "prepared.safetensors", qconfigs);
  const Residual int8 = convert(prepared);
  CHECK(convert(again)(x).equal(int8(x)));
  save_model(int8, folder / "int8.safetensors");
  Residual loaded;
  load_model(loaded, folder / "int8.safetensors");
  CHECK(loaded(x).equal(int8(x)));
  Residual other = nn::deep_copy(int8);
  CHECK(other(x).equal(int8(x)));
}

TEST_CASE("float operations from many threads at once give one thread's codes") {
  manual_seed(9);
  const Tensor x = random_tensor({2, 4, 8, 8}, 1);
  Residual prepared = prepare(Residual(), min_max());
  run_threads(4, [&] { prepared(x); });
  const Residual int8 = convert(prepared);
  const Tensor y = int8(x);
  std::atomic<int> equal{0};
  run_threads(4, [&] { equal += int8(x).equal(y) ? 1 : 0; });
  CHECK(equal == 4);
}

TEST_CASE("a forward whose operations change from run to run is refused") {
  struct Moody : nn::Module {
    nn::Child<nn::QuantStub> quant;
    nn::Child<nn::Conv2d> conv;
    Moody() {
      register_module("quant", quant);
      register_module("conv", conv, kConv);
      eval();
    }
    Tensor forward(const Tensor& x) const override {
      const Tensor y = conv(quant(x));
      return x.size(0) == 1 ? exp(y) : y + y;
    }
  };
  Moody prepared = prepare(Moody(), min_max());
  prepared(random_tensor({1, 4, 8, 8}));
  CHECK_THROWS_WITH_AS(prepared(random_tensor({2, 4, 8, 8})), doctest::Contains("same calls"),
                       ArgumentError);
}

TEST_CASE("results that are not finite stay float") {
  struct Masked : nn::Module {
    nn::Child<nn::QuantStub> quant;
    nn::Child<nn::Linear> fc, out;
    nn::Child<nn::DeQuantStub> dequant;
    Masked() {
      register_module("quant", quant);
      register_module("fc", fc, {.in_features = 4, .out_features = 4});
      register_module("out", out, {.in_features = 4, .out_features = 4});
      register_module("dequant", dequant);
      eval();
    }
    Tensor forward(const Tensor& x) const override {
      Tensor mask = Tensor::zeros({4});
      mask.mutable_data<float>()[1] = -std::numeric_limits<float>::infinity();
      return dequant(softmax(fc(quant(x)) + mask, -1));
    }
  };
  manual_seed(10);
  const Masked net;
  const Tensor x = random_tensor({3, 4});
  Masked prepared = prepare(net, min_max());
  prepared(x);
  const Masked int8 = [&] {
    ConvertOptions options;
    options.uncalibrated = Uncalibrated::Allow;  // `out` is never called
    return convert(prepared, options);
  }();
  CHECK(sqnr_db(net(x), int8(x)) > 25.0);
  CHECK(int8(x).to_float_vector()[1] == 0.0F);
}

TEST_CASE("a call that throws and is caught leaves its place to the next one") {
  struct Careful : nn::Module {
    nn::Child<nn::QuantStub> quant;
    nn::Child<nn::Conv2d> conv;
    nn::Child<nn::DeQuantStub> dequant;
    Careful() {
      register_module("quant", quant);
      register_module("conv", conv, kConv);
      register_module("dequant", dequant);
      eval();
    }
    Tensor forward(const Tensor& image) const override {
      const Tensor x = conv(quant(image));
      Tensor y;
      try {
        y = x + Tensor::ones({7});
      } catch (const Error&) {
        y = exp(x);
      }
      return dequant(y);
    }
  };
  manual_seed(12);
  const Careful net;
  const Tensor x = random_tensor({2, 4, 8, 8});
  Careful prepared = prepare(net, min_max());
  prepared(x);
  prepared(x);
  CHECK(sqnr_db(net(x), convert(prepared)(x)) > 25.0);
}

TEST_CASE("a block alone has a QConfig: its sums run on codes") {
  struct Inner : nn::Module {
    nn::Child<nn::QuantStub> quant;
    nn::Child<nn::Conv2d> conv;
    nn::Child<nn::DeQuantStub> dequant;
    Inner() {
      register_module("quant", quant);
      register_module("conv", conv, kConv);
      register_module("dequant", dequant);
    }
    Tensor forward(const Tensor& image) const override {
      const Tensor x = quant(image);
      return dequant(conv(x) + x);
    }
  };
  manual_seed(13);
  nn::Sequential net{nn::Conv2d(kConv), Inner()};
  net.eval();
  const Tensor x = random_tensor({2, 4, 8, 8});
  const nn::Sequential prepared = prepare(net, QConfigMapping().set_module_name("1", min_max()));
  prepared(x);
  const nn::Sequential int8 = convert(prepared);
  CHECK(sqnr_db(net(x), int8(x)) > 25.0);
  REQUIRE(float_islands(int8).size() == 1);
  CHECK(float_islands(int8)[0].path == "1");
}

TEST_CASE("a part of a converted model with a layer in float is saved on its own") {
  struct Outer : nn::Module {
    nn::Child<Three<false>> backbone;
    Outer() {
      register_module("backbone", backbone);
      eval();
    }
    Tensor forward(const Tensor& x) const override { return backbone(x); }
  };
  manual_seed(14);
  const Tensor x = random_tensor({2, 4, 8, 8});
  const Outer prepared =
      prepare(Outer(), QConfigMapping(min_max()).set_module_name("backbone.conv2", std::nullopt));
  prepared(x);
  const Outer int8 = convert(prepared);
  const TemporaryFolder folder;
  save_model(*int8.backbone.module(), folder / "part.safetensors");
  Three<false> part;
  load_model(part, folder / "part.safetensors");
  CHECK(part(x).equal(int8(x)));
}

TEST_CASE("a FloatFunctional that is called twice in a forward is found") {
  struct Shared : nn::Module {
    nn::Child<nn::QuantStub> quant;
    nn::Child<nn::Conv2d> conv;
    nn::Child<nn::FloatFunctional> sum;
    nn::Child<nn::DeQuantStub> dequant;
    Shared() {
      register_module("quant", quant);
      register_module("conv", conv, kConv);
      register_module("sum", sum);
      register_module("dequant", dequant);
      eval();
    }
    Tensor forward(const Tensor& image) const override {
      const Tensor x = quant(image);
      return dequant(sum->add(sum->add(conv(x), x), x));
    }
  };
  const Tensor x = random_tensor({2, 4, 8, 8});
  const std::vector<Problem> problems = check(Shared(), x);
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].text.find("'sum' is called twice") != std::string::npos);
  const Warnings warnings;
  const Shared prepared = prepare(Shared(), min_max());
  prepared(x);
  CHECK(warnings.has("a FloatFunctional for each place"));
}

}  // namespace quanta::test
