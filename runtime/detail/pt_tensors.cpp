#include <algorithm>
#include <cstring>
#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/file_sizes.h"
#include "quanta/runtime/detail/pt_builder.h"
#include "quanta/runtime/detail/torchao.h"

// The half of PtBuilder that makes tensors: torch/_utils.py's _rebuild_* functions.

namespace quanta::detail {
namespace {

using Kind = PickleNode::Kind;
using GlobalKind = PickleGlobal::Kind;

std::int64_t elements_per_byte(DType dtype) noexcept {
  return is_sub_byte(dtype) ? 8 / item_bits(dtype) : 1;
}

void swap_bytes(std::span<std::byte> bytes, std::size_t item) {
  for (std::size_t i = 0; i + item <= bytes.size(); i += item) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                 bytes.begin() + static_cast<std::ptrdiff_t>(i + item));
  }
}

bool is_dense_row_major(const Dims& sizes, const Dims& strides) {
  std::int64_t expected = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] == 1) continue;
    if (strides[d] != expected) return false;
    expected *= sizes[d];
  }
  return true;
}

}  // namespace

std::int64_t PtBuilder::integer(const PickleNode& node, const PickleNode& value,
                                std::string_view what) const {
  if (value.kind != Kind::Int)
    fail(node, fmt::format("{}: expected an integer, got {}", what, describe(value)));
  return value.integer;
}

double PtBuilder::number(const PickleNode& node, const PickleNode& value,
                         std::string_view what) const {
  if (value.kind == Kind::Int) return static_cast<double>(value.integer);
  if (value.kind != Kind::Float)
    fail(node, fmt::format("{}: expected a number, got {}", what, describe(value)));
  return value.number;
}

bool PtBuilder::boolean(const PickleNode& node, const PickleNode& value,
                        std::string_view what) const {
  if (value.kind != Kind::Bool && value.kind != Kind::Int) {
    fail(node, fmt::format("{}: expected a bool, got {}", what, describe(value)));
  }
  return value.integer != 0;
}

Dims PtBuilder::dims(const PickleNode& node, const PickleNode& value, std::string_view what) const {
  if (value.kind != Kind::Tuple && value.kind != Kind::List) {
    fail(node, fmt::format("{}: expected a tuple of integers, got {}", what, describe(value)));
  }
  if (value.items.size() > Dims::kMaxDims) {
    fail(node, fmt::format("{}: expected at most {} dimensions, got {}", what, Dims::kMaxDims,
                           value.items.size()));
  }
  Dims result;
  for (const PickleNode* item : value.items) result.push_back(integer(node, *item, what));
  return result;
}

PickleValue::TensorValue PtBuilder::build_tensor(const PickleNode& node, int depth) {
  const auto found = tensors_.find(&node);
  if (found != tensors_.end()) return found->second;
  charge(node, sizeof(TensorImpl));
  PickleValue::TensorValue tensor = call_rebuild(node, *node.items[0], *node.items[1], depth);
  tensors_.emplace(&node, tensor);
  return tensor;
}

