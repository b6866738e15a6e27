#pragma once

#include <string>

#include "quanta/runtime/safetensors.h"
#include "quanta/runtime/state_dict.h"

namespace quanta::cli {

/// Whether save_model wrote the file.
bool is_saved_model_file(const SafetensorsFile& file);

/// Prints every module that differs from the float network (docs/files.md): its form, scale, zero
/// point and dtype of its result, how its weight is quantized; observers and graphs, if there are
/// any; then the tensors. Throws FileError where the metadata are not as save_model writes them.
void print_saved_model(const SafetensorsFile& file, const std::string& path);

/// Name, dtype, sizes and quantization parameters of each, and a line with their number and bytes.
void print_tensors(const StateDict& tensors);

}  // namespace quanta::cli
