#include "random_network.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "quanta/runtime/random.h"
#include "quanta/runtime/recorder.h"

namespace quanta::test {

void combine(const Tensor& a, const Tensor& b, float factor, const Tensor& out) {
  const auto at = [](const Tensor& x, std::int64_t i, std::int64_t j) {
    return static_cast<float*>(x.data_ptr()) + i * x.strides()[0] + j * x.strides()[1];
  };
  for (std::int64_t i = 0; i < out.size(0); ++i) {
    for (std::int64_t j = 0; j < out.size(1); ++j) {
      *at(out, i, j) = *at(a, i, j) * 0.5F + *at(b, i, j) * factor;
    }
  }
}

namespace {

struct Combine : Op<Combine> {
  static constexpr std::string_view kName = "combine";
  static constexpr ArgumentCount kArguments{2};
  double factor = 1.0;
  bool in_place = false;

  Combine(double given_factor, bool may_be_in_place)
      : factor(given_factor), in_place(may_be_in_place) {}
  void infer(const Arguments& in, Results& out) const override {
    out.add(in[0].sizes(), in[0].dtype());
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    combine(in[0], in[1], static_cast<float>(factor), out[0]);
    return "scalar";
  }
  PlanUse plan_use(const Arguments&, std::span<const Tensor>) const override {
    return {.in_place = in_place};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Combine, &Combine::factor>("factor")};
    return kTable;
  }
};

/// Into memory that there is: a part of a result, say.
void record_combine(const Tensor& a, const Tensor& b, float factor, const Tensor& out,
                    bool in_place) {
  combine(a, b, factor, out);
  if (!replay::is_recording()) return;
  replay::record({.operation = std::make_shared<Combine>(factor, in_place),
                  .inputs = {a, b},
                  .outputs = {out}});
}

}  // namespace

Tensor combined(const Tensor& a, const Tensor& b, float factor) {
  Tensor out = Tensor::empty(a.sizes());
  // Element by element: the result may lie where a dense first operand lay.
  record_combine(a, b, factor, out, a.is_contiguous() && !a.is_same(b));
  return out;
}

namespace {

/// Rows and columns from a to b, then turned twice: views of several kinds.
Tensor view_of(const Tensor& x, std::int64_t kind) {
  switch (kind) {
    case 0:
      return x.t().contiguous().t();
    case 1:
      return x.view({kRows * kColumns}).view({kRows, kColumns});
    default:
      return x;
  }
}

}  // namespace

std::int64_t below(Generator& generator, std::int64_t count) {
  return std::min(count - 1,
                  static_cast<std::int64_t>(generator.uniform() * static_cast<float>(count)));
}

Tensor random_network(const Tensor& x, std::uint64_t seed) {
  Generator generator(seed);
  std::vector<Tensor> results{x, Tensor::full({kRows, kColumns}, 0.25)};
  const auto pick = [&] {
    const auto index = below(generator, static_cast<std::int64_t>(results.size()));
    return results[static_cast<std::size_t>(index)];
  };
  const std::int64_t steps = 4 + below(generator, 20);
  for (std::int64_t step = 0; step < steps; ++step) {
    const Tensor a = view_of(pick(), below(generator, 6));
    const Tensor b = view_of(pick(), below(generator, 6));
    // Few factors, so that some steps are equal.
    const float factor = static_cast<float>(below(generator, 3)) * 0.25F;
    switch (below(generator, 5)) {
      case 0: {  // two halves of one result
        const Tensor out = Tensor::empty({kRows, kColumns});
        const std::int64_t half = 1 + below(generator, kRows - 1);
        record_combine(a.slice(0, 0, half), b.slice(0, 0, half), factor, out.slice(0, 0, half),
                       false);
        record_combine(b.slice(0, half, kRows), a.slice(0, half, kRows), 1.0F,
                       out.slice(0, half, kRows), false);
        results.push_back(out);
        break;
      }
      case 1: {  // a part of a copy anew
        const Tensor out = a.clone(MemoryFormat::Contiguous);
        out.slice(1, 0, kColumns / 2).copy_(b.slice(1, kColumns / 2, kColumns));
        results.push_back(out);
        break;
      }
      case 2: {  // a part of a constant
        const Tensor out = Tensor::zeros({kRows, kColumns});
        out.slice(0, 1, 3).copy_(a.slice(0, 2, 4));
        results.push_back(combined(out, b, factor));
        break;
      }
      default:
        results.push_back(combined(a, b, factor));
    }
  }
  return view_of(results.back(), below(generator, 4));
}

}  // namespace quanta::test
