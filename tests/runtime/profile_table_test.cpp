#include "quanta/runtime/profile_table.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace quanta {
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

TEST_CASE("compare_profiles: modules are found by path and the slower ones are told") {
  const ProfileComparison result =
      compare_profiles({module("conv1", 10.0), module("conv10", 30.0)},
                       {module("conv1", 40.0), module("conv10", 20.0)});
  REQUIRE(result.modules.size() == 2);
  CHECK(result.modules[0].float_us == 40.0);
  CHECK_FALSE(result.modules[0].is_slower());
  CHECK(result.modules[1].float_us == 20.0);
  CHECK(result.modules[1].is_slower());
  CHECK(result.float_only.empty());
}

TEST_CASE("compare_profiles: two per cent more is not slower") {
  const ProfileComparison result = compare_profiles({module("a", 10.1)}, {module("a", 10.0)});
  CHECK_FALSE(result.modules[0].is_slower());
}

TEST_CASE("compare_profiles: a module of one network only is compared with nothing") {
  const ProfileComparison result = compare_profiles({module("quant", 2.0), module("conv", 5.0)},
                                                    {module("conv", 9.0), module("relu", 1.0)});
  REQUIRE(result.modules.size() == 2);
  CHECK_FALSE(result.modules[0].float_us);
  CHECK_FALSE(result.modules[0].is_slower());
  CHECK_FALSE(result.modules[0].compared_at);
  REQUIRE(result.float_only.size() == 1);
  CHECK(result.float_only[0].path == "relu");
}

TEST_CASE("compare_profiles: float children count for the module that replaced them") {
  const ProfileComparison result =
      compare_profiles({module("block", 5.0)}, {module("block.0", 3.0), module("block.1", 4.0)});
  REQUIRE(result.modules.size() == 1);
  CHECK(result.modules[0].float_us == 7.0);
  CHECK(result.float_only.empty());
}

TEST_CASE(
    "compare_profiles: quantized children are compared together with the module around them") {
  const ProfileComparison result = compare_profiles(
      {module("attention", 4.0), module("attention.out_proj", 3.0)}, {module("attention", 5.0)});
  REQUIRE(result.modules.size() == 2);
  CHECK(result.modules[0].float_us == 5.0);
  CHECK(result.modules[0].compared_us == 7.0);
  CHECK(result.modules[0].is_slower());
  CHECK_FALSE(result.modules[1].float_us);
  CHECK(result.modules[1].compared_at == "attention");
}

TEST_CASE("compare_profiles: ops of the whole network are no counterpart of its layers") {
  const ProfileComparison result = compare_profiles({module("", 1.0), module("quant", 2.0)},
                                                    {module("", 3.0), module("relu", 4.0)});
  REQUIRE(result.modules.size() == 2);
  CHECK(result.modules[0].float_us == 3.0);
  CHECK(result.modules[0].compared_us == 1.0);
  CHECK_FALSE(result.modules[1].compared_at);
  CHECK(result.float_only.size() == 1);
}

TEST_CASE(
    "compare_profiles: float ops of a module whose quantized form has only children are not lost") {
  const ProfileComparison result = compare_profiles(
      {module("block.conv", 2.0)}, {module("block.conv", 3.0), module("block", 4.0)});
  REQUIRE(result.modules.size() == 1);
  CHECK(result.modules[0].float_us == 3.0);
  REQUIRE(result.float_only.size() == 1);
  CHECK(result.float_only[0].path == "block");
}

TEST_CASE("profile_table: columns that have something to show") {
  const std::vector<ModuleTime> modules{
      {"conv1", {"conv2d"}, {"brgconv"}, 10.0, {.multiply_adds = 50000, .bytes = 20000}},
      {"fc", {"linear"}, {}, 30.0, {}}};
  CHECK(profile_table(modules) ==
        "module  kernel     us  share  GOP/s  GB/s\n"
        "conv1   brgconv  10.0  25.0%   10.0   2.0\n"
        "fc               30.0  75.0%      -     -\n");
}

TEST_CASE("profile_table: shares of the machine and the plan and float beside it") {
  const ProfileComparison compared = compare_profiles(
      {{"conv1", {}, {}, 10.0, {.multiply_adds = 50000, .bytes = 20000}}, module("relu", 4.0)},
      {module("conv1", 20.0), module("relu", 1.0)});
  const ProfileTableOptions options{
      .types = {{"conv1", "QuantizedConv2d"}},
      .plan_us = {{"conv1", 8.0}},
      .outside_us = 6.0,
      .machine = {.int8_ops = 40e9, .tile_ops = 100e9, .read_bandwidth = [](std::size_t bytes) {
                    return bytes == 20000 ? 8e9 : 1e9;
                  }}};
  CHECK(profile_table(compared, options) ==
        "module  type               us  share  plan us  GOP/s  % peak  % AMX  GB/s  % read  float "
        "us  "
        "ratio\n"
        "conv1   QuantizedConv2d  10.0  50.0%      8.0   10.0   25.0%  10.0%   2.0   25.0%      "
        "20.0  "
        " 2.00\n"
        "relu                      4.0  20.0%        -      -       -      -     -       -       "
        "1.0  "
        "0.25*\n");
}

TEST_CASE("profile_table: lines keep within the width and say what they leave out") {
  const std::string path = "encoder.layers.11.attention.self.query.projection";
  const std::vector<ModuleTime> modules{
      {path, {}, {std::string(60, 'k')}, 10.0, {.multiply_adds = 50000, .bytes = 20000}}};
  ProfileTableOptions options{.types = {{path, std::string(40, 'T')}}, .width = 70};
  const std::string table = profile_table(modules, options);
  std::size_t begin = 0;
  for (std::size_t end = table.find('\n'); end != std::string::npos;
       begin = end + 1, end = table.find('\n', begin)) {
    CHECK(end - begin <= 70);
  }
  CHECK(table.find("projection") != std::string::npos);  // the end of a path tells more
  CHECK(table.find("left out for want of room: type\n") != std::string::npos);
  options.width = 0;
  const std::string whole = profile_table(modules, options);
  CHECK(whole.find(path) != std::string::npos);
  CHECK(whole.find(std::string(60, 'k')) != std::string::npos);
  CHECK(whole.find("left out") == std::string::npos);
}

TEST_CASE("profile_table: a child that is compared at its parent says so") {
  const ProfileComparison compared = compare_profiles(
      {module("attention", 4.0), module("attention.out_proj", 3.0)}, {module("attention", 5.0)});
  CHECK(profile_table(compared).find("(outer)") != std::string::npos);
}

}  // namespace quanta