PickleValue::TensorValue PtBuilder::call_rebuild(const PickleNode& node, const PickleNode& function,
                                                 const PickleNode& arguments_node, int depth) {
  if (depth > kMaxDepth) fail(node, "expected a tensor, got calls nested too deep");
  if (function.kind != Kind::Global || arguments_node.kind != Kind::Tuple) {
    fail(node, fmt::format("expected a function and a tuple of arguments, got {} and {}",
                           describe(function), describe(arguments_node)));
  }
  const Arguments& arguments = arguments_node.items;
  const auto expect_count = [&](std::size_t least, std::size_t most) {
    if (arguments.size() < least || arguments.size() > most) {
      fail(node, fmt::format("{}: expected {} arguments, got {}", function.text,
                             least == most ? fmt::format("{}", least)
                                           : fmt::format("{} to {}", least, most),
                             arguments.size()));
    }
  };
  const auto storage_dtype = [&](const View& view) {
    const StorageReference& reference = references_.at(view.storage);
    if (reference.is_untyped) {
      fail(node, fmt::format("{}: expected a typed storage, got an untyped one", function.text));
    }
    return reference.dtype;
  };
  const auto expect_plain = [&](DType dtype) {
    if (is_quantized(dtype)) {
      fail(node, fmt::format("{}: expected a plain dtype, got {}", function.text, dtype));
    }
  };

  switch (function.global.kind) {
    case GlobalKind::RebuildTensor: {
      expect_count(4, 4);
      const View view = read_view(node, arguments);
      const DType dtype = storage_dtype(view);
      expect_plain(dtype);
      return {make_tensor(node, view, dtype, {}), false};
    }
    case GlobalKind::RebuildTensorV2: {
      expect_count(5, 7);
      refuse_flags(node, arguments, 6);
      const View view = read_view(node, arguments);
      const DType dtype = storage_dtype(view);
      expect_plain(dtype);
      return {make_tensor(node, view, dtype, {}), boolean(node, *arguments[4], "requires_grad")};
    }
    case GlobalKind::RebuildTensorV3: {
      expect_count(7, 8);
      refuse_flags(node, arguments, 7);
      const View view = read_view(node, arguments);
      const PickleNode& dtype = *arguments[6];
      if (dtype.kind != Kind::Global || dtype.global.kind != GlobalKind::DTypeValue) {
        fail(node, fmt::format("dtype: expected a dtype that Quanta has, got {}", describe(dtype)));
      }
      expect_plain(dtype.global.dtype);
      return {make_tensor(node, view, dtype.global.dtype, {}),
              boolean(node, *arguments[4], "requires_grad")};
    }
    case GlobalKind::RebuildQTensor: {
      expect_count(6, 7);
      const View view = read_view(node, arguments);
      const DType dtype = storage_dtype(view);
      if (!is_quantized(dtype)) {
        fail(node, fmt::format("{}: expected a quantized storage, got {}", function.text, dtype));
      }
      const Quantizer quantizer = read_quantizer(node, *arguments[4], depth);
      return {make_tensor(node, view, dtype, quantizer),
              boolean(node, *arguments[5], "requires_grad")};
    }
    case GlobalKind::RebuildParameter:
    case GlobalKind::RebuildParameterWithState: {
      expect_count(3, 4);
      if (!is_tensor_call(*arguments[0])) {
        fail(node,
             fmt::format("{}: expected a tensor, got {}", function.text, describe(*arguments[0])));
      }
      PickleValue::TensorValue value = build_tensor(*arguments[0], depth + 1);
      value.requires_grad = boolean(node, *arguments[1], "requires_grad");
      return value;
    }
    case GlobalKind::RebuildFromType:
      // (function, type, arguments, state): a tensor with Python attributes, which are dropped.
      expect_count(4, 4);
      if (arguments[0]->kind == Kind::Global &&
          arguments[0]->global.kind == GlobalKind::RebuildWrapperSubclass) {
        return {build_torchao(node, *arguments[1], *arguments[3], depth + 1), false};
      }
      if (arguments[1]->kind != Kind::Global ||
          arguments[1]->global.kind != GlobalKind::TensorType) {
        fail(node, fmt::format("{}: expected torch.Tensor or Parameter, got {}", function.text,
                               describe(*arguments[1])));
      }
      return call_rebuild(node, *arguments[0], *arguments[2], depth + 1);
    default:
      fail(node, fmt::format("expected a function that rebuilds a tensor, got {}", function.text));
  }
}

