#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "quanta/tools/cli/profile_report.h"

namespace quanta::cli {
namespace {

ModuleTime module(std::string path, double us) { return {std::move(path), {}, {}, us, {}}; }

ModuleProfile run_of(std::string path, double us) {
  ModuleProfile row;
  row.path = std::move(path);
  row.op_us = us;
  return row;
}

}  // namespace

TEST_CASE("median_times: each module has the middle of its times in the order of the first run") {
  const std::vector<ModuleTime> times = median_times({{run_of("b", 5.0), run_of("a", 1.0)},
                                                      {run_of("b", 2.0), run_of("a", 9.0)},
                                                      {run_of("b", 3.0), run_of("a", 2.0)}});
  REQUIRE(times.size() == 2);
  CHECK(times[0].path == "b");
  CHECK(times[0].us == 3.0);
  CHECK(times[1].path == "a");
  CHECK(times[1].us == 2.0);
  CHECK(median_times({}).empty());
}

TEST_CASE("compare: modules are found by path and the slower ones are told") {
  const Comparison result = compare({module("conv1", 10.0), module("conv10", 30.0)},
                                    {module("conv1", 40.0), module("conv10", 20.0)});
  REQUIRE(result.modules.size() == 2);
  CHECK(result.modules[0].float_us == 40.0);
  CHECK_FALSE(result.modules[0].is_slower());
  CHECK(result.modules[1].float_us == 20.0);
  CHECK(result.modules[1].is_slower());
  CHECK(result.float_only.empty());
}

TEST_CASE("compare: two per cent more is not slower") {
  const Comparison result = compare({module("a", 10.1)}, {module("a", 10.0)});
  CHECK_FALSE(result.modules[0].is_slower());
}

TEST_CASE("compare: a module of one network only is compared with nothing") {
  const Comparison result = compare({module("quant", 2.0), module("conv", 5.0)},
                                    {module("conv", 9.0), module("relu", 1.0)});
  REQUIRE(result.modules.size() == 2);
  CHECK_FALSE(result.modules[0].float_us);
  CHECK_FALSE(result.modules[0].is_slower());
  CHECK_FALSE(result.modules[0].compared_at);
  REQUIRE(result.float_only.size() == 1);
  CHECK(result.float_only[0].path == "relu");
}

TEST_CASE("compare: float children count for the module that replaced them") {
  const Comparison result =
      compare({module("block", 5.0)}, {module("block.0", 3.0), module("block.1", 4.0)});
  REQUIRE(result.modules.size() == 1);
  CHECK(result.modules[0].float_us == 7.0);
  CHECK(result.float_only.empty());
}

TEST_CASE("compare: quantized children are compared together with the module around them") {
  const Comparison result = compare({module("attention", 4.0), module("attention.out_proj", 3.0)},
                                    {module("attention", 5.0)});
  REQUIRE(result.modules.size() == 2);
  CHECK(result.modules[0].float_us == 5.0);
  CHECK(result.modules[0].compared_us == 7.0);
  CHECK(result.modules[0].is_slower());
  CHECK_FALSE(result.modules[1].float_us);
  CHECK(result.modules[1].compared_at == "attention");
}

TEST_CASE("compare: ops of the whole network are no counterpart of its layers") {
  const Comparison result =
      compare({module("", 1.0), module("quant", 2.0)}, {module("", 3.0), module("relu", 4.0)});
  REQUIRE(result.modules.size() == 2);
  CHECK(result.modules[0].float_us == 3.0);
  CHECK(result.modules[0].compared_us == 1.0);
  CHECK_FALSE(result.modules[1].compared_at);
  CHECK(result.float_only.size() == 1);
}

TEST_CASE("compare: float ops of a module whose quantized form has only children are not lost") {
  const Comparison result =
      compare({module("block.conv", 2.0)}, {module("block.conv", 3.0), module("block", 4.0)});
  REQUIRE(result.modules.size() == 1);
  CHECK(result.modules[0].float_us == 3.0);
  REQUIRE(result.float_only.size() == 1);
  CHECK(result.float_only[0].path == "block");
}

}  // namespace quanta::cli
