#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/nn/module.h"
#include "quanta/runtime/file_access.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cli {

/// In which arithmetic a benchmark network runs.
enum class NetworkForm : std::uint8_t {
  Float32,
  Int8,
  DynamicInt8,
  DynamicInt8Attention,  ///< the products of queries, keys and values too
};

/// "float32", "int8", "dynamic-int8", "dynamic-int8-attention". Throws ArgumentError for another
/// text.
NetworkForm network_form(std::string_view text);
std::string_view to_string(NetworkForm form);

/// A network of the side-by-side benchmarks, by the names and sizes that these use.
struct NetworkKind {
  std::string_view name;
  Dims sample;           ///< sizes of one input without the batch
  double multiply_adds;  ///< for one input
  bool is_static;        ///< can be Int8 (it has a QuantStub)
  bool is_dynamic;       ///< has layers that quantize_dynamic takes
  std::shared_ptr<nn::Module> (*make)();
  std::vector<std::vector<std::string>> (*fusion_groups)(const nn::Module& model);
};

const std::vector<NetworkKind>& network_kinds();
/// Throws ArgumentError listing the names there are.
const NetworkKind& network_kind(std::string_view name);

/// The network with the float weights of `weights`, fused, in eval mode.
std::shared_ptr<nn::Module> load_float_network(const NetworkKind& kind,
                                               const std::filesystem::path& weights);

/// The network in that form. `weights` holds float weights under torch's names, or a model that
/// save_model wrote (then nothing is calibrated). Int8 needs calibration data for the former:
/// inputs [count, sample...], fed 8 at a time through get_default_qconfig("x86"). Throws
/// ArgumentError for a form that the network does not have and for missing calibration.
std::shared_ptr<nn::Module> load_network(const NetworkKind& kind, NetworkForm form,
                                         const std::filesystem::path& weights,
                                         const Tensor& calibration);

/// The network that save_model wrote to `path`. Throws what load_model throws.
std::shared_ptr<nn::Module> load_saved_network(const NetworkKind& kind,
                                               const std::filesystem::path& path,
                                               FileAccess access = FileAccess::Copy);

/// The network in that form with starting values of default_generator() for weights. Int8 needs
/// calibration data as in load_network.
std::shared_ptr<nn::Module> make_random_network(const NetworkKind& kind, NetworkForm form,
                                                const Tensor& calibration);

/// Normally distributed inputs [count, sample...], the same each time; images channels-last.
Tensor random_inputs(const NetworkKind& kind, std::int64_t count);

/// Whether save_model wrote this .safetensors file.
bool is_saved_model(const std::filesystem::path& path);

/// The tensor `x` (the only one, else) of a .safetensors file, checked to be inputs of `kind`.
Tensor read_inputs(const NetworkKind& kind, const std::filesystem::path& path);

}  // namespace quanta::cli
