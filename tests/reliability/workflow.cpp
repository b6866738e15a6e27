#include "workflow.h"

#include <cstdint>
#include <stdexcept>
#include <utility>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/freeze.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/graph/export_onnx.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/fusion/model_file.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/models/fashion.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/settings.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/safetensors.h"

namespace quanta::reliability {

namespace {

namespace fs = std::filesystem;
using Network = nn::models::FashionMobileNet;

Network float_network() {
  manual_seed(11);
  Network net;
  net.eval();
  return net;
}

Network fused_network() {
  Network net = float_network();
  fuse_modules(net, fusion_groups(net));
  return net;
}

Network prepared_network(const Tensor& images) {
  Network prepared = prepare(fused_network(), get_default_qconfig());
  prepared(images);
  return prepared;
}

}  // namespace

struct Workflow::Parts {
  explicit Parts(fs::path given) : folder(std::move(given)) {
    save_model(int8, int8_file);
    write_safetensors(floats.state_dict(), float_file);
    graph::save_onnx(floats, {&image, 1}, onnx_file);
  }

  fs::path folder;
  fs::path int8_file = folder / "int8.safetensors";
  fs::path float_file = folder / "float.safetensors";
  fs::path onnx_file = folder / "float.onnx";
  Generator generator{3};
  Tensor image = randn({1, 1, 28, 28}, generator);
  Network floats = float_network(), fused = fused_network(), prepared = prepared_network(image);
  Network int8 = convert(prepared);
  FrozenModel plan = freeze(int8, image);
  Network loaded = float_network();
  // Longer than what a text holds in place.
  Settings settings{{"calibrator", "percentile of the absolute values"},
                    {"axis", Dims{0, 2, 3}},
                    {"another", "entropy of the histogram's bins"},
                    {"bins", std::int64_t{2048}}};
  Tensor float_result = floats(image), int8_result = int8(image);
};

Workflow::Workflow(fs::path folder) : parts_(std::make_unique<Parts>(std::move(folder))) {
  Parts& parts = *parts_;
  steps_ = {
      {"build", [] { float_network(); }},
      {"fuse", [] { fused_network(); }},
      {"run float", [&] { parts.floats(parts.image); }},
      {"prepare", [&] { prepare(parts.fused, get_default_qconfig()); }},
      {"calibrate", [&] { Network(parts.prepared)(parts.image); }},
      {"convert", [&] { convert(parts.prepared); }},
      {"pack and run int8", [&] { convert(parts.prepared)(parts.image); }},
      {"run int8", [&] { parts.int8(parts.image); }},
      {"freeze", [&] { freeze(parts.int8, parts.image); }},
      {"run the plan", [&] { parts.plan(parts.image); }},
      {"copy settings",
       [&] {
         Settings copy = parts.settings;
         copy.set("axis", *copy.find("calibrator"));
         if (copy == parts.settings) throw std::logic_error("the copy did not change");
       }},
      {"state_dict", [&] { parts.int8.state_dict(); }},
      {"save_model", [&] { save_model(parts.int8, parts.int8_file); }},
      {"load_model", [&] { load_model(parts.loaded, parts.int8_file); }},
      {"write_safetensors",
       [&] { write_safetensors(parts.floats.state_dict(), parts.float_file); }},
      {"load_state_dict",
       [&] { load_state_dict(parts.floats, read_safetensors(parts.float_file)); }},
      {"save_onnx",
       [&] {
         graph::save_onnx(parts.floats, {&parts.image, 1}, parts.onnx_file);
       }},
      {"load_onnx",
       [&] {
         graph::load_onnx(parts.onnx_file).run({&parts.image, 1});
       }},
  };
}

Workflow::~Workflow() = default;

void Workflow::check() const {
  const Parts& parts = *parts_;
  const auto same = [](const Tensor& got, const Tensor& expected, const char* what) {
    if (!got.equal(expected)) throw std::logic_error(std::string(what) + " gives another result");
  };
  same(parts.floats(parts.image), parts.float_result, "the float network");
  same(parts.int8(parts.image), parts.int8_result, "the int8 network");
  same(parts.plan(parts.image), parts.int8_result, "the plan");
  const Tensor loaded = parts.loaded(parts.image);
  if (!loaded.equal(parts.float_result) && !loaded.equal(parts.int8_result)) {
    throw std::logic_error("the network that a file is loaded into is neither the old nor the new");
  }
}

}  // namespace quanta::reliability