// torchao's Int8Tensor: its parts are attributes of a tensor without elements of its own.
Tensor PtBuilder::build_torchao(const PickleNode& node, const PickleNode& type,
                                const PickleNode& state, int depth) {
  if (type.kind != Kind::Global || !type.text.starts_with("torchao.") ||
      !type.text.ends_with(".Int8Tensor")) {
    fail(node, fmt::format("expected a plain tensor or torchao's Int8Tensor, got {}: dequantize it "
                           "in Python before saving",
                           describe(type)));
  }
  if (state.kind != Kind::Dict) {
    fail(node,
         fmt::format("{}: expected a dict of attributes, got {}", type.text, describe(state)));
  }
  TorchaoInt8 parts;
  const auto tensor = [&](std::size_t i) {
    const PickleNode& value = *state.items[i + 1];
    if (value.kind == Kind::None) return Tensor();
    if (!is_tensor_call(value)) {
      fail(node, fmt::format("{}: {}: expected a tensor, got {}", type.text, state.items[i]->text,
                             describe(value)));
    }
    return build_tensor(value, depth).tensor;
  };
  for (std::size_t i = 0; i < state.items.size(); i += 2) {
    const std::string& name = state.items[i]->text;
    const PickleNode& value = *state.items[i + 1];
    if (name == "qdata") parts.qdata = tensor(i);
    if (name == "scale") parts.scale = tensor(i);
    if (name == "zero_point") parts.zero_point = tensor(i);
    if (name == "block_size") parts.block_size = dims(node, value, name);
    if (name.starts_with("act_") && value.kind != Kind::None) {
      fail(node, fmt::format("{}: {}: expected None (weights only), got {}", type.text, name,
                             describe(value)));
    }
  }
  // Weights without elements may share the scales of many rows, of which each gets a copy.
  if (parts.scale.defined()) {
    const auto rows = static_cast<std::size_t>(parts.scale.numel());
    if (rows > budget_) charge(node, budget_ + 1);
    charge(node, rows * (sizeof(double) + sizeof(std::int64_t)));
  }
  return restore_torchao_int8(parts, fmt::format("{}: byte {}", where_, node.offset));
}

void PtBuilder::refuse_flags(const PickleNode& node, const Arguments& arguments,
                             std::size_t position) const {
  if (arguments.size() <= position || arguments[position]->kind != Kind::Dict) return;
  const Arguments& items = arguments[position]->items;
  for (std::size_t i = 0; i < items.size(); i += 2) {
    if (items[i]->kind == Kind::String && (items[i]->text == "conj" || items[i]->text == "neg") &&
        items[i + 1]->integer != 0) {
      fail(node,
           fmt::format("expected a tensor without pending operations, got one with the {} flag",
                       items[i]->text));
    }
  }
}

PtBuilder::View PtBuilder::read_view(const PickleNode& node, const Arguments& arguments) const {
  View view;
  view.storage = arguments[0];
  if (view.storage->kind != Kind::Persistent) {
    fail(node, fmt::format("storage: expected a persistent id, got {}", describe(*view.storage)));
  }
  view.offset = integer(node, *arguments[1], "storage_offset");
  view.sizes = dims(node, *arguments[2], "size");
  view.strides = dims(node, *arguments[3], "stride");
  if (view.offset < 0)
    fail(node, fmt::format("storage_offset: expected >= 0, got {}", view.offset));
  if (view.sizes.size() != view.strides.size()) {
    fail(node, fmt::format("stride: expected {} numbers, got {}", view.sizes.size(),
                           view.strides.size()));
  }
  return view;
}

