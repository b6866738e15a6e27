#pragma once

// Private: the names that a pickle may mention. Each stands for data, for a way to build data that
// Quanta knows, or for something that is left out; none can run code.

#include <cstdint>
#include <optional>
#include <string_view>

#include "quanta/runtime/dtype.h"
#include "quanta/runtime/quantizer.h"

namespace quanta::detail {

struct PickleGlobal {
  enum class Kind : std::uint8_t {
    DictType,  ///< OrderedDict, defaultdict, Counter
    SetType,
    SizeType,
    PlainType,  ///< int, list, ...: a defaultdict's factory, never called
    ByteArray,
    Complex,
    CodecsEncode,
    RebuildTensor,
    RebuildTensorV2,
    RebuildTensorV3,
    RebuildQTensor,
    RebuildParameter,
    RebuildParameterWithState,
    RebuildFromType,
    RebuildWrapperSubclass,  ///< an argument of RebuildFromType: tensors made of tensors
    TensorType,              ///< torch.Tensor, Parameter: an argument of RebuildFromType
    Device,
    GetLayout,
    Layout,
    StorageType,         ///< `dtype` says of what
    UntypedStorageType,  ///< counted in bytes
    UnsupportedStorageType,
    DTypeValue,
    UnsupportedDType,
    QSchemeValue,
    ScriptObjectType,  ///< torch.ScriptObject: the class name stands in the state
    ScriptClass,       ///< __torch__.torch.classes.*: the class name is the global itself
    Opaque,            ///< another class or function: what it would make is left out
  };
  Kind kind = Kind::PlainType;
  DType dtype = DType::Float32;
  QScheme qscheme = QScheme::PerTensorAffine;
};

/// Names outside the list are Opaque, save for two kinds, which give nothing: modules whose
/// functions reach beyond the file (os, sys, subprocess, most of builtins, ...), which no honest
/// file mentions, and those of torch that make tensors, storages and dtypes, as a tensor may not
/// be left out in silence.
std::optional<PickleGlobal> find_pickle_global(std::string_view module, std::string_view name);

}  // namespace quanta::detail
