#pragma once

// Private: QConfigs that a module inherits and could not use as they are.

#include <optional>

#include "quanta/nn/module.h"
#include "quanta/observers/qconfig.h"

namespace quanta {

/// What a module takes of a QConfig that was not meant for it alone: per-tensor weights for
/// transposed convolutions, float zero points for embeddings (nothing for bags that have no
/// quantized form), QUInt8 slopes for PReLU; else the QConfig itself.
std::optional<QConfig> fitting_qconfig(const nn::Module& module, const QConfig& inherited);

}  // namespace quanta
