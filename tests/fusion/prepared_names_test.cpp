// The states of torchvision's prepared networks load strictly: prepared_names.txt has the names,
// dtypes and sizes of all of them (prepared_names.py wrote it).

#include <doctest/doctest.h>

#include <map>
#include <set>
#include <sstream>
#include <string>

#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/models/mobilenet_v2.h"
#include "quanta/nn/models/mobilenet_v3.h"
#include "quanta/nn/models/resnet.h"
#include "quanta/observers/qconfig.h"
#include "quanta/runtime/error.h"
#include "support/capture_binding.h"
#include "support/files.h"

namespace quanta::test {
namespace {

/// States of ones (zeros for integers) by "<network> <ptq or qat>".
std::map<std::string, StateDict> read_states() {
  std::istringstream lines(read_bytes(source_folder() / "tests" / "fusion" / "prepared_names.txt"));
  std::map<std::string, StateDict> states;
  StateDict* state = nullptr;
  std::string before;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# ")) {
      state = &states[line.substr(2)];
      before.clear();
      continue;
    }
    std::istringstream words(line);
    std::size_t shared = 0;
    std::string rest, dtype_name, size_text;
    words >> shared >> rest >> dtype_name >> size_text;
    before = before.substr(0, shared) + rest;
    Dims sizes;
    std::istringstream numbers(size_text == "-" ? "" : size_text);
    for (std::string number; std::getline(numbers, number, 'x');) {
      sizes.push_back(std::stoll(number));
    }
    const DType dtype = dtype_from_torch_name(dtype_name).value();
    state->set(before, is_floating_point(dtype) ? Tensor::full(sizes, 1.0, dtype)
                                                : Tensor::zeros(sizes, dtype));
  }
  return states;
}

std::set<std::string> names_of(const StateDict& state) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : state) names.insert(name);
  return names;
}

template <typename Net>
void check_network(const std::map<std::string, StateDict>& states, const std::string& name,
                   const Net& net) {
  for (const bool qat : {false, true}) {
    const std::string key = name + (qat ? " qat" : " ptq");
    CAPTURE(key);
    REQUIRE(states.contains(key));
    const StateDict& state = states.at(key);
    Net model = nn::deep_copy(net);
    model.train(qat);
    if (qat) {
      fuse_modules_qat(model, fusion_groups(model));
    } else {
      fuse_modules(model, fusion_groups(model));
    }
    Net prepared = qat ? prepare_qat(model, get_default_qat_qconfig("fbgemm"))
                       : prepare(model, get_default_qconfig("fbgemm"));
    CHECK_NOTHROW(prepared.load_state_dict(state));
    // Ours are torch's, but for the observers of an addition that is never called.
    const std::set<std::string> own = names_of(prepared.state_dict());
    for (const auto& [entry, tensor] : state) {
      CAPTURE_BINDING(entry);
      if (!own.contains(entry)) {
        CHECK(entry.find(".skip_add.activation_post_process.") != std::string::npos);
      }
    }
    const std::set<std::string> torch = names_of(state);
    for (const std::string& entry : own) {
      CAPTURE(entry);
      CHECK(torch.contains(entry));
    }
    StateDict more = state;
    more.set("features.2.skip_add.activation_post_process.unknown", Tensor::ones({1}));
    CHECK_THROWS_AS(prepared.load_state_dict(more), ArgumentError);
    StateDict less = state;
    less.erase("quant.activation_post_process.min_val");
    less.erase("quant.activation_post_process.activation_post_process.min_val");
    CHECK_THROWS_AS(prepared.load_state_dict(less), ArgumentError);
  }
}

}  // namespace

TEST_CASE("load_state_dict: torchvision's prepared networks load strictly") {
  const std::map<std::string, StateDict> states = read_states();
  CHECK(states.size() == 8);
  check_network(states, "mobilenet_v2",
                nn::models::MobileNetV2({.activation = nn::models::MobileNetActivation::ReLU}));
  check_network(states, "mobilenet_v3_large", nn::models::mobilenet_v3_large(1000));
  check_network(states, "resnet18", nn::models::resnet18(1000));
  check_network(states, "resnet50", nn::models::resnet50(1000));
}

}  // namespace quanta::test
