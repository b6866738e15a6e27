#include <set>
#include <string>

#include "dynamic_pipeline.h"
#include "network.h"
#include "pipeline.h"
#include "quanta/fusion/convert.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/prepare.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/observers/qconfig.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/pt_file.h"
#include "registry.h"

namespace quanta::conform {
namespace {

Network fused(const Network& net, const Case& test) {
  Network copy = nn::deep_copy(net);
  fuse_modules(copy, groups_to_fuse(test));
  return copy;
}

Outputs run_static_pipeline(const Case& test) {
  Network net(test.attr("modules"));
  net.load_state_dict(state_dict_from(test.object("state_dict")));
  net.eval();
  Outputs outputs;
  outputs.set("float_y", net(test.x()));

  const Network prepared = prepare(fused(net, test), qconfig_from_name(test.text("qconfig")));
  for (const Tensor& batch : test.tensors("calibration")) prepared(batch);
  outputs.set("observers", observers_of(prepared));

  Network converted = convert(prepared);
  outputs.set("modules", quantized_modules_of(converted));
  Recorder recorder(converted);
  const Tensor y = recorder(test.x());
  outputs.set("activations", recorder.take_activations());
  outputs.set("y", y);
  return outputs;
}

Outputs run_dynamic_pipeline(const Case& test) {
  Network net(test.attr("modules"));
  net.load_state_dict(state_dict_from(test.object("state_dict")));
  net.eval();
  Outputs outputs;
  outputs.set("float_y", net(test.x()));
  const Network dynamic = quantize_dynamic(net, dynamic_spec_of(test));
  outputs.set("modules", dynamic_modules_of(dynamic));
  outputs.set("y", dynamic(test.x()));
  return outputs;
}

std::set<std::string> names_of(const StateDict& state) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : state) names.insert(name);
  return names;
}

Outputs run_pt(const Case& test) {
  const StateDict state = read_pt_state_dict(test.folder / test.text("file"));
  Network net(test.attr("modules"));
  net.eval();
  Outputs outputs;
  // A file of the float network holds exactly its names; anything else is a converted one's.
  if (names_of(state) == names_of(net.state_dict())) {
    net.load_state_dict(state);
    outputs.set("y", net(test.x()));
    return outputs;
  }
  if (test.has_attr("qconfig_spec")) {
    Network dynamic = quantize_dynamic(net, dynamic_spec_of(test));
    dynamic.load_state_dict(state);
    outputs.set("y", dynamic(test.x()));
    return outputs;
  }
  ConvertOptions options;
  options.uncalibrated = Uncalibrated::Allow;
  Network converted =
      convert(prepare(fused(net, test), qconfig_from_name(test.text("qconfig"))), options);
  converted.load_state_dict(state);
  outputs.set("y", Recorder(converted)(test.x()));
  return outputs;
}

const Registration kOps{
    {"static_pipeline", run_static_pipeline},
    {"dynamic_pipeline", run_dynamic_pipeline},
    {"run_pt", run_pt},
};

}  // namespace
}  // namespace quanta::conform
