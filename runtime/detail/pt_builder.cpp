#include "quanta/runtime/detail/pt_builder.h"

#include <unordered_set>
#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/utf8.h"

namespace quanta::detail {
namespace {

using Kind = PickleNode::Kind;
using GlobalKind = PickleGlobal::Kind;

// Memory for values: this much, and this much more for each byte of the pickle (a None is a byte).
constexpr std::size_t kBudget = std::size_t{1} << 26;
constexpr std::size_t kBudgetPerByte = 2 * sizeof(PickleValue);

PickleValue make_tuple_value(std::vector<PickleValue> items) {
  return PickleValue(PickleValue::Sequence{PickleValue::Sequence::Kind::Tuple, std::move(items)});
}

PickleValue make_object(std::string type, PickleValue state) {
  return PickleValue(
      PickleValue::Object{std::move(type), std::make_shared<PickleValue>(std::move(state))});
}

}  // namespace

bool is_tensor_call(const PickleNode& node) {
  if (node.kind != Kind::Call) return false;
  switch (node.global.kind) {
    case GlobalKind::RebuildTensor:
    case GlobalKind::RebuildTensorV2:
    case GlobalKind::RebuildTensorV3:
    case GlobalKind::RebuildQTensor:
    case GlobalKind::RebuildParameter:
    case GlobalKind::RebuildParameterWithState:
    case GlobalKind::RebuildFromType:
      return true;
    default:
      return false;
  }
}

std::string_view describe(const PickleNode& node) {
  switch (node.kind) {
    case Kind::None:
      return "None";
    case Kind::Bool:
      return "a bool";
    case Kind::Int:
      return "an integer";
    case Kind::BigInt:
      return "an integer beyond 64 bits";
    case Kind::Float:
      return "a float";
    case Kind::String:
      return "a string";
    case Kind::Bytes:
      return "bytes";
    case Kind::List:
      return "a list";
    case Kind::Tuple:
      return "a tuple";
    case Kind::Set:
      return "a set";
    case Kind::Dict:
      return "a dict";
    case Kind::Global:
      return node.text;
    case Kind::Persistent:
      return "a storage";
    case Kind::Call:
      return is_tensor_call(node) ? "a tensor" : "the result of a call";
    case Kind::Object:
      return "a script object";
    case Kind::Opaque:
      return node.text;
  }
  return "another value";
}

PtBuilder::PtBuilder(const Pickle& pickle, std::size_t pickle_bytes, std::string where)
    : pickle_(pickle),
      where_(std::move(where)),
      budget_(kBudget + kBudgetPerByte * pickle_bytes),
      open_(pickle.nodes.size(), false) {
  std::unordered_map<std::string_view, std::size_t> seen;
  for (const PickleNode* node : pickle.persistent) {
    const StorageReference reference = read_reference(*node);
    references_.emplace(node, reference);
    const auto [found, is_new] = seen.emplace(reference.key, storages_.size());
    if (is_new) {
      storages_.push_back(reference);
      continue;
    }
    const StorageReference& first = storages_[found->second];
    if (first.dtype != reference.dtype || first.is_untyped != reference.is_untyped ||
        first.numel != reference.numel) {
      fail(*node,
           fmt::format("storage '{}': expected {} x {} as before, got {} x {}", reference.key,
                       first.numel, first.dtype, reference.numel, reference.dtype));
    }
  }
}

PickleValue PtBuilder::build(const PickleNode& node, ReadStorage read_storage, ByteOrder order) {
  read_storage_ = std::move(read_storage);
  order_ = order;
  return convert(node, 0);
}

void PtBuilder::fail(const PickleNode& node, std::string_view text) const {
  throw FileError(fmt::format("{}: byte {}: {}", where_, node.offset, text));
}

void PtBuilder::charge(const PickleNode& node, std::size_t bytes) {
  if (bytes > budget_) {
    fail(node,
         "expected a value in proportion to the file, got one that repeats its parts too often");
  }
  budget_ -= bytes;
}

StorageReference PtBuilder::read_reference(const PickleNode& node) const {
  const PickleNode& id = *node.items[0];
  const auto& items = id.items;
  if (id.kind == Kind::Tuple && !items.empty() && items[0]->kind == Kind::String &&
      items[0]->text == "module") {
    fail(node, "expected a state_dict, got a whole module; save its state_dict() instead");
  }
  if (id.kind != Kind::Tuple || items.size() < 5 || items.size() > 6 ||
      items[0]->kind != Kind::String || items[0]->text != "storage" ||
      items[1]->kind != Kind::Global || items[2]->kind != Kind::String ||
      items[3]->kind != Kind::String || items[4]->kind != Kind::Int) {
    fail(node,
         "expected a persistent id ('storage', type, key, location, numel), got another value");
  }
  StorageReference reference;
  reference.key = items[2]->text;
  reference.numel = items[4]->integer;
  const PickleGlobal& type = items[1]->global;
  if (type.kind == GlobalKind::StorageType) {
    reference.dtype = type.dtype;
  } else if (type.kind == GlobalKind::UntypedStorageType) {
    reference.is_untyped = true;
  } else if (type.kind == GlobalKind::UnsupportedStorageType) {
    fail(node,
         fmt::format("expected a storage of a dtype that Quanta has, got {}", items[1]->text));
  } else {
    fail(node, fmt::format("expected the type of a storage, got {}", items[1]->text));
  }
  if (reference.numel < 0) {
    fail(node, fmt::format("storage '{}': expected a length >= 0, got {}", reference.key,
                           reference.numel));
  }
  if (items.size() == 6 && items[5]->kind != Kind::None) {
    const PickleNode& view = *items[5];
    if (view.kind != Kind::Tuple || view.items.size() != 3) {
      fail(node, "expected view metadata (key, offset, size), got another value");
    }
    reference.view_begin = integer(node, *view.items[1], "view offset");
    reference.view_numel = integer(node, *view.items[2], "view size");
    if (reference.view_begin < 0 || reference.view_numel < 0 ||
        reference.view_begin > reference.numel ||
        reference.view_numel > reference.numel - reference.view_begin) {
      fail(node,
           fmt::format("storage '{}': expected a view within {} elements, got {} from {}",
                       reference.key, reference.numel, reference.view_numel, reference.view_begin));
    }
  }
  return reference;
}

// Values
// -------------------------------------------------------------------------------------------

PickleValue PtBuilder::convert(const PickleNode& node, int depth) {
  if (depth > kMaxDepth)
    fail(node, fmt::format("expected at most {} levels of nesting", kMaxDepth));
  if (open_[node.index]) fail(node, "expected a finite value, got a container that holds itself");
  charge(node, sizeof(PickleValue) + node.text.size());
  open_[node.index] = true;
  PickleValue result = convert_open(node, depth);
  open_[node.index] = false;
  return result;
}

PickleValue PtBuilder::convert_open(const PickleNode& node, int depth) {
  switch (node.kind) {
    case Kind::None:
      return {};
    case Kind::Bool:
      return PickleValue(node.integer != 0);
    case Kind::Int:
      return PickleValue(node.integer);
    case Kind::BigInt:
      return PickleValue(PickleValue::BigInt{node.text});
    case Kind::Float:
      return PickleValue(node.number);
    case Kind::String:
      return PickleValue(node.text);
    case Kind::Bytes:
      return make_object("bytes", PickleValue(node.text));
    case Kind::List:
    case Kind::Tuple:
    case Kind::Set: {
      PickleValue::Sequence sequence;
      sequence.kind = node.kind == Kind::List    ? PickleValue::Sequence::Kind::List
                      : node.kind == Kind::Tuple ? PickleValue::Sequence::Kind::Tuple
                                                 : PickleValue::Sequence::Kind::Set;
      // Grows as it is filled: a reserve would come before the items are charged.
      for (const PickleNode* item : node.items) sequence.items.push_back(convert(*item, depth + 1));
      return PickleValue(std::move(sequence));
    }
    case Kind::Dict:
      return convert_dict(node, depth);
    case Kind::Global:
      return convert_global(node);
    case Kind::Persistent:
      fail(node, "expected storages only as parts of tensors, got one by itself");
    case Kind::Call:
      return convert_call(node, depth);
    case Kind::Object:
      return convert_object(node, depth);
    case Kind::Opaque:
      return PickleValue(PickleValue::Opaque{node.text, node.integer != 0});
  }
  fail(node, "expected a value, got something else");
}

PickleValue PtBuilder::convert_dict(const PickleNode& node, int depth) {
  std::unordered_set<std::string_view> names;
  std::unordered_set<std::int64_t> numbers;
  PickleValue::Dict dict;
  for (std::size_t i = 0; i < node.items.size(); i += 2) {
    const PickleNode& key = *node.items[i];
    if (key.kind == Kind::String && !names.insert(key.text).second) {
      fail(key, fmt::format("expected a dict with different keys, got '{}' twice", key.text));
    }
    if (key.kind == Kind::Int && !numbers.insert(key.integer).second) {
      fail(key, fmt::format("expected a dict with different keys, got {} twice", key.integer));
    }
    PickleValue key_value = convert(key, depth + 1);
    keys_.push_back(key.kind == Kind::String ? std::string_view(key.text) : "?");
    dict.items.emplace_back(std::move(key_value), convert(*node.items[i + 1], depth + 1));
    keys_.pop_back();
  }
  if (node.state != nullptr) {
    dict.state = std::make_shared<PickleValue>(convert(*node.state, depth + 1));
  }
  return PickleValue(std::move(dict));
}

PickleValue PtBuilder::convert_object(const PickleNode& node, int depth) {
  const PickleNode& type = *node.items[0];
  if (type.global.kind == GlobalKind::ScriptClass) {
    return make_object(type.text,
                       node.state == nullptr ? PickleValue() : convert(*node.state, depth + 1));
  }
  const PickleNode* state = node.state;
  if (state == nullptr || state->kind != Kind::Tuple || state->items.size() != 2 ||
      state->items[1]->kind != Kind::String ||
      !state->items[1]->text.starts_with("__torch__.torch.classes.")) {
    fail(node, "expected the state of a script object and its type name, got another value");
  }
  charge(node, state->items[1]->text.size());
  return make_object(state->items[1]->text, convert(*state->items[0], depth + 1));
}

PickleValue PtBuilder::convert_global(const PickleNode& node) const {
  switch (node.global.kind) {
    case GlobalKind::DTypeValue:
      return PickleValue(node.global.dtype);
    case GlobalKind::QSchemeValue:
      return PickleValue(node.global.qscheme);
    case GlobalKind::Layout:
      return make_object("torch.layout", PickleValue(node.text));
    case GlobalKind::Opaque:
      return PickleValue(PickleValue::Opaque{node.text, false});
    case GlobalKind::UnsupportedDType:
      fail(node, fmt::format("expected a dtype that Quanta has, got {}", node.text));
    default:
      fail(node, fmt::format("expected a value, got the type or function {}", node.text));
  }
}

PickleValue PtBuilder::convert_call(const PickleNode& node, int depth) {
  if (is_tensor_call(node)) return PickleValue(build_tensor(node, depth));
  const Arguments& arguments = node.items[1]->items;
  const auto expect = [&](bool condition, std::string_view expected) {
    if (!condition) fail(node, fmt::format("{}: expected {}", node.items[0]->text, expected));
  };
  switch (node.global.kind) {
    case GlobalKind::Complex:
      expect(arguments.size() == 2, "two numbers");
      return make_object(
          "complex",
          make_tuple_value({PickleValue(number(node, *arguments[0], "real part")),
                            PickleValue(number(node, *arguments[1], "imaginary part"))}));
    case GlobalKind::CodecsEncode:
      expect(arguments.size() == 2, "a string and an encoding");
      return make_object("bytes", PickleValue(decode_bytes(node, node)));
    case GlobalKind::ByteArray:
      expect(arguments.size() <= 2, "at most two arguments");
      return make_object("bytearray",
                         PickleValue(arguments.empty()       ? std::string()
                                     : arguments.size() == 1 ? decode_bytes(node, *arguments[0])
                                                             : decode_bytes(node, node)));
    case GlobalKind::Device: {
      expect(!arguments.empty() && arguments.size() <= 2 && arguments[0]->kind == Kind::String,
             "the type of a device");
      std::vector<PickleValue> items;
      for (const PickleNode* argument : arguments) items.push_back(convert(*argument, depth + 1));
      return make_object("torch.device", make_tuple_value(std::move(items)));
    }
    case GlobalKind::GetLayout:
      expect(arguments.size() == 1 && arguments[0]->kind == Kind::String, "the name of a layout");
      return make_object("torch.layout", convert(*arguments[0], depth + 1));
    default:
      fail(node, fmt::format("expected a known function, got {}", node.items[0]->text));
  }
}

// Protocol 2 has no bytes: Python writes _codecs.encode(text, "latin1"), and bytearray(text,
// "latin-1").
std::string PtBuilder::decode_bytes(const PickleNode& node, const PickleNode& argument) {
  if (argument.kind == Kind::Bytes) {
    charge(node, argument.text.size());
    return argument.text;
  }
  const bool is_call = argument.kind == Kind::Call &&
                       (argument.global.kind == GlobalKind::CodecsEncode ||
                        argument.global.kind == GlobalKind::ByteArray) &&
                       argument.items[1]->items.size() == 2;
  if (!is_call) fail(node, fmt::format("expected bytes, got {}", describe(argument)));
  const PickleNode& text = *argument.items[1]->items[0];
  const PickleNode& encoding = *argument.items[1]->items[1];
  if (text.kind != Kind::String || encoding.kind != Kind::String ||
      (encoding.text != "latin1" && encoding.text != "latin-1")) {
    fail(node, "expected a string and the encoding latin1, got other values");
  }
  charge(node, text.text.size());
  std::string result;
  for (std::size_t i = 0; i < text.text.size();) {
    const std::size_t length = utf8_character(text.text, i);
    const auto lead = static_cast<unsigned char>(text.text[i]);
    if (length > 2 || lead > 0xC3) fail(node, "expected characters up to U+00FF, got others");
    const unsigned low = length == 2 ? static_cast<unsigned char>(text.text[i + 1]) & 0x3FU : 0U;
    result.push_back(static_cast<char>(length == 2 ? ((lead & 0x03U) << 6) | low : lead));
    i += length;
  }
  return result;
}

}  // namespace quanta::detail
