#include <fmt/core.h>

#include <cstddef>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "quanta/runtime/pt_file.h"
#include "registry.h"

namespace quanta::conform {
namespace {

struct LoadedTensor {
  Tensor tensor;
  bool requires_grad = false;
};
using LoadedTensors = std::vector<std::pair<std::string, LoadedTensor>>;

/// Leaves that are no tensors, as the golden files write them.
Value other_value(const PickleValue& leaf) {
  struct Visitor {
    Value operator()(PickleValue::None) const { return {}; }
    Value operator()(bool value) const { return value; }
    Value operator()(std::int64_t value) const { return value; }
    Value operator()(double value) const { return value; }
    Value operator()(const std::string& value) const { return value; }
    Value operator()(const PickleValue::BigInt& value) const {
      return named("bigint", value.digits);
    }
    Value operator()(DType dtype) const { return named("dtype", std::string(torch_name(dtype))); }
    Value operator()(QScheme scheme) const {
      return named("qscheme", std::string(torch_name(scheme)));
    }
    Value operator()(const PickleValue::Object& object) const {
      return named("object", object.type);
    }
    Value operator()(const PickleValue::Opaque& opaque) const {
      return named("opaque", opaque.type);
    }
    Value operator()(const PickleValue::TensorValue&) const { return {}; }
    Value operator()(const PickleValue::Sequence&) const { return List(); }
    Value operator()(const PickleValue::Dict&) const { return Object(); }

    static Value named(const char* key, std::string text) {
      Object object;
      object.set(key, std::move(text));
      return object;
    }
  };
  return std::visit(Visitor{}, leaf.get());
}

/// Strides, storage offsets and requires_grad stand in the attributes, not in the outputs.
void check_layout(const Json& layout, const LoadedTensors& tensors) {
  for (const auto& [path, loaded] : tensors) {
    const auto found = layout.find(path);
    if (found == layout.end()) {
      throw std::runtime_error(fmt::format("layout: '{}': not expected", path));
    }
    const Dims stride = dims_from_json(found->at("stride"));
    const auto offset = found->at("storage_offset").get<std::int64_t>();
    const auto requires_grad = found->at("requires_grad").get<bool>();
    if (loaded.tensor.strides() != stride) {
      throw std::runtime_error(fmt::format("layout: '{}': got stride {}, expected {}", path,
                                           to_string(loaded.tensor.strides()), to_string(stride)));
    }
    if (loaded.tensor.storage_offset() != offset) {
      throw std::runtime_error(fmt::format("layout: '{}': got storage_offset {}, expected {}", path,
                                           loaded.tensor.storage_offset(), offset));
    }
    if (loaded.requires_grad != requires_grad) {
      throw std::runtime_error(fmt::format("layout: '{}': got requires_grad {}, expected {}", path,
                                           loaded.requires_grad, requires_grad));
    }
  }
}

/// Tensors of one group share a storage; all others have one of their own.
void check_sharing(const Json& groups, const LoadedTensors& tensors) {
  std::map<std::string, std::size_t> group_of;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const Json& path : groups[g]) group_of[path.get<std::string>()] = g + 1;
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (std::size_t j = i + 1; j < tensors.size(); ++j) {
      const auto& [first, loaded] = tensors[i];
      const auto& [second, other] = tensors[j];
      const auto group = group_of.find(first);
      const auto other_group = group_of.find(second);
      const bool expected = group != group_of.end() && other_group != group_of.end() &&
                            group->second == other_group->second;
      const bool shared = loaded.tensor.storage() == other.tensor.storage();
      if (shared != expected) {
        throw std::runtime_error(fmt::format("shared_storage: '{}' and '{}': got {}, expected {}",
                                             first, second, shared, expected));
      }
    }
  }
}

Outputs run_load_pt(const Case& test) {
  const PickleValue value = read_pt(test.folder / test.text("file"));
  LoadedTensors tensors;
  Object values;
  Object other;
  visit_leaves(value, [&](const std::string& path, const PickleValue& leaf) {
    if (const auto* tensor = leaf.get_if<PickleValue::TensorValue>()) {
      tensors.emplace_back(path, LoadedTensor{tensor->tensor, tensor->requires_grad});
      values.set(path, tensor->tensor);
    } else {
      other.set(path, other_value(leaf));
    }
  });
  if (test.has_attr("layout")) check_layout(test.attr("layout"), tensors);
  if (test.has_attr("shared_storage")) check_sharing(test.attr("shared_storage"), tensors);

  Outputs outputs;
  outputs.set("tensors", std::move(values));
  outputs.set("other", std::move(other));
  return outputs;
}

const Registration kOps{{"load_pt", run_load_pt}};

}  // namespace
}  // namespace quanta::conform
