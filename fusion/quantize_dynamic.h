#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeindex>
#include <utility>
#include <vector>

#include "quanta/fusion/mapping.h"
#include "quanta/fusion/quantize.h"
#include "quanta/nn/module.h"

// What changes a model (names that end in an underscore) is for one thread at a time for each
// model, while nobody calls it; what takes a const model may run in many threads at once.

namespace quanta {

/// Which modules quantize_dynamic takes: by type, by path or by a regular expression on the path,
/// each with a QConfig of its own or the dtype's default one. What stands below a module that is
/// taken is taken too. Where several entries fit, a module's own set_qconfig comes first, then its
/// path, a regular expression, its type. An empty spec stands for the dtype's types, those whose
/// row in the table of module forms (nn/module_forms.h) names the dtype:
///
///   QInt8, Float16   Linear, MultiheadAttention, LSTM, GRU, LSTMCell, GRUCell, RNNCell
///   QUInt8           Embedding, EmbeddingBag, weights only
///   QUInt4x2         EmbeddingBag, weights only
///
/// A MultiheadAttention is taken whole, its four projections as they would be as Linear layers;
/// PyTorch leaves it in float (torch_dynamic_spec). The products of queries, keys and values stay in
/// float until nn::set_attention_dtype (nn/attention.h) or the module's option says QInt8.
class DynamicSpec {
 public:
  /// QConfigs by exact type: a subclass of nn::Linear is not nn::Linear. std::nullopt leaves the
  /// type in float.
  template <typename T>
  DynamicSpec& add_type() {
    return add_type(typeid(T));
  }
  DynamicSpec& add_type(std::type_index type) { return add({.kind = Kind::Type, .type = type}); }
  template <typename T>
  DynamicSpec& add_type(std::optional<QConfig> qconfig) {
    return add({.kind = Kind::Type,
                .type = typeid(T),
                .has_qconfig = true,
                .qconfig = std::move(qconfig)});
  }
  DynamicSpec& add_name(std::string path);
  DynamicSpec& add_name(std::string path, std::optional<QConfig> qconfig);
  /// ECMAScript, matched against the whole path; malformed ones are refused by quantize_dynamic.
  DynamicSpec& add_regex(std::string pattern);
  DynamicSpec& add_regex(std::string pattern, std::optional<QConfig> qconfig);
  bool empty() const noexcept { return entries_.empty(); }

  enum class Kind : std::uint8_t { Type, Name, Regex };
  struct Entry {
    Kind kind = Kind::Type;
    std::type_index type = typeid(void);
    std::string text{};        ///< path or pattern
    bool has_qconfig = false;  ///< otherwise the dtype's default one
    std::optional<QConfig> qconfig{};
  };
  const std::vector<Entry>& entries() const noexcept { return entries_; }

 private:
  DynamicSpec& add(Entry entry);

  std::vector<Entry> entries_;
};

/// What torch.ao.quantization.quantize_dynamic takes without a spec: the dtype's types without
/// MultiheadAttention. Throws ArgumentError as default_dynamic_qconfig_for does.
///   auto as_torch = quantize_dynamic(net, torch_dynamic_spec());
DynamicSpec torch_dynamic_spec(DType dtype = DType::QInt8);

/// default_dynamic_qconfig, float16_dynamic_qconfig, float_qparams_weight_only_qconfig or its 4-bit
/// form. Throws ArgumentError for another dtype, listing these four.
QConfig default_dynamic_qconfig_for(DType dtype);

/// In place: modules that the spec takes and the mapping knows are replaced by ones with quantized
/// weights, which quantize their float input in each call; everything else stays as it was. The
/// model is put into eval mode. The root itself is not replaced.
///
/// Throws ArgumentError, and leaves the model as it was: for a dtype without defaults where they
/// are needed, a path that the model does not have, a spec that takes nothing (PyTorch returns the
/// model unchanged), a root that is a leaf, and modules that cannot be quantized so, all listed
/// with their paths.
void quantize_dynamic_(nn::Module& model, const DynamicSpec& spec = {}, DType dtype = DType::QInt8,
                       const ModuleMapping& mapping = default_dynamic_quant_module_mappings());

/// quantize_dynamic_ on a copy of the same type, as torch.ao.quantization.quantize_dynamic.
///   auto int8 = quantize_dynamic(net);
///   auto half = quantize_dynamic(net, DynamicSpec().add_type<nn::LSTM>(), DType::Float16);
template <typename T>
requires std::is_base_of_v<nn::Module, T> T
quantize_dynamic(const T& model, const DynamicSpec& spec = {}, DType dtype = DType::QInt8,
                 const ModuleMapping& mapping = default_dynamic_quant_module_mappings()) {
  T copy = nn::deep_copy(model);
  quantize_dynamic_(copy, spec, dtype, mapping);
  return copy;
}

namespace detail {
std::vector<Problem> try_quantize_dynamic(nn::Module& copy, const DynamicSpec& spec, DType dtype,
                                          const ModuleMapping& mapping);
}  // namespace detail

/// Every reason for which quantize_dynamic would throw, by path; empty: it will work. Tries it on a
/// copy. Throws ArgumentError only for a dtype without defaults and a malformed pattern.
template <typename T>
requires std::is_base_of_v<nn::Module, T> std::vector<Problem> check_dynamic(
    const T& model, const DynamicSpec& spec = {}, DType dtype = DType::QInt8,
    const ModuleMapping& mapping = default_dynamic_quant_module_mappings()) {
  T copy = nn::deep_copy(model);
  return detail::try_quantize_dynamic(copy, spec, dtype, mapping);
}

}  // namespace quanta
