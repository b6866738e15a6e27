#pragma once

#include <filesystem>

#include "quanta/fusion/mapping.h"
#include "quanta/nn/module.h"

namespace quanta {

/// Saves a model in any form (float, fused, prepared, trained with fake quantization, converted):
/// its state_dict as .safetensors, with the form of every module that differs from the float
/// network as JSON in the metadata. The names of the forms are those of the table of module forms
/// (nn/module_forms.h). Atomic: a reader sees the old file or the new one.
///
/// Throws UnsupportedError, and writes nothing, for a module of the workflow that the table does
/// not know (register_module_form adds it), and FileError when the file cannot be written. Reads
/// the model only; many threads may save at once, to different files.
void save_model(const nn::Module& model, const std::filesystem::path& path);

/// Loads what save_model wrote into a freshly built float model of the same architecture: children
/// are swapped for what the file says, and the state is loaded. Modules that have the form already
/// stay.
///
/// `qconfigs` make the observers and fake quantizers of a prepared model: give those that it was
/// prepared with (or load into a model that is prepared). Other files do not need them.
///
/// A graph::Model has to have the graph that was saved: float, dynamic and weight-only models load
/// into a fresh load_onnx of the same file, fused, prepared and converted ones into a model that
/// went through fuse_conv_bn_jit or prepare_jit; save_onnx needs none of that.
///
/// Throws FileError for a file that is not save_model's, and ArgumentError listing everything that
/// does not fit, by path; then the model is as it was.
void load_model(nn::Module& model, const std::filesystem::path& path,
                const QConfigMapping& qconfigs = {});

}  // namespace quanta
