#include "quanta/runtime/operation.h"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "quanta/runtime/autograd.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

// 2 x; keeps what it multiplied with, which only its gradient needs.
struct Twice final : Op<Twice> {
  static constexpr std::string_view kName = "twice";
  static constexpr ArgumentCount kArguments{1};
  bool keeps_factor = false;

  void infer(const Arguments& in, Results& out) const override {
    out.add(in[0].sizes(), DType::Float32);
    if (keeps_factor) out.add({1}, DType::Float32);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const float* from = in[0].data<float>();
    auto* to = static_cast<float*>(out[0].data_ptr());
    for (std::int64_t i = 0; i < in[0].numel(); ++i) to[i] = 2.0F * from[i];
    if (keeps_factor) out[1].fill_(2.0);
    return keeps_factor ? "with factor" : "plain";
  }
  std::shared_ptr<const Operation> for_gradient(std::uint64_t needed) const override {
    CHECK(needed == 1);
    auto form = std::make_shared<Twice>(*this);
    form->keeps_factor = true;
    return form;
  }
  GradientUse gradient_use(std::uint64_t) const override {
    return keeps_factor ? GradientUse::of(0, 0b10) : GradientUse{};
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const double factor = context.output(1).item();
    return {Tensor::full(context.input_sizes(0), factor * context.grad().item())};
  }
};

// The sum of what it is given; at most three, or any number.
struct SumOf final : Op<SumOf> {
  static constexpr std::string_view kName = "sum_of";
  static constexpr ArgumentCount kArguments = ArgumentCount::at_least(1);
  bool is_limited = false;

  ArgumentCount argument_count() const noexcept override {
    return is_limited ? ArgumentCount(1, 3) : kArguments;
  }
  void infer(const Arguments& in, Results& out) const override {
    out.add(in[0].sizes(), DType::Float32);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    float sum = 0.0F;
    for (const Tensor* x : in) sum += static_cast<float>(x->item());
    out[0].fill_(sum);
    return "scalar";
  }
};

}  // namespace

TEST_CASE("run: too few and too many arguments are refused before they are looked at") {
  const auto sum = [](std::size_t count, bool is_limited) {
    SumOf operation;
    operation.is_limited = is_limited;
    const std::vector<Tensor> ones(count, Tensor::ones({}));
    return run(operation, std::span<const Tensor>(ones)).item();
  };
  CHECK(sum(1, true) == 1.0);
  CHECK(sum(3, true) == 3.0);
  CHECK(sum(4, false) == 4.0);
  CHECK_THROWS_WITH_AS(sum(4, true), "sum_of: arguments: expected 1 to 3, got 4", ArgumentError);
  CHECK_THROWS_WITH_AS(sum(0, true), "sum_of: arguments: expected 1 to 3, got 0", ArgumentError);
  CHECK_THROWS_WITH_AS(sum(0, false), "sum_of: arguments: expected at least 1, got 0",
                       ArgumentError);
  const Twice twice;
  const Operation& unknown = twice;
  const Tensor x = Tensor::full({1}, 3.0);
  CHECK(run(unknown, x).item() == 6.0);
  CHECK_THROWS_WITH_AS(run(unknown, x, x), "twice: arguments: expected 1, got 2", ArgumentError);
}

TEST_CASE("run: an operation runs in its form for gradients when one is asked for") {
  const Tensor x = Tensor::full({1}, 3.0);
  CHECK(run_all(Twice{}, x).size() == 1);
  x.set_requires_grad();
  {
    const autograd::NoGradGuard no_grad;
    CHECK(run_all(Twice{}, x).size() == 1);
  }
  const Results results = run_all(Twice{}, x);
  REQUIRE(results.size() == 2);
  CHECK(results[0].item() == 6.0);
  results[0].backward();
  CHECK(x.grad().item() == 2.0);
}

}  // namespace quanta
