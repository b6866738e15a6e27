// Recordings made by hand, and the plans of them.

#include "quanta/runtime/replay_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "plan_support.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/detail/buffer_places.h"
#include "quanta/runtime/detail/replay_steps.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "random_network.h"

namespace quanta::replay {
namespace {

using detail::Buffer;
using detail::BufferKind;
using detail::Program;
using test::combine;
using test::combined;
using test::kColumns;
using test::kRows;
using test::random_network;

/// What combine() makes of one argument.
struct Outer : Op<Outer> {
  static constexpr std::string_view kName = "outer";
  static constexpr ArgumentCount kArguments{1};
  void infer(const Arguments& in, Results& out) const override {
    out.add(in[0].sizes(), in[0].dtype());
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    combine(in[0], in[0], 0.5F, out[0]);
    return "scalar";
  }
};

/// Two results.
struct Both : Op<Both> {
  static constexpr std::string_view kName = "both";
  static constexpr ArgumentCount kArguments{1};
  void infer(const Arguments& in, Results& out) const override {
    out.add(in[0].sizes(), in[0].dtype());
    out.add(in[0].sizes(), in[0].dtype());
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    combine(in[0], in[0], 0.25F, out[0]);
    combine(in[0], in[0], 0.75F, out[1]);
    return "scalar";
  }
};

/// A view.
struct Turned : Op<Turned> {
  static constexpr std::string_view kName = "turned";
  static constexpr ArgumentCount kArguments{1};
  void infer(const Arguments& in, Results& out) const override { out.add_view(in[0].t()); }
  std::string_view cpu(const Arguments&, std::span<const Tensor>) const override { return {}; }
};

TEST_CASE("replay: plans of random networks give what the networks give") {
  std::size_t shared = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    Generator generator(seed + 1000);
    const Tensor example = randn({kRows, kColumns}, generator);
    std::unique_ptr<ReplayPlan> plan;
    {
      const Recording recording(example);
      const Tensor y = random_network(example, seed);
      plan = std::make_unique<ReplayPlan>(recording, example, y);
    }
    Program program =
        test::program_of([&](const Tensor& x) { return random_network(x, seed); }, example);
    CHECK(detail::place_buffers(program) == plan->info().arena_bytes);
    test::check_memory(program);
    for (int repeat = 0; repeat < 3; ++repeat) {
      const Tensor x = randn({kRows, kColumns}, generator);
      const Tensor wanted = random_network(x, seed);
      const Tensor got = plan->run(x);
      CHECK(got.equal(wanted));
      CHECK(got.strides() == wanted.strides());
    }
    shared += plan->info().arena_bytes < plan->info().result_bytes ? 1U : 0U;
  }
  CHECK(shared > 200);
}

TEST_CASE("replay: inputs of any strides are laid out as the example was") {
  Generator generator(7);
  const auto plan_of = [](const Tensor& example) {
    const Recording recording(example);
    const Tensor y = example.relu();
    return std::make_unique<ReplayPlan>(recording, example, y);
  };
  const auto layouts = [&](const Dims& sizes) {
    Dims turned = sizes, doubled = sizes, single = sizes;
    std::swap(turned[0], turned[sizes.size() - 1]);
    doubled[0] *= 2;
    single[0] = 1;
    const auto last = static_cast<std::int64_t>(sizes.size()) - 1;
    // Dense, dense in another order, with gaps, with elements in one place.
    return std::vector<Tensor>{randn(sizes, generator), randn(turned, generator).transpose(0, last),
                               randn(doubled, generator).slice(0, 0, doubled[0], 2),
                               randn(single, generator).expand(sizes)};
  };
  for (const Dims& sizes : {Dims{4, 6}, Dims{2, 3, 4}, Dims{2, 3, 4, 5}}) {
    CAPTURE(sizes);
    const std::vector<Tensor> examples = layouts(sizes);
    for (std::size_t i = 0; i < examples.size(); ++i) {
      CAPTURE(i);
      const auto plan = plan_of(examples[i]);
      const std::vector<Tensor> given = layouts(sizes);
      for (std::size_t j = 0; j < given.size(); ++j) {
        const Tensor& x = given[j];
        CAPTURE(x.strides());
        if (i == 3 && j != 3) {  // there is no room for different elements
          CHECK_THROWS_WITH_AS(plan->run(x),
                               doctest::Contains("some of whose elements are one place"),
                               UnsupportedError);
        } else {
          CHECK(plan->run(x).equal(x.relu()));
        }
      }
    }
  }
}

/// How the elements of an example lie in its memory.
struct Lying {
  const char* name;
  Dims sizes, strides;
  std::int64_t offset = 0;
  bool overlaps = false;
};

Tensor lying(const Lying& how, Generator& generator, std::int64_t more = 0) {
  std::int64_t last = how.offset + more;
  for (std::size_t d = 0; d < how.sizes.size(); ++d) {
    if (how.sizes[d] > 1) last += (how.sizes[d] - 1) * how.strides[d];
  }
  return randn({last + 1}, generator).as_strided(how.sizes, how.strides, how.offset);
}

const Lying kLyings[] = {
    {"a column of many", {6}, {7}, 3},
    {"rows with gaps", {4, 6}, {11, 1}, 5},
    {"turned, with gaps", {4, 6}, {1, 9}},
    {"every second of both", {4, 6}, {24, 2}, 1},
    {"channels last, with gaps", {2, 3, 4, 5}, {200, 1, 50, 5}, 2},
    {"one element with any stride", {1, 6, 1}, {100, 1, 77}},
    {"one row with gaps and any stride", {1, 6}, {3, 4}},
    {"a scalar", {}, {}, 9},
    {"nothing", {0, 6}, {6, 1}},
    {"nothing, with gaps", {3, 0, 2}, {50, 9, 4}},
    {"interleaved", {2, 3}, {3, 2}},  // 0 2 4 and 3 5 7
    {"expanded", {4, 6}, {0, 1}, 2, true},
    {"windows", {4, 6}, {1, 1}, 0, true},
    {"windows two apart", {3, 3}, {4, 2}, 1, true},
};

TEST_CASE("replay: an example may lie in its memory in any way") {
  Generator generator(11);
  for (const Lying& how : kLyings) {
    CAPTURE(how.name);
    const Tensor example = lying(how, generator);
    const std::vector<Tensor> constants{randn(how.sizes, generator)};
    const auto network = [&](const Tensor& x) {
      const Tensor part = x.dim() > 0 && x.size(0) > 1 ? x.narrow(0, 1, x.size(0) - 1) : x;
      return std::vector<Tensor>{x.relu(), part.relu(), part, add(x, constants[0])};
    };
    const std::unique_ptr<ReplayPlan> plan = [&] {
      const Recording recording(example);
      const std::vector<Tensor> outputs = network(example);
      return std::make_unique<ReplayPlan>(recording, std::span(&example, 1), outputs);
    }();
    const auto check = [&](const Tensor& x) {
      const std::vector<Tensor> got = plan->run(std::span(&x, 1));
      const std::vector<Tensor> wanted = network(x);
      REQUIRE(got.size() == wanted.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        CAPTURE(i);
        CHECK(got[i].equal(wanted[i]));
      }
    };
    // As the example lies, wherever that is in its memory; it is not copied.
    check(example);
    Lying elsewhere = how;
    elsewhere.offset += 13;
    check(lying(elsewhere, generator, 5));
    elsewhere.offset = 0;
    const Tensor same = lying(elsewhere, generator);
    check(same);
    if (same.numel() > 0) {
      CHECK(plan->run(std::span(&same, 1))[2].storage() == same.storage());
    }
    // Any other way.
    for (const Tensor& x : {randn(how.sizes, generator), Tensor::ones({}).expand(how.sizes)}) {
      if (how.overlaps) {
        CHECK_THROWS_WITH_AS(plan->run(std::span(&x, 1)),
                             doctest::Contains("some of whose elements are one place in memory"),
                             UnsupportedError);
      } else {
        check(x);
      }
    }
  }
}

TEST_CASE("replay: the stride of a single element says nothing") {
  Generator generator(12);
  const Tensor example = randn({6}, generator).as_strided({1, 6, 1}, {6, 1, 1}, 0);
  const ReplayPlan plan = [&] {
    const Recording recording(example);
    return ReplayPlan(recording, example, example.slice(1, 0, 6, 2));
  }();
  const Tensor x = randn({6}, generator).as_strided({1, 6, 1}, {500, 1, 9}, 0);
  const Tensor y = plan.run(x);
  CHECK(y.equal(x.slice(1, 0, 6, 2)));
  CHECK(y.storage() == x.storage());
  // One row of an expanded example has nothing in common with another.
  const Tensor row = randn({1, 6}, generator).expand({1, 6});
  const Tensor twice = Tensor::ones({1}).expand({6}).as_strided({1, 6}, {0, 0}, 0);
  const ReplayPlan expanded = [&] {
    const Recording recording(twice);
    return ReplayPlan(recording, twice, twice.relu());
  }();
  const Tensor other = Tensor::full({1}, 3.0).as_strided({1, 6}, {44, 0}, 0);
  CHECK(expanded.run(other).equal(other));
  CHECK_THROWS_AS(expanded.run(row), UnsupportedError);
}

TEST_CASE("replay: codes are laid out as the example's codes were") {
  Generator generator(13);
  const auto codes = [&](std::int64_t rows) {
    return quantize_per_tensor(randn({rows, 10}, generator), 0.05, 100, DType::QUInt8);
  };
  const Tensor example = codes(12).slice(0, 0, 12, 2).slice(1, 0, 10, 3);
  const auto network = [](const Tensor& x) { return dequantize(x); };
  const ReplayPlan plan = [&] {
    const Recording recording(example);
    return ReplayPlan(recording, example, network(example));
  }();
  const Tensor x = codes(6).slice(1, 0, 4);
  CHECK(plan.run(x).equal(network(x)));
  CHECK(plan.run(x.contiguous()).equal(network(x)));
  CHECK(plan.run(example).equal(network(example)));
}

TEST_CASE("replay: a step that reads beside the elements of an example is refused") {
  const Tensor memory = Tensor::ones({40});
  const Tensor example = memory.as_strided({4, 6}, {8, 1}, 2);  // 2 to 31, without 8, 9, 16, ...
  const auto plan_of = [&](std::int64_t size, std::int64_t offset) {
    const Recording recording(example);
    const Tensor y = example.as_strided({size}, {1}, offset).relu();
    return std::make_unique<ReplayPlan>(recording, example, y);
  };
  CHECK(plan_of(6, 2)->run(example).sizes() == Dims{6});
  CHECK(plan_of(1, 31)->run(example).sizes() == Dims{1});
  for (const auto& [size, offset] : {std::pair{30, 1}, std::pair{30, 3}, std::pair{1, 39},
                                     std::pair{30, 2}, std::pair{7, 2}, std::pair{1, 9}}) {
    CHECK_THROWS_WITH_AS(plan_of(size, offset),
                         doctest::Contains("relu: input: expected elements of the example"),
                         UnsupportedError);
  }
  const auto view_of_more = [&] {
    const Recording recording(example);
    return ReplayPlan(recording, example, example.as_strided({40}, {1}, 0));
  };
  CHECK_THROWS_WITH_AS(view_of_more(), doctest::Contains("the network: input"), UnsupportedError);
}

struct Recorded {
  Tensor x = Tensor::full({kRows, kColumns}, 2.0);
  std::unique_ptr<ReplayPlan> plan;

