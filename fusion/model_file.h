#pragma once

#include <filesystem>

#include "quanta/nn/module.h"

namespace quanta {

/// Saves a (converted) model: its state_dict as .safetensors with the type of every module as JSON
/// in the metadata. Atomic. Throws FileError.
void save_model(const nn::Module& model, const std::filesystem::path& path);

/// Loads what save_model wrote into a freshly built float model of the same architecture: children
/// are swapped for what the file says (quantized, fused or Identity) and the state is loaded.
/// Throws FileError for a file that is not ours and ArgumentError listing what does not fit; then
/// the model is as it was.
void load_model(nn::Module& model, const std::filesystem::path& path);

}  // namespace quanta
