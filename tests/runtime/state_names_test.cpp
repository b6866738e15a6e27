#include "quanta/runtime/state_names.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "quanta/runtime/error.h"

namespace quanta {
namespace {

StateDict state_of(const std::vector<std::string>& names) {
  StateDict state;
  for (const std::string& name : names) {
    state.set(name, Tensor::scalar(static_cast<double>(state.size())));
  }
  return state;
}

std::vector<std::string> names_of(const StateDict& state) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state) names.push_back(name);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("strip_prefix: names lose the prefix and keep order and tensor") {
  const StateDict state = state_of({"module.a.weight", "module.a.bias", "step", "a.module.x"});
  const StateDict stripped = strip_prefix(state, "module.");
  CHECK(names_of(stripped) == Names{"a.weight", "a.bias", "step", "a.module.x"});
  CHECK(stripped.at("a.bias").data_ptr() == state.at("module.a.bias").data_ptr());
  CHECK(names_of(strip_prefix(strip_prefix(state_of({"module._orig_mod.x"}), "module."),
                              "_orig_mod.")) == Names{"x"});
  CHECK(strip_prefix(StateDict(), "module.").empty());
}

TEST_CASE("strip_prefix: clashes and empty names are refused") {
  CHECK_THROWS_WITH_AS(strip_prefix(state_of({"a"}), ""),
                       doctest::Contains("prefix: expected one such as 'module.'"), ArgumentError);
  CHECK_THROWS_WITH_AS(strip_prefix(state_of({"a", "module.a"}), "module."),
                       doctest::Contains("got 'a' twice, once for 'module.a'"), ArgumentError);
  CHECK_THROWS_WITH_AS(strip_prefix(state_of({"module."}), "module."),
                       doctest::Contains("got 'module.' without a name"), ArgumentError);
}

TEST_CASE("rename: the first rule that fits decides") {
  RenameTable table;
  table.add_prefix("backbone.", "features.")
      .drop_regex(R"(.*\.num_batches_tracked)")
      .add_regex(R"(layer(\d)_(\d)_relu_(scale|zero_point)_0)", "layer$1.$2.add_relu.$3")
      .add_regex("backbone.*", "never");
  const StateDict state =
      state_of({"backbone.0.weight", "bn.num_batches_tracked", "layer1_0_relu_scale_0",
                "layer1_0_relu_zero_point_0", "xlayer1_0_relu_scale_0", "fc.weight"});
  const StateDict renamed = rename(state, table);
  CHECK(names_of(renamed) == Names{"features.0.weight", "layer1.0.add_relu.scale",
                                   "layer1.0.add_relu.zero_point", "xlayer1_0_relu_scale_0",
                                   "fc.weight"});
  CHECK(renamed.at("layer1.0.add_relu.scale").item() == 2.0);
  CHECK(names_of(rename(state, {})) == names_of(state));
}

TEST_CASE("rename: rules and names that cannot work are refused") {
  CHECK_THROWS_WITH_AS(RenameTable().add_prefix("", "x"), doctest::Contains("from: expected"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(RenameTable().add_regex("(", "x"),
                       doctest::Contains("pattern: expected a regex, got '('"), ArgumentError);
  CHECK_THROWS_WITH_AS(RenameTable().drop_regex("[a"), doctest::Contains("drop_regex: pattern"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(rename(state_of({"a", "b"}), RenameTable().add_regex(".", "x")),
                       doctest::Contains("got 'x' twice, once for 'b'"), ArgumentError);
  CHECK_THROWS_WITH_AS(rename(state_of({"a"}), RenameTable().add_regex("a", "")),
                       doctest::Contains("without a name"), ArgumentError);
  const StateDict hostile = state_of({std::string(1000000, 'a')});
  CHECK_THROWS_WITH_AS(rename(hostile, RenameTable().add_regex("(a*)*b", "x")),
                       doctest::Contains("names of at most 1024 bytes for a regex"), ArgumentError);
  CHECK_NOTHROW(rename(hostile, RenameTable().add_prefix("a", "b")));
  CHECK_NOTHROW(
      rename(state_of({std::string(1024, 'a')}), RenameTable().add_regex("(a|b)*c", "x")));
}

}  // namespace quanta
