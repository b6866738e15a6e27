#include "file_kinds.h"

#include <array>
#include <fstream>
#include <iterator>
#include <memory>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/graph/export_onnx.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/fusion/model_file.h"
#include "quanta/fusion/prepare.h"
#include "quanta/fusion/qconfig_file.h"
#include "quanta/fusion/training_report.h"
#include "quanta/nn/data/npy.h"
#include "quanta/nn/models/fashion.h"
#include "quanta/nn/optim/checkpoint.h"
#include "quanta/nn/optim/optimizer.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/histogram_observer.h"
#include "quanta/observers/statistics_file.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/safetensors.h"

namespace quanta::reliability {

namespace {

namespace fs = std::filesystem;
using Network = nn::models::FashionMobileNet;

std::string bytes_of(const Tensor& x) {
  const Tensor dense = x.contiguous();
  return {static_cast<const char*>(dense.data_ptr()), dense.nbytes()};
}

std::string bytes_of(const StateDict& state) {
  std::string all;
  for (const auto& [name, tensor] : state) all += name + bytes_of(tensor);
  return all;
}

struct Version {
  explicit Version(std::uint64_t seed) : generator(seed) {
    manual_seed(seed);
    floats.eval();
    prepared = prepare(fused(), get_default_qconfig());
    prepared(image);
    int8 = convert(prepared);
    int8(image);  // packs the weights
    observer->update(image);
  }
  Network fused() const {
    Network result = floats;
    fuse_modules(result, fusion_groups(result));
    return result;
  }

  Generator generator;
  Tensor image = randn({1, 1, 28, 28}, generator);
  Network floats, prepared, int8;
  std::shared_ptr<HistogramObserver> observer = std::make_shared<HistogramObserver>();
};

}  // namespace

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<FileKind> file_kinds() {
  static const std::array<Version, 2> versions{Version(1), Version(2)};
  const auto at = [](int version) -> const Version& {
    return versions[static_cast<std::size_t>(version)];
  };
  std::vector<FileKind> kinds;
  kinds.push_back({"safetensors",
                   [=](int version, const fs::path& path) {
                     write_safetensors(at(version).floats.state_dict(), path);
                   },
                   [](const fs::path& path) { return bytes_of(read_safetensors(path)); }});
  kinds.push_back({"int8 model",
                   [=](int version, const fs::path& path) {
                     save_model(at(version).int8, path, {.packed = SavePacked::Yes});
                   },
                   [=](const fs::path& path) {
                     Network net;
                     net.eval();
                     load_model(net, path);
                     return bytes_of(net(at(0).image));
                   }});
  kinds.push_back({"checkpoint",
                   [=](int version, const fs::path& path) {
                     Network net = at(version).floats;
                     net.requires_grad_();
                     optim::SGD optimizer(net.parameters(), {.lr = 0.1});
                     optim::save_checkpoint({net, optimizer}, path, {{"epoch", version}});
                   },
                   [](const fs::path& path) {
                     Network net;
                     net.requires_grad_();
                     optim::SGD optimizer(net.parameters(), {.lr = 0.1});
                     const auto counters = optim::load_checkpoint(path, {net, optimizer});
                     return std::to_string(counters.at("epoch")) + bytes_of(net.state_dict());
                   }});
  kinds.push_back({"ONNX",
                   [=](int version, const fs::path& path) {
                     const Version& one = at(version);
                     graph::save_onnx(one.floats, {&one.image, 1}, path);
                   },
                   [=](const fs::path& path) {
                     return bytes_of(graph::load_onnx(path).run({&at(0).image, 1}).front());
                   }});
  kinds.push_back(
      {"npy", [=](int version, const fs::path& path) { data::write_npy(at(version).image, path); },
       [](const fs::path& path) { return bytes_of(data::read_npy(path)); }});
  kinds.push_back({"npz",
                   [=](int version, const fs::path& path) {
                     data::write_npz({{"x", at(version).image}}, path);
                   },
                   [](const fs::path& path) { return bytes_of(data::read_npz(path).at("x")); }});
  kinds.push_back({"statistics",
                   [=](int version, const fs::path& path) {
                     save_statistics({{"x", at(version).observer}}, path);
                   },
                   [](const fs::path& path) {
                     StateDict state;
                     load_statistics(path).at("x")->save_state(state, "");
                     return bytes_of(state);
                   }});
  kinds.push_back({"qconfig mapping",
                   [](int version, const fs::path& path) {
                     QConfigMapping mapping(get_default_qconfig());
                     if (version == 1) mapping.set_module_name("fc", std::nullopt);
                     save_qconfig_mapping(mapping, path);
                   },
                   [](const fs::path& path) { return to_json(load_qconfig_mapping(path)); }});
  return kinds;
}

}  // namespace quanta::reliability
