#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "quanta/fusion/simulate.h"
#include "quanta/nn/aimet/fake_quantize.h"
#include "quanta/nn/module.h"
#include "quanta/observers/aimet/encoding_json.h"

// What throws says so. A simulation is for one thread at a time while it is changed; its model, once
// calibrated and in eval mode, may be called from many threads at once.

namespace quanta::aimet {

/// How ranges are found.
enum class QuantScheme : std::uint8_t {
  MinMax,      ///< AIMET's "tf"
  TfEnhanced,  ///< the least quantization noise
  Percentile,  ///< without the outermost values, see percentile
};

/// Settings of a part of the network; what is not given is as in the defaults.
struct QuantSimOverride {
  std::optional<std::int64_t> param_bitwidth{};
  std::optional<std::int64_t> output_bitwidth{};
  /// Neither weights nor results are quantized.
  bool excluded = false;
};

/// Which quantizers QuantizationSimModel puts where.
struct QuantSimConfig {
  QuantScheme scheme = QuantScheme::TfEnhanced;
  double percentile = 99.9;
  std::int64_t param_bitwidth = 8;
  std::int64_t output_bitwidth = 8;
  bool symmetric_params = true;
  bool symmetric_outputs = false;
  /// A scale for each output channel of a convolution or linear layer.
  bool per_channel = true;
  /// By the path of a module, which holds for all below. Throws ArgumentError for a path that is
  /// not there.
  std::map<std::string, QuantSimOverride> overrides{};
};

/// What QuantizationSimModel does, for models of any type.
namespace quantsim {

/// In place: layers become qat modules whose weights have a quantizer, and modules that static
/// quantization would observe quantize their result; a QuantStub quantizes the network's input.
/// Leaves the model in eval mode. Throws ArgumentError as prepare_qat_ does, and for bitwidths
/// outside 2..32 and paths of overrides that are not there.
void prepare_(nn::Module& model, const QuantSimConfig& config);

/// One quantizer of a simulation.
struct NamedQuantizer {
  std::string name;  ///< "conv1.weight" or "conv1.output", by the path of the module
  bool is_param = false;
  std::optional<Dims> input_shape{};  ///< of weights
  std::shared_ptr<AimetFakeQuantize> quantizer{};
};
/// In the order of the network.
std::vector<NamedQuantizer> named_quantizers(const nn::Module& model);

/// Runs `calibrate` while quantizers watch and change nothing; then they have their ranges. Throws
/// what `calibrate` and the analyzers throw, and ArgumentError for quantizers that saw no data in
/// this run, listing them; all ranges and switches are as they were then.
void compute_encodings(nn::Module& model, const Calibrate& calibrate);

/// The encodings of all quantizers that have one.
EncodingFile encodings(const nn::Module& model, EncodingVersion version);
/// Puts quantizers of these encodings in the places of their names; they go on with the analyzers
/// and gradients of those before them. Names that the file lacks keep theirs. Throws
/// ArgumentError for names that are not there, listing all, for scales that do not fit the weight,
/// for more than one scale or blocks of a result, and as quantizer_from; UnsupportedError for an
/// analyzer that cannot have the shape of an encoding. Nothing was changed then.
void load_encodings(nn::Module& model, const EncodingFile& file);
/// The state without quantizers: what the float network had, as trained.
StateDict float_state(const nn::Module& model);
/// Throws UnsupportedError that lists the quantizers whose encodings int8 modules cannot have:
/// weights other than up to 8 signed bits with one scale or one for each channel, results other
/// than 8 unsigned bits with one scale, float formats.
void require_convertible(const nn::Module& model);

}  // namespace quantsim

/// AIMET's QuantizationSimModel: a copy of a network with quantizers around its weights, inputs and
/// outputs.
///
///   aimet::QuantizationSimModel sim(net, {.param_bitwidth = 4});
///   sim.compute_encodings([&](const nn::Module& model) { model(images); });
///   const Tensor y = sim.model()(x);
///   sim.export_to("out", "resnet");   // out/resnet.safetensors, out/resnet.encodings
///   const Net int8 = sim.convert();
///
/// model() is trained like any network: model().train(), parameters with their ranges, eval().
/// Fuse first (fuse_modules), so that a convolution with its batch norm and ReLU has one quantizer.
template <typename T>
requires std::is_base_of_v<nn::Module, T>
class QuantizationSimModel {
 public:
  /// Throws as quantsim::prepare_.
  explicit QuantizationSimModel(const T& model, const QuantSimConfig& config = {})
      : model_(nn::deep_copy(model)) {
    quantsim::prepare_(model_, config);
  }

  T& model() noexcept { return model_; }
  const T& model() const noexcept { return model_; }
  /// See quantsim::compute_encodings.
  void compute_encodings(const Calibrate& calibrate) {
    quantsim::compute_encodings(model_, calibrate);
  }
  EncodingFile encodings(EncodingVersion version = EncodingVersion::V1_0_0) const {
    return quantsim::encodings(model_, version);
  }
  /// Writes the weights as `prefix`.safetensors and the encodings as `prefix`.encodings into a
  /// folder that is there. Throws FileError, and as to_json of a file.
  void export_to(const std::filesystem::path& folder, std::string_view prefix,
                 EncodingVersion version = EncodingVersion::V1_0_0) const;
  /// Reads what export_to wrote. Throws FileError, and as encoding_file_from_json and
  /// quantsim::load_encodings.
  void load_encodings(const std::filesystem::path& file);
  /// The network in int8. Throws as quantsim::require_convertible and quanta::convert.
  T convert() const;

 private:
  T model_;
};

namespace quantsim {
/// Writes both files of export_to; throws as it does.
void write_files(const nn::Module& model, const std::filesystem::path& folder,
                 std::string_view prefix, EncodingVersion version);
/// Reads a file of encodings for the model's tensors; throws as load_encodings of the class.
void read_file(nn::Module& model, const std::filesystem::path& file);
/// In place; throws as convert of the class.
void convert_(nn::Module& model);
}  // namespace quantsim

template <typename T>
requires std::is_base_of_v<nn::Module, T>
void QuantizationSimModel<T>::export_to(const std::filesystem::path& folder,
                                        std::string_view prefix, EncodingVersion version) const {
  quantsim::write_files(model_, folder, prefix, version);
}

template <typename T>
requires std::is_base_of_v<nn::Module, T>
void QuantizationSimModel<T>::load_encodings(const std::filesystem::path& file) {
  quantsim::read_file(model_, file);
}

template <typename T>
requires std::is_base_of_v<nn::Module, T> T QuantizationSimModel<T>::convert()
const {
  T copy = nn::deep_copy(model_);
  quantsim::convert_(copy);
  return copy;
}

}  // namespace quanta::aimet
