#pragma once

// Private: what the forms of MultiheadAttention have in files besides their state.

#include <optional>
#include <string>
#include <string_view>

#include "quanta/nn/attention.h"
#include "quanta/nn/module_forms.h"
#include "quanta/runtime/check.h"

namespace quanta::nn::detail {

/// Makes the row save and restore attention_dtype, where it is not the default.
inline void keep_attention_dtype(ModuleForm& row) {
  static constexpr std::string_view kName = "attention_dtype";
  row.settings = [](const Module& module) {
    FormSettings settings;
    const DType dtype = static_cast<const MultiheadAttention&>(module).options().attention_dtype;
    if (dtype != DType::Float32) settings.words[std::string(kName)] = torch_name(dtype);
    return settings;
  };
  row.configure = [](Module& module, const FormSettings& settings) {
    auto& attention = static_cast<MultiheadAttention&>(module);
    const auto word = settings.words.find(std::string(kName));
    if (word == settings.words.end()) return attention.set_attention_dtype(DType::Float32);
    const std::optional<DType> dtype = dtype_from_torch_name(word->second);
    QUANTA_CHECK(dtype.has_value(), "settings: {}: expected a dtype's name, got '{}'", kName,
                 word->second);
    attention.set_attention_dtype(*dtype);
  };
}

}  // namespace quanta::nn::detail
