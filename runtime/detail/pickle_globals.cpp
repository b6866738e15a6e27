#include "quanta/runtime/detail/pickle_globals.h"

#include <algorithm>
#include <array>
#include <span>

namespace quanta::detail {
namespace {

using Kind = PickleGlobal::Kind;

struct Named {
  std::string_view module;
  std::string_view name;
  Kind kind;
};

constexpr std::array kNamed{
    Named{"collections", "OrderedDict", Kind::DictType},
    Named{"collections", "defaultdict", Kind::DictType},
    Named{"collections", "Counter", Kind::DictType},
    Named{"_codecs", "encode", Kind::CodecsEncode},
    Named{"torch._utils", "_rebuild_tensor", Kind::RebuildTensor},
    Named{"torch._utils", "_rebuild_tensor_v2", Kind::RebuildTensorV2},
    Named{"torch._utils", "_rebuild_tensor_v3", Kind::RebuildTensorV3},
    Named{"torch._utils", "_rebuild_qtensor", Kind::RebuildQTensor},
    Named{"torch._utils", "_rebuild_parameter", Kind::RebuildParameter},
    Named{"torch._utils", "_rebuild_parameter_with_state", Kind::RebuildParameterWithState},
    Named{"torch._tensor", "_rebuild_from_type_v2", Kind::RebuildFromType},
    Named{"torch._utils", "_rebuild_wrapper_subclass", Kind::RebuildWrapperSubclass},
    Named{"torch.nn.parameter", "Parameter", Kind::TensorType},
    Named{"torch.nn", "Parameter", Kind::TensorType},
    Named{"torch", "Tensor", Kind::TensorType},
    Named{"torch", "Size", Kind::SizeType},
    Named{"torch", "device", Kind::Device},
    Named{"torch.serialization", "_get_layout", Kind::GetLayout},
    Named{"torch", "strided", Kind::Layout},
    Named{"torch", "ScriptObject", Kind::ScriptObjectType},
    Named{"torch._C", "ScriptObject", Kind::ScriptObjectType},
    Named{"torch.storage", "UntypedStorage", Kind::UntypedStorageType},
    Named{"torch", "UntypedStorage", Kind::UntypedStorageType},
    Named{"torch", "ComplexFloatStorage", Kind::UnsupportedStorageType},
    Named{"torch", "ComplexDoubleStorage", Kind::UnsupportedStorageType},
    Named{"torch", "complex32", Kind::UnsupportedDType},
    Named{"torch", "complex64", Kind::UnsupportedDType},
    Named{"torch", "complex128", Kind::UnsupportedDType},
    Named{"torch", "uint32", Kind::UnsupportedDType},
    Named{"torch", "uint64", Kind::UnsupportedDType},
    Named{"torch", "float8_e4m3fnuz", Kind::UnsupportedDType},
    Named{"torch", "float8_e5m2fnuz", Kind::UnsupportedDType},
    Named{"torch", "float8_e8m0fnu", Kind::UnsupportedDType},
};

struct Builtin {
  std::string_view name;
  Kind kind;
};

constexpr std::array kBuiltins{
    Builtin{"set", Kind::SetType},     Builtin{"bytearray", Kind::ByteArray},
    Builtin{"complex", Kind::Complex}, Builtin{"int", Kind::PlainType},
    Builtin{"float", Kind::PlainType}, Builtin{"bool", Kind::PlainType},
    Builtin{"str", Kind::PlainType},   Builtin{"list", Kind::PlainType},
    Builtin{"tuple", Kind::PlainType}, Builtin{"dict", Kind::PlainType},
};

struct StorageName {
  std::string_view name;
  DType dtype;
};

constexpr std::array kStorages{
    StorageName{"DoubleStorage", DType::Float64},
    StorageName{"FloatStorage", DType::Float32},
    StorageName{"HalfStorage", DType::Float16},
    StorageName{"BFloat16Storage", DType::BFloat16},
    StorageName{"LongStorage", DType::Int64},
    StorageName{"IntStorage", DType::Int32},
    StorageName{"ShortStorage", DType::Int16},
    StorageName{"CharStorage", DType::Int8},
    StorageName{"ByteStorage", DType::UInt8},
    StorageName{"BoolStorage", DType::Bool},
    StorageName{"QUInt8Storage", DType::QUInt8},
    StorageName{"QInt8Storage", DType::QInt8},
    StorageName{"QInt32Storage", DType::QInt32},
    StorageName{"QUInt4x2Storage", DType::QUInt4x2},
    StorageName{"QUInt2x4Storage", DType::QUInt2x4},
};

constexpr std::array kSchemes{
    QScheme::PerTensorAffine,     QScheme::PerTensorSymmetric,           QScheme::PerChannelAffine,
    QScheme::PerChannelSymmetric, QScheme::PerChannelAffineFloatQParams,
};

// Modules (and all below them) of which a pickle takes functions only to run them.
constexpr std::array<std::string_view, 17> kRefusedModules{
    "os",     "posix",  "nt",     "sys",     "subprocess", "shutil",  "importlib",  "runpy", "pty",
    "ctypes", "socket", "pickle", "_pickle", "marshal",    "asyncio", "webbrowser", "pdb"};

// Parts of torch whose names make tensors, storages and dtypes.
constexpr std::array<std::string_view, 6> kTensorModules{
    "torch", "torch._utils", "torch._tensor", "torch._C", "torch.storage", "torch.serialization"};

// Builtins that stand in checkpoints; getattr makes the bound methods of schedulers.
constexpr std::array<std::string_view, 8> kOpaqueBuiltins{
    "object", "slice", "range", "frozenset", "type", "bytes", "Ellipsis", "getattr"};

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool may_be_opaque(std::string_view module, std::string_view name) {
  const std::string_view top = module.substr(0, module.find('.'));
  if (top == "builtins" || top == "__builtin__") return contains(kOpaqueBuiltins, name);
  return !contains(kRefusedModules, top) && !contains(kTensorModules, module);
}

PickleGlobal of_kind(Kind kind) {
  PickleGlobal global;
  global.kind = kind;
  return global;
}

}  // namespace

std::optional<PickleGlobal> find_pickle_global(std::string_view module, std::string_view name) {
  for (const Named& entry : kNamed) {
    if (entry.module == module && entry.name == name) return of_kind(entry.kind);
  }
  if (module == "builtins" || module == "__builtin__") {
    for (const Builtin& entry : kBuiltins) {
      if (entry.name == name) return of_kind(entry.kind);
    }
  }
  if (module.starts_with("__torch__.torch.classes.")) return of_kind(Kind::ScriptClass);
  if (may_be_opaque(module, name)) return of_kind(Kind::Opaque);
  if (module != "torch") return std::nullopt;

  for (const StorageName& entry : kStorages) {
    if (entry.name == name) return PickleGlobal{Kind::StorageType, entry.dtype, {}};
  }
  for (const QScheme scheme : kSchemes) {
    if (torch_name(scheme) == name) return PickleGlobal{Kind::QSchemeValue, {}, scheme};
  }
  // The lookup also takes "torch.float32"; as a pickle's name that would be torch.torch.float32.
  if (name.find('.') != std::string_view::npos) return std::nullopt;
  if (const auto dtype = dtype_from_torch_name(name)) {
    return PickleGlobal{Kind::DTypeValue, *dtype, {}};
  }
  return std::nullopt;
}

}  // namespace quanta::detail
