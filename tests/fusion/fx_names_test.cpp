// The names of PyTorch's FX graph mode, renamed to those of the networks here: fx_names.txt has all
// of them (fx_names.py wrote it), and docs/from_pytorch.md tells the rules.

#include <doctest/doctest.h>

#include <map>
#include <set>
#include <sstream>
#include <string>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/models/mobilenet_v2.h"
#include "quanta/nn/models/mobilenet_v3.h"
#include "quanta/nn/models/resnet.h"
#include "quanta/observers/qconfig.h"
#include "quanta/runtime/state_names.h"
#include "support/files.h"

namespace quanta::test {
namespace {

using Names = std::set<std::string>;

Names names_of(const StateDict& state) {
  Names names;
  for (const auto& [name, tensor] : state) names.insert(name);
  return names;
}

/// A scalar for each name, by network.
std::map<std::string, StateDict> read_states() {
  std::istringstream lines(read_bytes(source_folder() / "tests" / "fusion" / "fx_names.txt"));
  std::map<std::string, StateDict> states;
  StateDict* state = nullptr;
  std::string name;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# ")) {
      state = &states[line.substr(2)];
      name.clear();
      continue;
    }
    std::istringstream words(line);
    std::size_t shared = 0;
    std::string rest;
    words >> shared >> rest;
    name = name.substr(0, shared) + rest;
    state->set(name, Tensor::scalar(1.0));
  }
  return states;
}

RenameTable resnet_table(const std::string& addition) {
  RenameTable table;
  table.add_regex(R"(conv1_input_(scale|zero_point)_0)", "quant.$1")
      .add_regex(R"(layer(\d)_(\d)_relu_(scale|zero_point)_0)", "layer$1.$2." + addition + ".$3");
  return table;
}

RenameTable mobilenet_table() {
  RenameTable table;
  table.add_regex(R"(features_0_0_input_(scale|zero_point)_0)", "quant.$1")
      .add_regex(R"(features_(\d+)_block_(\d+)_(scale|zero_point)_0)",
                 "features.$1.block.$2.skip_mul.$3")
      .add_regex(R"(features_(\d+)_(scale|zero_point)_0)", "features.$1.skip_add.$2");
  return table;
}

template <typename Net>
void check_names(const StateDict& fx, const RenameTable& table, Net net) {
  net.eval();
  fuse_modules(net, fusion_groups(net));
  prepare_(net, get_default_qconfig("fbgemm"));
  convert_(net, {.uncalibrated = Uncalibrated::Allow});
  CHECK(names_of(rename(fx, table)) == names_of(net.state_dict()));
}

}  // namespace

TEST_CASE("rename: a table fits the names of FX graph mode to the eager ones") {
  const std::map<std::string, StateDict> states = read_states();
  CHECK(states.size() == 4);
  check_names(states.at("resnet18"), resnet_table("add_relu"), nn::models::resnet18(1000));
  check_names(states.at("resnet50"), resnet_table("skip_add_relu"), nn::models::resnet50(1000));
  check_names(states.at("mobilenet_v2"), mobilenet_table(),
              nn::models::MobileNetV2({.activation = nn::models::MobileNetActivation::ReLU}));
  check_names(states.at("mobilenet_v3_large"), mobilenet_table(),
              nn::models::mobilenet_v3_large(1000));
}

}  // namespace quanta::test
