// The tape where it is easy to get wrong: hooks that change what runs, errors on the way back,
// tensors that are gone, views, and many threads.

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/reduce.h"
#include "quanta/ops/shape.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/error.h"
#include "support/compare.h"

namespace quanta {
namespace {

using test::message_of;

Tensor leaf(std::initializer_list<float> values) {
  const Tensor x = Tensor::from_values(values);
  x.set_requires_grad();
  return x;
}

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<Tensor> grad_of(const Tensor& output, std::vector<Tensor> inputs, bool retain = false) {
  return autograd::grad({&output, 1}, inputs, {.retain_graph = retain});
}

// Its forward gives a tensor that somebody else holds.
struct HandsOut : autograd::Function<HandsOut> {
  static Tensor forward(autograd::Context&, const Tensor&, const Tensor* result) { return *result; }
  static std::vector<Tensor> backward(const autograd::Context&,
                                      const autograd::BackwardContext& backward) {
    return {backward.grad()};
  }
};

struct Throws : autograd::Function<Throws> {
  static Tensor forward(autograd::Context&, const Tensor& x) { return x; }
  static std::vector<Tensor> backward(const autograd::Context&, const autograd::BackwardContext&) {
    throw std::runtime_error("no way back");
  }
};

}  // namespace

TEST_CASE("hooks may remove themselves and add others while they run") {
  for (const bool of_leaf : {true, false}) {
    const Tensor x = leaf({3.0F});
    const Tensor y = x * x;
    const Tensor& hooked = of_leaf ? x : y;
    std::vector<int> calls;
    std::uint64_t first = 0;
    first = hooked.register_hook([&, hooked = hooked.impl().get()](const Tensor&) {
      const Tensor self{IntrusivePtr<TensorImpl>(hooked)};
      calls.push_back(1);
      self.remove_hook(first);
      for (int i = 0; i < 20; ++i) {
        self.register_hook([&](const Tensor&) {
          calls.push_back(3);
          return Tensor();
        });
      }
      return Tensor();
    });
    hooked.register_hook([&](const Tensor&) {
      calls.push_back(2);
      return Tensor();
    });
    y.backward({}, true);
    CHECK(calls == std::vector<int>{1, 2});
    y.backward({}, true);
    CHECK(calls.size() == 2 + 1 + 20);
  }
  CHECK_THROWS_AS(leaf({1.0F}).register_hook({}), ArgumentError);
}

TEST_CASE("a leaf that needs no gradient any more gets none") {
  const Tensor x = leaf({3.0F});
  const Tensor w = leaf({2.0F});
  const Tensor y = x * w;
  w.set_requires_grad(false);
  y.backward();
  CHECK(x.grad().item() == 2.0);
  CHECK_FALSE(w.grad().defined());
  // Not even when a hook says so in the middle.
  const Tensor z = mul_scalar(x, 2.0);
  x.register_hook([&](const Tensor&) {
    x.set_requires_grad(false);
    return Tensor();
  });
  z.backward();
  CHECK_FALSE(x.requires_grad());
}

TEST_CASE("a backward that throws leaves gradients and tape as they were") {
  const Tensor x = leaf({3.0F});
  const Tensor w = leaf({2.0F});
  const Tensor middle = x * w;
  middle.retain_grad();
  const Tensor y = middle * middle;
  bool fail = true;
  const auto hook = w.register_hook([&](const Tensor&) -> Tensor {
    if (fail) throw std::runtime_error("a hook that fails");
    return {};
  });
  CHECK(mentions(message_of([&] { y.backward(); }), "a hook that fails"));
  CHECK_FALSE(x.grad().defined());
  CHECK_FALSE(middle.grad().defined());
  CHECK(autograd::is_grad_enabled());
  fail = false;
  y.backward();
  CHECK(x.grad().item() == 24.0);
  CHECK(middle.grad().item() == 12.0);
  w.remove_hook(hook);

  const Tensor failing = Throws::apply(x) + x * w;
  CHECK(mentions(message_of([&] { failing.backward(); }), "no way back"));
  CHECK(mentions(message_of([&] { failing.backward(); }), "no way back"));
  CHECK(x.grad().item() == 24.0);
}

TEST_CASE("a hook gives a gradient of the right kind, and nothing of it is recorded") {
  const Tensor x = leaf({3.0F});
  const Tensor other = leaf({5.0F});
  for (const Tensor& wrong : {Tensor::ones({2}), Tensor::ones({1}, DType::Float64)}) {
    const auto id = x.register_hook([&](const Tensor&) { return wrong; });
    CHECK(
        mentions(message_of([&] { mul_scalar(x, 2.0).backward(); }), "hook: expected a gradient"));
    x.remove_hook(id);
  }
  const auto id = x.register_hook([&](const Tensor&) { return other; });
  mul_scalar(x, 2.0).backward();
  x.remove_hook(id);
  CHECK(x.grad().item() == 5.0);
  CHECK_FALSE(x.grad().requires_grad());
  CHECK_FALSE(x.grad().is_same(other));
  x.clear_grad();
  x.view({1, 1}).backward(other.detach().set_requires_grad().view({1, 1}));
  CHECK(x.grad().item() == 5.0);
  CHECK_FALSE(x.grad().requires_grad());
}

TEST_CASE("gradients that are kept share no memory") {
  const Tensor a = leaf({1.0F, 2.0F});
  const Tensor b = leaf({3.0F, 4.0F});
  const Tensor given = Tensor::ones({2, 1});
  (a.view({2, 1}) + b.view({2, 1})).backward(given);
  given.fill_(7.0);
  CHECK(a.grad().equal(Tensor::ones({2})));
  a.grad().fill_(9.0);
  CHECK(b.grad().equal(Tensor::ones({2})));
  // One number for all elements becomes elements of their own.
  const Tensor c = leaf({1.0F, 2.0F, 3.0F});
  sum(c).backward();
  CHECK(c.grad().is_dense());
}

TEST_CASE("retain_grad: kept is what hooks made, and grad() touches nothing") {
  const Tensor x = leaf({3.0F});
  const Tensor y = mul_scalar(x, 2.0);
  y.retain_grad().retain_grad();
  y.register_hook([](const Tensor& grad) { return mul_scalar(grad, 10.0); });
  const Tensor z = mul_scalar(y, 4.0);
  CHECK(grad_of(z, {x}, true)[0].item() == 80.0);
  CHECK_FALSE(y.grad().defined());
  z.backward({}, true);
  CHECK(y.grad().item() == 40.0);
  z.backward();
  CHECK(y.grad().item() == 80.0);
  CHECK(x.grad().item() == 160.0);
}

TEST_CASE("grad(): outputs as inputs, one input twice, and only the ops in between") {
  const Tensor x = leaf({3.0F});
  const Tensor w = leaf({2.0F});
  int calls = 0;
  w.register_hook([&](const Tensor&) {
    ++calls;
    return Tensor();
  });
  const Tensor y = Throws::apply(w) * x;
  const Tensor z = y * y;
  CHECK(grad_of(x, {x})[0].item() == 1.0);
  CHECK(grad_of(z, {z}, true)[0].item() == 1.0);
  const std::vector<Tensor> twice = grad_of(z, {y, y, x, x, z}, true);
  CHECK(twice[0].item() == 12.0);
  CHECK(twice[1].item() == 12.0);
  CHECK(twice[2].item() == 24.0);
  CHECK(twice[3].item() == 24.0);
  CHECK(twice[4].item() == 1.0);
  // What leads to no input neither runs nor is freed.
  CHECK(grad_of(z, {y})[0].item() == 12.0);
  CHECK(calls == 0);
  CHECK(grad_of(y, {x})[0].item() == 2.0);
  CHECK(mentions(message_of([&] { grad_of(z, {y}); }), "retain_graph"));
  CHECK_THROWS_AS(grad_of(z, {Tensor()}), ArgumentError);
  CHECK_THROWS_AS(grad_of(z, {Tensor::ones({1})}), ArgumentError);
  CHECK_THROWS_AS(grad_of(Tensor(), {x}), ArgumentError);
}

TEST_CASE("a custom function may hand out tensors that others hold") {
  const Tensor x = leaf({3.0F});
  const Tensor cached = Tensor::from_values({8.0F});
  const Tensor parameter = leaf({4.0F});
  for (const Tensor* shared : {&cached, &parameter, &x}) {
    x.clear_grad();
    const Tensor y = HandsOut::apply(x, shared);
    CHECK_FALSE(y.is_leaf());
    CHECK(shared->is_leaf());
    y.backward();
    CHECK(x.grad().item() == 1.0);
  }
  CHECK_FALSE(cached.requires_grad());
  CHECK_FALSE(parameter.grad().defined());
  const Tensor nothing;
  CHECK_THROWS_AS(HandsOut::apply(x, &nothing), ArgumentError);
}

TEST_CASE("tensors without elements have gradients without elements") {
  const Tensor x = Tensor::zeros({0, 3});
  x.set_requires_grad();
  const Tensor y = (mul_scalar(x, 2.0) + x.view({3, 0}).permute({1, 0})).reshape({0, 3});
  y.backward(Tensor::zeros({0, 3}));
  CHECK(x.grad().sizes() == Dims{0, 3});
  x.clear_grad();
  sum(x * x).backward();
  CHECK(x.grad().sizes() == Dims{0, 3});
  CHECK_THROWS_AS(mul_scalar(x, 2.0).backward(), ArgumentError);
  const Tensor w = leaf({1.0F, 2.0F, 3.0F});
  sum(x.detach() * w).backward();
  CHECK(w.grad().equal(Tensor::zeros({3})));
}

TEST_CASE("inputs of an op may be undefined or without a gradient") {
  const Tensor x = leaf({3.0F});
  std::vector<bool> needs;
  const Tensor y = autograd::record(
      "optional", {x, Tensor(), Tensor::ones({1})}, Tensor::ones({1}), {Tensor(), x},
      [&](const autograd::BackwardContext& backward) {
        for (std::size_t i = 0; i < 3; ++i) {
          needs.push_back(backward.needs(i));
        }
        CHECK_FALSE(backward.saved(0).defined());
        return std::vector<Tensor>{mul_scalar(backward.grad(), 2.0), Tensor(), Tensor::ones({7})};
      });
  y.backward();
  CHECK(needs == std::vector<bool>{true, false, false});
  CHECK(x.grad().item() == 2.0);
}

TEST_CASE("changes of a leaf through its views are refused or noticed") {
  const Tensor x = leaf({1.0F, 2.0F});
  CHECK_THROWS_AS(x.view({2, 1}).fill_(0.0), ArgumentError);
  CHECK_THROWS_AS(x.select(0, 1).copy_(Tensor::ones({})), ArgumentError);
  CHECK(x.detach().equal(Tensor::from_values({1.0F, 2.0F})));
  const Tensor y = x * x;
  {
    const autograd::NoGradGuard guard;
    const Tensor part = x.select(0, 0);
    CHECK_FALSE(part.requires_grad());
    part.fill_(5.0);
  }
  CHECK(mentions(message_of([&] { sum(y).backward(); }), "changed in place"));
  const Tensor again = x * x;
  x.detach().mutable_data<float>()[1] = 6.0F;
  CHECK(mentions(message_of([&] { sum(again).backward(); }), "changed in place"));
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("set_requires_grad: views are leaves of their own unless they are recorded") {
  const Tensor base = Tensor::from_values({1.0F, 2.0F});
  const Tensor view = base.view({2, 1});
  view.set_requires_grad();
  CHECK_FALSE(base.requires_grad());
  sum(mul_scalar(view, 3.0)).backward();
  CHECK(view.grad().equal(Tensor::full({2, 1}, 3.0)));
  const Tensor recorded = view.view({2});
  CHECK_NOTHROW(recorded.set_requires_grad());
  CHECK_FALSE(recorded.is_leaf());
  CHECK_THROWS_AS(recorded.set_requires_grad(false), ArgumentError);
}

TEST_CASE("to: integers carry no gradient, other floats do") {
  const Tensor x = leaf({1.5F, -2.5F});
  CHECK_FALSE(x.to(DType::Int64).requires_grad());
  CHECK_FALSE(x.to(DType::Bool).to(DType::Float32).requires_grad());
  for (const DType dtype : {DType::Float64, DType::Float16, DType::BFloat16}) {
    x.clear_grad();
    const Tensor y = x.to(dtype);
    y.backward(Tensor::full({2}, 2.0, dtype));
    CHECK(x.grad().equal(Tensor::full({2}, 2.0)));
  }
}

TEST_CASE("many threads may go back at once") {
  constexpr int kThreads = 4;
  constexpr int kTimes = 50;
  const Tensor x = leaf({3.0F, 1.0F});
  const Tensor shared = sum(x * x);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kTimes; ++i) {
        shared.backward({}, true);
        sum(mul_scalar(x, 2.0)).backward();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  constexpr float kCalls = kThreads * kTimes;
  CHECK(x.grad().equal(Tensor::from_values({kCalls * 8.0F, kCalls * 4.0F})));

  // Without retain_graph each either goes back whole or says that the tape is gone.
  x.clear_grad();
  const Tensor once = sum(x * x * x);
  std::vector<std::string> messages(kThreads);
  threads.clear();
  for (std::string& message : messages) {
    threads.emplace_back([&] { message = message_of([&] { once.backward(); }); });
  }
  for (std::thread& thread : threads) thread.join();
  float done = 0.0F;
  for (const std::string& message : messages) {
    if (message.empty()) done += 1.0F;
    const bool is_expected = message.empty() || mentions(message, "retain_graph");
    CHECK(is_expected);
  }
  CHECK(done >= 1.0F);
  CHECK(x.grad().equal(Tensor::from_values({done * 27.0F, done * 3.0F})));
}

TEST_CASE("a tape is freed with its tensors, and its saved tensors with backward") {
  const Tensor x = leaf({3.0F});
  const Tensor held = Tensor::from_values({2.0F});
  const auto holders = [&] { return held.storage()->use_count(); };
  const auto before = holders();
  {
    Tensor y = x * held;
    for (int i = 0; i < 100; ++i) y = y * held + y.retain_grad();
    CHECK(holders() > before);
  }
  CHECK(holders() == before);
  const Tensor y = (x * held) * held;
  CHECK(holders() > before);
  y.backward({}, true);
  CHECK(holders() > before);
  y.backward();
  CHECK(holders() == before);
}

}  // namespace quanta
