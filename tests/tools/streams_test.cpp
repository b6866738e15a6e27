#include "../../tools/cli/streams.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <vector>

#include "../../tools/cli/bench_streams.h"
#include "../../tools/cli/bench_subject.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/parallel.h"
#include "support/paths.h"

namespace quanta::test {
namespace {

using cli::percentile;
using cli::Streams;

using Request = std::function<void()>;

cli::BenchOptions mlp(const char* dtype, int batch) {
  cli::BenchOptions options;
  options.model = "mlp";
  options.dtype = dtype;
  options.batch = batch;
  return options;
}

TEST_CASE("percentile: the value of the nearest rank") {
  const std::vector<std::int64_t> values{5, 1, 4, 2, 3};
  CHECK(percentile(values, 0.5) == 3);
  CHECK(percentile(values, 0.99) == 5);
  CHECK(percentile(values, 0.2) == 1);
  CHECK(percentile(values, 0.0) == 1);
  CHECK(percentile(values, 1.0) == 5);
  CHECK(percentile({7}, 0.99) == 7);
}

TEST_CASE("Streams: each has a thread of its own with as many threads as were asked for") {
  std::mutex mutex;
  std::set<std::thread::id> ids;
  std::multiset<int> streams;
  std::set<int> op_threads;
  {
    const Streams three(3, 2, [&](int stream) -> Request {
      const std::scoped_lock lock(mutex);
      streams.insert(stream);
      ids.insert(std::this_thread::get_id());
      op_threads.insert(get_num_threads());
      return [] {};
    });
    CHECK(three.count() == 3);
  }
  CHECK(streams == std::multiset<int>{0, 1, 2});
  CHECK(ids.size() == 3);
  CHECK(op_threads == std::set<int>{2});
}

TEST_CASE("Streams: a turn counts every request but the one that warms up") {
  std::atomic<std::int64_t> calls = 0;
  Streams streams(2, 1, [&](int) -> Request { return [&] { ++calls; }; });
  CHECK(calls == 2);
  for (int turn = 0; turn < 3; ++turn) {
    const std::int64_t before = calls;
    const cli::StreamTurn result = streams.run(1e-6);
    CHECK(std::ssize(result.ns) == calls - before);
    CHECK(result.ns.size() >= 2 * Streams::kLeast);
    CHECK(result.seconds > 0.0);
    CHECK(result.requests_per_second() * result.seconds ==
          doctest::Approx(static_cast<double>(result.ns.size())));
  }
}

TEST_CASE("Streams: requests of several streams are answered side by side") {
  // Each waits until the other one has come: one after the other, they would wait for ever.
  std::atomic<int> here = 0;
  Streams streams(2, 1, [&](int) -> Request {
    return [&] {
      const int round = here++ / 2;
      while (here < 2 * (round + 1)) std::this_thread::yield();
    };
  });
  const cli::StreamTurn turn = streams.run(1e-9);
  CHECK(turn.ns.size() >= 2 * Streams::kLeast);
}

TEST_CASE("Streams: what making a request throws reaches the caller") {
  const auto make = [](int stream) -> Request {
    if (stream == 1) throw ArgumentError("no request");
    return [] {};
  };
  CHECK_THROWS_WITH_AS(Streams(3, 1, make), "no request", ArgumentError);
}

TEST_CASE("Streams: what a request throws reaches the caller of each later turn") {
  std::atomic<bool> fails = false;
  Streams streams(2, 1, [&](int stream) -> Request {
    return [&, stream] {
      if (fails && stream == 0) throw ArgumentError("no answer");
    };
  });
  streams.run(1e-6);
  fails = true;
  CHECK_THROWS_WITH_AS(streams.run(1e-6), "no answer", ArgumentError);
  CHECK_THROWS_WITH_AS(streams.run(1e-6), "no answer", ArgumentError);
}

// The same network for all of them: a frozen plan, the modules, an ONNX file.
TEST_CASE("quanta bench: streams of every kind of subject give their figures") {
  cli::BenchOptions options = mlp("dynamic-int8", 2);
  options.streams = 2;
  options.seconds = 0.01;
  SUBCASE("frozen") {}
  SUBCASE("eager") { options.eager = true; }
  SUBCASE("float") { options.dtype = "float32"; }
  SUBCASE("an ONNX file") {
    options.onnx = (source_folder() / "tests/fuzz/seeds_onnx/conv.onnx").string();
  }
  const auto subject = cli::make_bench_subject(options);
  const nlohmann::json figures = cli::time_streams(*subject, options);
  CHECK(figures["streams"] == 2);
  CHECK(figures["threads_per_stream"] == 1);
  CHECK(figures["requests"].get<std::size_t>() >= 5 * 2 * Streams::kLeast);
  CHECK(figures["inputs_per_second"].get<double>() ==
        2.0 * figures["requests_per_second"].get<double>());
  CHECK(figures["latency_p99_ms"].get<double>() >= figures["latency_median_ms"].get<double>());
  CHECK(figures["ratio_to_one_stream"].get<double>() > 0.0);
}

TEST_CASE("quanta bench: every request has inputs of its own") {
  const auto subject = cli::make_bench_subject(mlp("float32", 3));
  const std::vector<Tensor> first = subject->request();
  const std::vector<Tensor> second = subject->request();
  REQUIRE(first.size() == 1);
  CHECK(first[0].sizes() == Dims{3, 784});
  CHECK(first[0].equal(second[0]));
  CHECK(first[0].data<float>() != second[0].data<float>());
}

}  // namespace
}  // namespace quanta::test
