// Many threads that share what a user would share, while what watches them comes and goes.

#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "fusion/graph/net_builder.h"
#include "fusion/int8_copy.h"
#include "quanta/fusion/convert.h"
#include "quanta/fusion/freeze.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/graph/frozen.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/models/fashion.h"
#include "quanta/observers/defaults.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/profiler.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

constexpr std::size_t kThreads = 64;

nn::models::FashionMobileNet converted_network(const Tensor& image) {
  manual_seed(7);
  return test::int8_copy(nn::models::FashionMobileNet(), image);
}

graph::Model small_graph() {
  Generator generator(3);
  test::NetBuilder builder;
  const std::string x = builder.input("x");
  const std::string weight = builder.constant(randn({4, 1, 3, 3}, generator));
  const std::string relu = builder.node("Relu", {builder.node("Conv", {x, weight})});
  return graph::from_onnx(builder.finish({builder.node("GlobalAveragePool", {relu})}));
}

/// What the process writes on stderr while it lives goes to a file instead.
class CapturedErrors {
 public:
  CapturedErrors() : file_(std::tmpfile()), before_(dup(STDERR_FILENO)) {
    std::fflush(stderr);
    dup2(fileno(file_), STDERR_FILENO);
  }
  ~CapturedErrors() {
    restore();
    std::fclose(file_);
  }
  CapturedErrors(const CapturedErrors&) = delete;
  CapturedErrors& operator=(const CapturedErrors&) = delete;

  /// Ends it and gives the lines.
  std::vector<std::string> lines() {
    restore();
    std::rewind(file_);
    std::vector<std::string> all(1);
    for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) {
      if (c == '\n') {
        all.emplace_back();
      } else {
        all.back() += static_cast<char>(c);
      }
    }
    all.pop_back();
    return all;
  }

 private:
  void restore() {
    if (before_ < 0) return;
    std::fflush(stderr);
    dup2(before_, STDERR_FILENO);
    close(before_);
    before_ = -1;
  }

  std::FILE* file_;
  int before_;
};

TEST_CASE("64 threads share a network and a plan and a graph while profiler and verbose change") {
  Generator generator(15);
  const Tensor image = randn({1, 1, 28, 28}, generator);
  const nn::models::FashionMobileNet net = converted_network(image);
  const FrozenModel plan = freeze(net, image);
  const graph::Model model = small_graph();
  const graph::FrozenGraph graph(model);
  std::vector<Tensor> inputs, expected, expected_of_graph;
  for (std::int64_t i = 0; i < 3; ++i) {
    inputs.push_back(randn({1, 1, 28, 28}, generator));
    expected.push_back(net(inputs.back()));
    expected_of_graph.push_back(model.run({&inputs.back(), 1}).front());
  }
  // Nothing is packed, planned or cached in these yet.
  const nn::models::FashionMobileNet fresh = converted_network(image);
  const graph::FrozenGraph fresh_graph(model);

  CapturedErrors errors;
  std::atomic<std::size_t> waiting{kThreads};
  std::atomic<std::size_t> running{kThreads};
  std::atomic<int> wrong{0};
  std::atomic<int> unheard{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      set_num_threads(1 + static_cast<int>(t % 2));
      --waiting;
      while (waiting > 0) std::this_thread::yield();
      for (std::size_t i = 0; i < 4; ++i) {
        std::optional<Profiler> profiler;
        if ((i + t) % 3 == 0) profiler.emplace();
        const std::size_t which = (i + t) % inputs.size();
        const Tensor& x = inputs[which];
        wrong += fresh(x).equal(expected[which]) ? 0 : 1;
        wrong += plan(x).equal(expected[which]) ? 0 : 1;
        wrong += graph(x).equal(expected_of_graph[which]) ? 0 : 1;
        wrong += fresh_graph(x).equal(expected_of_graph[which]) ? 0 : 1;
        if (profiler && profiler->events().empty()) ++unheard;
      }
      --running;
    });
  }
  while (running > 0) {
    set_verbose(true);
    std::this_thread::yield();
    set_verbose(false);
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(unheard == 0);
  CHECK_FALSE(is_verbose());
  for (const std::string& line : errors.lines()) {
    CAPTURE(line);
    CHECK(line.starts_with("quanta: "));
    CHECK(line.find("quanta: ", 1) == std::string::npos);
  }
}

}  // namespace
}  // namespace quanta
