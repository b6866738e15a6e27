#include "quanta/runtime/profiler.h"

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "file_test_util.h"
#include "quanta/runtime/detail/path_override.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/module_path.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

/// Stands in for an op: `work` is what it reports.
void run_op(std::string_view name, const OpWork& work = {}) {
  OpScope scope(name);
  scope.kernel("loops");
  scope.work([&] { return work; });
}

class Listener final : public OpListener {
 public:
  void op_ended(const OpEvent& event) override {
    names.emplace_back(event.op);
    if (throws) throw ArgumentError("of no use");
  }
  std::vector<std::string> names;
  bool throws = false;
};

nlohmann::json read_trace(const std::filesystem::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

}  // namespace

TEST_CASE("OpScope: an op is active only while its own thread listens") {
  CHECK_FALSE(OpScope("alone").active());
  Listener listener;
  {
    const ListenScope scope(listener);
    CHECK(OpScope("heard").active());
    bool other = true;
    std::thread([&] { other = OpScope("elsewhere").active(); }).join();
    CHECK_FALSE(other);
  }
  CHECK_FALSE(OpScope("after").active());
  CHECK(listener.names == std::vector<std::string>{"heard"});
}

TEST_CASE("OpScope: work is not computed when nobody listens") {
  OpScope scope("alone");
  bool asked = false;
  scope.work([&] {
    asked = true;
    return OpWork{};
  });
  CHECK_FALSE(asked);
}

TEST_CASE("ListenScope: the innermost listener hears and the outer one takes over again") {
  Listener outer;
  Listener inner;
  const ListenScope first(outer);
  run_op("one");
  {
    const ListenScope second(inner);
    run_op("two");
  }
  run_op("three");
  CHECK(outer.names == std::vector<std::string>{"one", "three"});
  CHECK(inner.names == std::vector<std::string>{"two"});
}

TEST_CASE("OpScope: what a listener throws does not reach the op's caller") {
  Listener listener;
  listener.throws = true;
  const ListenScope scope(listener);
  CHECK_NOTHROW(run_op("one"));
  CHECK(listener.names.size() == 1);
}

TEST_CASE("Profiler: an op's name and kernel and work are recorded") {
  Profiler profiler;
  run_op("first", {.multiply_adds = 6, .bytes = 10});
  run_op("second");
  REQUIRE(profiler.events().size() == 2);
  const ProfileEvent& first = profiler.events()[0];
  CHECK(first.kind == ProfileEvent::Kind::Op);
  CHECK(first.name == "first");
  CHECK(first.kernel == "loops");
  CHECK(first.module.empty());
  CHECK(first.depth == 0);
  CHECK(first.work.multiply_adds == 6);
  CHECK(first.work.bytes == 10);
  CHECK(first.start_us >= 0.0);
  CHECK(profiler.events()[1].start_us >= first.start_us + first.duration_us);
  profiler.clear();
  CHECK(profiler.events().empty());
}

TEST_CASE("Profiler: an op without a report has the work of the ops within it") {
  Profiler profiler;
  {
    const OpScope outer("outer");
    run_op("inner", {.multiply_adds = 1, .bytes = 2});
    run_op("inner", {.multiply_adds = 3, .bytes = 4});
  }
  {
    OpScope outer("outer");
    outer.work([] { return OpWork{.multiply_adds = 100, .bytes = 0}; });
    run_op("inner", {.multiply_adds = 1, .bytes = 2});
  }
  REQUIRE(profiler.events().size() == 5);
  CHECK(profiler.events()[0].depth == 1);
  CHECK(profiler.events()[2].depth == 0);
  CHECK(profiler.events()[2].work.multiply_adds == 4);
  CHECK(profiler.events()[2].work.bytes == 6);
  CHECK(profiler.events()[4].work.multiply_adds == 100);

  const std::vector<ModuleProfile> rows = profiler.modules();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].ops == std::vector<std::string>{"outer"});
  CHECK(rows[0].work.multiply_adds == 104);
  CHECK(rows[0].op_us ==
        doctest::Approx(profiler.events()[2].duration_us + profiler.events()[4].duration_us));
}

