#pragma once

#include <filesystem>

#include "quanta/fusion/mapping.h"
#include "quanta/nn/module.h"
#include "quanta/runtime/file_access.h"

namespace quanta {

/// Whether a file also holds the weights as kernels want them. They are large: about as many bytes
/// as the codes for each form that kernels have asked for.
enum class SavePacked : bool { No, Yes };

struct SaveOptions {
  /// Yes: with the packed forms of int8 weights that runs of the model have made so far, so that the
  /// loaded model starts sooner and several processes share the file's pages. Run the model once
  /// before, on inputs of the sizes that it will get: these decide which kernels, hence which forms.
  /// A form is used where its layout is the one that the loading machine's kernels ask for and where
  /// it belongs to the codes of the weight; otherwise, and where it was damaged (with a warning),
  /// the weight is packed as from other files. Results are the same in all cases.
  SavePacked packed = SavePacked::No;
};

struct LoadModelOptions {
  /// Copy: the file may change or go once it is loaded. Map: packed weights (SaveOptions::packed)
  /// stay in the file, where several processes share them, and codes take no memory once they are
  /// packed; the file has to stay as it is while the model lives (runtime/file_access.h).
  FileAccess access = FileAccess::Copy;
};

/// Saves a model in any form (float, fused, prepared, trained with fake quantization, converted):
/// its state_dict as .safetensors, with the form of every module that differs from the float
/// network as JSON in the metadata. The names of the forms are those of the table of module forms
/// (nn/module_forms.h). Atomic: a reader sees the old file or the new one.
///
/// Throws UnsupportedError, and writes nothing, for a module of the workflow that the table does
/// not know (register_module_form adds it), ArgumentError for SavePacked::Yes with a model that has
/// no packed weights, and FileError when the file cannot be written. Reads the model only; many
/// threads may save at once, to different files.
void save_model(const nn::Module& model, const std::filesystem::path& path,
                const SaveOptions& options = {});

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
/// Throws FileError for a file that is not save_model's (or whose list of packed weights is not), and ArgumentError listing everything that
/// does not fit, by path; then the model is as it was.
void load_model(nn::Module& model, const std::filesystem::path& path,
                const QConfigMapping& qconfigs = {}, const LoadModelOptions& options = {});

}  // namespace quanta