Tensor PtBuilder::make_tensor(const PickleNode& node, const View& view, DType dtype,
                              const Quantizer& quantizer) {
  const StorageReference& reference = references_.at(view.storage);
  const std::string where = fmt::format("{}: byte {}", where_, node.offset);
  const std::int64_t numel = checked_file_numel(view.sizes, where);
  const std::int64_t per_byte = elements_per_byte(dtype);
  const auto item = static_cast<std::int64_t>(item_size(dtype));
  const auto unit = static_cast<std::int64_t>(reference.element_bytes());

  // Everything in bytes from here. A file's storage has less than 2^63 of them: load() compares.
  LoadedStorage& loaded = load(node, reference);
  const auto storage_bytes_held = static_cast<std::int64_t>(loaded.storage->bytes());
  const std::int64_t begin = reference.view_numel < 0 ? 0 : reference.view_begin * unit;
  const std::int64_t held =
      reference.view_numel < 0 ? storage_bytes_held : reference.view_numel * unit;
  const std::int64_t available = held / item * per_byte;
  if (begin % item != 0) {
    fail(node, fmt::format("storage '{}': expected a view at a multiple of {} bytes, got {}",
                           reference.key, item, begin));
  }

  std::int64_t last = 0;  // the element furthest from the first
  for (std::size_t d = 0; d < view.sizes.size(); ++d) {
    if (view.strides[d] < 0)
      fail(node, fmt::format("stride: expected numbers >= 0, got {}", view.strides));
    const std::int64_t steps = view.sizes[d] - 1;
    if (numel == 0 || steps == 0 || view.strides[d] == 0) continue;
    if (view.strides[d] > (available - last) / steps) {
      last = available;
      break;
    }
    last += steps * view.strides[d];
  }
  if (numel > 0 && (view.offset >= available || last >= available - view.offset)) {
    fail(node,
         fmt::format("expected a tensor within its storage of {} elements, got size {}, stride "
                     "{}, offset {}",
                     available, view.sizes, view.strides, view.offset));
  }
  Dims strides = view.strides;
  if (per_byte > 1) {
    if (numel > 0 && (!is_dense_row_major(view.sizes, strides) || view.offset % per_byte != 0)) {
      fail(node, fmt::format("expected a contiguous {} tensor, got size {}, stride {}, offset {}",
                             dtype, view.sizes, view.strides, view.offset));
    }
    strides = contiguous_strides(view.sizes);
  }
  if (is_quantized(dtype)) {
    try {
      check_quantizer("_rebuild_qtensor", quantizer, dtype, view.sizes);
    } catch (const ArgumentError& error) {
      fail(node, keys_.empty() ? std::string(error.what())
                               : fmt::format("'{}': {}", fmt::join(keys_, "/"), error.what()));
    }
  }
  if (dtype == DType::Bool && !loaded.bools_checked) {
    const std::byte* data = loaded.storage->data();
    const bool valid = std::all_of(data, data + loaded.storage->bytes(),
                                   [](std::byte b) { return static_cast<unsigned>(b) <= 1; });
    if (!valid)
      fail(node,
           fmt::format("storage '{}': expected bools 0 and 1, got other bytes", reference.key));
    loaded.bools_checked = true;
  }

  IntrusivePtr<TensorImpl> impl(new TensorImpl);
  impl->storage = loaded.storage;
  // An empty tensor may start behind its storage; nobody reads there, but the address must be real.
  impl->data = loaded.storage->data() + begin + std::min(view.offset, available) / per_byte * item;
  impl->sizes = view.sizes;
  impl->strides = strides;
  impl->numel = numel;
  impl->dtype = dtype;
  impl->quantizer = quantizer;
  return Tensor(std::move(impl));
}

PtBuilder::LoadedStorage& PtBuilder::load(const PickleNode& node,
                                          const StorageReference& reference) {
  const auto found = loaded_.find(reference.key);
  if (found != loaded_.end()) return found->second;
  const std::span<const std::byte> bytes = read_storage_(reference);
  LoadedStorage loaded;
  loaded.storage = IntrusivePtr<Storage>(new Storage(bytes.size(), Device::cpu()));
  if (!bytes.empty()) std::memcpy(loaded.storage->data(), bytes.data(), bytes.size());
  if (order_ == ByteOrder::Big) {
    if (reference.is_untyped) {
      fail(node,
           fmt::format("storage '{}': expected little-endian bytes in an untyped storage, got "
                       "big-endian ones",
                       reference.key));
    }
    swap_bytes({loaded.storage->data(), bytes.size()}, reference.element_bytes());
  }
  return loaded_.emplace(reference.key, std::move(loaded)).first->second;
}

