#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/warning.h"
#include "support/tensors.h"

namespace quanta::test {
namespace {

/// Adds 1 to every sum, and lets all else be.
struct OneMore final : OpGuide {
  std::vector<std::string> seen;
  bool guide(const Operation& operation, const Arguments& in, Results& out) override {
    const std::string_view name = operation.name();
    if (name == "add" || name == "mul") seen.emplace_back(name);
    if (name != "add") return false;
    detail::run(operation, in, out);
    out[0] = add(out[0], Tensor::ones({}));
    return true;
  }
};

}  // namespace

TEST_CASE("a guide takes the place of operations of its thread, and hears of none of its own") {
  OneMore guide;
  const Tensor x = Tensor::ones({3});
  {
    const GuideScope scope(&guide);
    CHECK(add(x, x).equal(Tensor::full({3}, 3.0)));
    CHECK(mul(x, x).equal(x));
    const GuideScope nobody(nullptr);
    CHECK(add(x, x).equal(Tensor::full({3}, 2.0)));
  }
  CHECK(add(x, x).equal(Tensor::full({3}, 2.0)));
  CHECK(guide.seen == std::vector<std::string>{"add", "mul"});
}

TEST_CASE("warnings go to the handler") {
  std::string text;
  const WarningHandler before =
      set_warning_handler([&](std::string_view warning) { text += warning; });
  warn("once");
  warn("once");
  CHECK(text == "onceonce");
  set_warning_handler(
      [](std::string_view warning) { throw std::runtime_error(std::string(warning)); });
  CHECK_THROWS_WITH_AS(warn("an error then"), "an error then", std::runtime_error);
  set_warning_handler(before);
}

}  // namespace quanta::test