TEST_CASE("Profiler: nothing is heard between stop and start") {
  Profiler profiler;
  run_op("one");
  profiler.stop();
  run_op("two");
  CHECK_FALSE(OpScope("unheard").active());
  profiler.start();
  profiler.start();
  run_op("three");
  REQUIRE(profiler.events().size() == 2);
  CHECK(profiler.events()[1].name == "three");
  profiler.stop();
  CHECK_FALSE(OpScope("unheard").active());
}

TEST_CASE("PathOverride: ops and errors are told under the path it names") {
  Profiler profiler;
  {
    const PathOverride outer("a.b");
    run_op("one");
    {
      const PathOverride inner("c");
      CHECK(current_module_path() == "c");
    }
    run_op("two");
  }
  run_op("three");
  REQUIRE(profiler.events().size() == 3);
  CHECK(profiler.events()[0].module == "a.b");
  CHECK(profiler.events()[1].module == "a.b");
  CHECK(profiler.events()[2].module.empty());
}

TEST_CASE("Profiler: an op that throws is recorded and the next one is not inside it") {
  Profiler profiler;
  const auto fails = [] {
    const OpScope scope("fails");
    throw ArgumentError("x");
  };
  CHECK_THROWS_AS(fails(), ArgumentError);
  run_op("next");
  REQUIRE(profiler.events().size() == 2);
  CHECK(profiler.events()[0].name == "fails");
  CHECK(profiler.events()[1].depth == 0);
}

TEST_CASE("Profiler: rates count a multiply-add as two operations") {
  CHECK(giga_ops_per_second({.multiply_adds = 3000, .bytes = 0}, 2.0) == doctest::Approx(3.0));
  CHECK(giga_bytes_per_second({.multiply_adds = 0, .bytes = 3000}, 2.0) == doctest::Approx(1.5));
  CHECK(giga_ops_per_second({.multiply_adds = 3000, .bytes = 0}, 0.0) == 0.0);
  CHECK(giga_bytes_per_second({}, 1.0) == 0.0);
}

TEST_CASE("write_chrome_trace: complete events with times and arguments that a viewer reads") {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder / "trace.json";
  Profiler profiler;
  {
    const OpScope outer("outer \"quoted\"");
    run_op("inner", {.multiply_adds = 5, .bytes = 7});
  }
  profiler.write_chrome_trace(path);
  const nlohmann::json events = read_trace(path).at("traceEvents");
  REQUIRE(events.size() == 3);
  CHECK(events[0].at("ph") == "M");
  CHECK(events[1].at("name") == "outer \"quoted\"");
  CHECK(events[1].at("ts") == 0.0);
  CHECK(events[1].at("ph") == "X");
  CHECK(events[2].at("name") == "inner");
  CHECK(events[2].at("args").at("kernel") == "loops");
  CHECK(events[2].at("args").at("multiply_adds") == 5);
  CHECK(events[2].at("args").at("bytes") == 7);
  const auto end = [](const nlohmann::json& event) {
    return event.at("ts").get<double>() + event.at("dur").get<double>();
  };
  CHECK(events[2].at("ts").get<double>() >= events[1].at("ts").get<double>());
  CHECK(end(events[2]) <= doctest::Approx(end(events[1])));
}

TEST_CASE("write_chrome_trace: several runs are several processes") {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder / "trace.json";
  Profiler profiler;
  run_op("one");
  write_chrome_trace(path, {{"float", profiler.events()}, {"int8", {}}});
  const nlohmann::json events = read_trace(path).at("traceEvents");
  REQUIRE(events.size() == 3);
  CHECK(events[0].at("args").at("name") == "float");
  CHECK(events[1].at("pid") == events[0].at("pid"));
  CHECK(events[2].at("args").at("name") == "int8");
  CHECK(events[2].at("pid") != events[0].at("pid"));
}

TEST_CASE("write_chrome_trace: a folder that is not there is an error that names the file") {
  const Profiler profiler;
  CHECK_THROWS_WITH_AS(profiler.write_chrome_trace("/nowhere/at/all/trace.json"),
                       doctest::Contains("/nowhere/at/all/trace.json"), FileError);
}

}  // namespace quanta