Quantizer PtBuilder::read_quantizer(const PickleNode& node, const PickleNode& params, int depth) {
  const auto& items = params.items;
  if (params.kind != Kind::Tuple || items.empty() || items[0]->kind != Kind::Global ||
      items[0]->global.kind != GlobalKind::QSchemeValue) {
    fail(node, "quantizer_params: expected a tuple that begins with a qscheme, got another value");
  }
  const QScheme scheme = items[0]->global.qscheme;
  if (scheme == QScheme::PerTensorAffine) {
    if (items.size() != 3) {
      fail(node,
           fmt::format("quantizer_params: expected (per_tensor_affine, scale, zero_point), got {} "
                       "members",
                       items.size()));
    }
    return Quantizer::per_tensor(number(node, *items[1], "scale"),
                                 integer(node, *items[2], "zero_point"));
  }
  if (scheme != QScheme::PerChannelAffine && scheme != QScheme::PerChannelAffineFloatQParams) {
    fail(node,
         fmt::format("quantizer_params: expected an affine qscheme, got {}", torch_name(scheme)));
  }
  if (items.size() != 4) {
    fail(node,
         fmt::format("quantizer_params: expected ({}, scales, zero_points, axis), got {} members",
                     torch_name(scheme), items.size()));
  }
  const std::int64_t axis = integer(node, *items[3], "axis");
  // torch writes the float-qparams scheme as per_channel_affine too; zero points that are floats
  // tell the two apart.
  bool is_float = scheme == QScheme::PerChannelAffineFloatQParams;
  if (is_tensor_call(*items[2])) {
    is_float = is_float || is_floating_point(build_tensor(*items[2], depth + 1).tensor.dtype());
  }
  if (is_float) {
    return Quantizer::per_channel_float_qparams(read_channel_numbers<float>(node, *items[1], depth),
                                                read_channel_numbers<float>(node, *items[2], depth),
                                                axis);
  }
  return Quantizer::per_channel(read_channel_numbers<double>(node, *items[1], depth),
                                read_channel_numbers<std::int64_t>(node, *items[2], depth), axis);
}

// A tensor of one dimension or, in old files, a list.
template <typename T>
std::vector<T> PtBuilder::read_channel_numbers(const PickleNode& node, const PickleNode& source,
                                               int depth) {
  std::vector<T> result;
  if (source.kind == Kind::List || source.kind == Kind::Tuple) {
    charge(node, source.items.size() * sizeof(T));
    for (const PickleNode* item : source.items) {
      if constexpr (std::is_integral_v<T>) {
        result.push_back(integer(node, *item, "zero_points"));
      } else {
        result.push_back(static_cast<T>(number(node, *item, "scales")));
      }
    }
    return result;
  }
  if (!is_tensor_call(source)) {
    fail(node, fmt::format("scales: expected a tensor or a list, got {}", describe(source)));
  }
  const Tensor tensor = build_tensor(source, depth + 1).tensor;
  if (tensor.dim() != 1 || tensor.is_quantized() || tensor.dtype() == DType::Bool ||
      (std::is_integral_v<T> && tensor.is_floating_point())) {
    fail(node,
         fmt::format("scales: expected a tensor of one dimension and a plain dtype, got {} {}",
                     tensor.dtype(), tensor.sizes()));
  }
  // Expanded tensors can be far larger than their storage.
  if (tensor.numel() > static_cast<std::int64_t>(budget_)) charge(node, budget_ + 1);
  charge(node, static_cast<std::size_t>(tensor.numel()) * (sizeof(T) + sizeof(double)));
  const DType wide = std::is_integral_v<T> ? DType::Int64 : DType::Float64;
  const Tensor numbers = tensor.contiguous().to(wide);
  if constexpr (std::is_integral_v<T>) {
    const auto* data = numbers.data<std::int64_t>();
    result.assign(data, data + numbers.numel());
  } else {
    const auto* data = numbers.data<double>();
    for (std::int64_t i = 0; i < numbers.numel(); ++i) result.push_back(static_cast<T>(data[i]));
  }
  return result;
}

}  // namespace quanta::detail