  template <typename Network>
  explicit Recorded(Network&& network) {
    const Recording recording(x);
    const Tensor y = network(x);
    plan = std::make_unique<ReplayPlan>(recording, x, y);
  }
};

TEST_CASE("replay: a step in place lies where its input lay") {
  const std::size_t each = kRows * kColumns * sizeof(float);
  const Recorded chain([](const Tensor& x) {
    Tensor y = x;
    for (int i = 0; i < 5; ++i) y = combined(y, x, 0.25F);
    return combined(y, x, 0.5F);
  });
  CHECK(chain.plan->info().steps == 6);
  CHECK(chain.plan->info().arena_bytes < 2 * each);
  const Recorded kept([](const Tensor& x) {
    const Tensor first = combined(x, x, 0.25F);
    const Tensor second = combined(first, x, 0.25F);
    const Tensor third = combined(second, first, 0.25F);  // first is still needed
    return combined(third, first, 0.5F);
  });
  CHECK(kept.plan->info().arena_bytes >= 2 * each);
}

TEST_CASE("replay: an outer op takes the place of the ops that it is made of") {
  const Recorded outer([](const Tensor& x) {
    const Tensor y = combined(x, x, 0.5F);
    if (is_recording()) {
      record({.operation = std::make_shared<Outer>(), .inputs = {x}, .outputs = {y}});
    }
    return y;
  });
  CHECK(outer.plan->info().recorded_steps == 2);
  CHECK(outer.plan->info().steps == 1);
  CHECK(outer.plan->to_string().find("outer") != std::string::npos);
}

TEST_CASE("replay: steps of constants are done while recording") {
  const Tensor weight = Tensor::full({kRows, kColumns}, 3.0);
  const Recorded folded([&](const Tensor& x) {
    return combined(x, combined(weight, Tensor::ones({kRows, kColumns}), 0.5F), 1.0F);
  });
  CHECK(folded.plan->info().recorded_steps == 1);
}

TEST_CASE("replay: an operation is one step with all of its results") {
  const auto network = [](const Tensor& x) {
    const Results both = run_all(Both{}, x);
    return combined(both[0], both[1], 1.0F);
  };
  const Recorded recorded(network);
  CHECK(recorded.plan->info().steps == 2);
  const Tensor x = Tensor::full({kRows, kColumns}, -3.0);
  CHECK(recorded.plan->run(x).equal(network(x)));
}

TEST_CASE("replay: a view is nothing that has to be done") {
  const Recorded viewed([](const Tensor& x) { return run(Turned{}, x); });
  CHECK(viewed.plan->info().steps == 0);
  CHECK(viewed.plan->run(viewed.x).equal(viewed.x.t()));
}

TEST_CASE("replay: what changes behind the recorder's back is refused by name") {
  const auto refuse = [](auto&& network, const char* text) {
    CHECK_THROWS_WITH_AS(Recorded{network}, doctest::Contains(text), UnsupportedError);
  };
  refuse(
      [](const Tensor& x) {
        const Tensor y = combined(x, x, 0.5F);
        y.mutable_data<float>()[0] = 1.0F;
        return combined(y, x, 1.0F);
      },
      "combine: input: expected a tensor that only recorded operations have written to");
  refuse(
      [](const Tensor& x) {
        const Tensor y = Tensor::empty(x.sizes());
        std::memset(y.data_ptr(), 0, y.nbytes());
        return combined(y, x, 1.0F);
      },
      "combine: input: expected the result of operations that can be replayed");
  refuse(
      [](const Tensor& x) {
        x.fill_(1.0);
        return x;
      },
      "older than the recording");
  refuse(
      [](const Tensor& x) {
        return Tensor::full(x.sizes(), combined(x, x, 1.0F).select(0, 0).select(0, 0).item());
      },
      "depend on the values");
}

TEST_CASE("replay: recordings do not nest, and end with their scope") {
  const Tensor x = Tensor::ones({2});
  {
    const Recording recording(x);
    CHECK(is_recording());
    CHECK_THROWS_AS(Recording{x}, ArgumentError);
    std::thread([] { CHECK_FALSE(is_recording()); }).join();
  }
  CHECK_FALSE(is_recording());
}

}  // namespace
}  // namespace quanta::replay
