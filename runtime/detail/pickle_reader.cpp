#include "quanta/runtime/detail/pickle_reader.h"

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <utility>

#include "quanta/runtime/detail/byte_reader.h"
#include "quanta/runtime/detail/utf8.h"

// Opcodes: CPython's Lib/pickletools.py.

namespace quanta::detail {
namespace {

using Kind = PickleNode::Kind;
using GlobalKind = PickleGlobal::Kind;

// A node takes about 100 bytes and an opcode may be one byte: together some 900 MB at worst.
constexpr std::size_t kMaxNodes = std::size_t{1} << 23;
constexpr std::size_t kMaxLongBytes = 255;
constexpr std::size_t kMaxShownName = 200;  // of a module or a name, in messages
constexpr std::size_t kMaxOpaqueName = 1000;
// A torch.nn.Module sets its own attributes first; a bound, as a state may be given many times.
constexpr std::size_t kMaxModuleAttributes = 64;

/// Whether the class is one of which whole networks are made.
bool is_module_class(std::string_view name) {
  for (const std::string_view prefix :
       {"torch.nn.modules.", "torch.ao.nn.", "torch.fx.", "torch.nn.quantized.",
        "torchvision.models.", "timm.", "transformers.models."}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

/// Little-endian two's complement -> decimal digits. Nine digits and 32 bits at a time: a file may be
/// nothing but such integers.
std::string to_decimal(std::span<const std::byte> bytes) {
  const bool negative = !bytes.empty() && (static_cast<unsigned>(bytes.back()) & 0x80U) != 0;
  std::vector<std::uint32_t> magnitude((bytes.size() + 3) / 4);
  unsigned carry = 1;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    auto byte = static_cast<unsigned>(bytes[i]);
    if (negative) {
      const unsigned sum = (~byte & 0xffU) + carry;
      byte = sum & 0xffU;
      carry = sum >> 8;
    }
    magnitude[i / 4] |= byte << (8 * (i % 4));
  }
  const auto drop_zeros = [&] {
    while (!magnitude.empty() && magnitude.back() == 0) magnitude.pop_back();
  };
  constexpr std::uint64_t kGroup = 1'000'000'000;
  std::string digits;
  for (drop_zeros(); !magnitude.empty(); drop_zeros()) {
    std::uint64_t remainder = 0;
    for (std::size_t i = magnitude.size(); i-- > 0;) {
      const std::uint64_t value = remainder << 32 | magnitude[i];
      magnitude[i] = static_cast<std::uint32_t>(value / kGroup);
      remainder = value % kGroup;
    }
    for (std::uint64_t rest = remainder, end = kGroup; end > 1; end /= 10, rest /= 10) {
      digits.push_back(static_cast<char>('0' + rest % 10));
    }
  }
  while (!digits.empty() && digits.back() == '0') digits.pop_back();
  if (negative) digits.push_back('-');
  std::reverse(digits.begin(), digits.end());
  return digits;
}

class Machine {
 public:
  Machine(std::span<const std::byte> bytes, std::size_t begin, std::string where)
      : reader_(bytes, std::move(where), begin) {}

  Pickle run() {
    begin_ = reader_.position();
    if (reader_.take_number<std::uint8_t>("a pickle") != 0x80)
      fail("expected a pickle (PROTO), got another byte");
    const auto protocol = reader_.take_number<std::uint8_t>("the protocol");
    if (protocol < 2 || protocol > 5) {
      fail(fmt::format("expected pickle protocol 2 to 5, got {}", protocol));
    }
    while (true) {
      begin_ = reader_.position();
      const auto opcode = reader_.take_number<std::uint8_t>("an opcode");
      if (opcode == '.') break;
      step(opcode);
    }
    if (!marks_.empty() || stack_.size() != 1) {
      fail(fmt::format("expected one value at STOP, got {} and {} marks", stack_.size(),
                       marks_.size()));
    }
    pickle_.root = stack_.back();
    pickle_.end = reader_.position();
    return std::move(pickle_);
  }

 private:
  [[noreturn]] void fail(std::string_view text) const { reader_.fail_at(begin_, text); }

  // Stack --------------------------------------------------------------------------------------

  PickleNode& add(Kind kind) {
    if (pickle_.nodes.size() == kMaxNodes)
      fail(fmt::format("expected at most {} values", kMaxNodes));
    PickleNode& node = pickle_.nodes.emplace_back();
    node.kind = kind;
    node.offset = begin_;
    node.index = pickle_.nodes.size() - 1;
    return node;
  }

  PickleNode& push(Kind kind) {
    PickleNode& node = add(kind);
    stack_.push_back(&node);
    return node;
  }

  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  PickleNode* pop(std::string_view opcode) {
    if (stack_.size() <= floor())
      fail(fmt::format("{}: expected a value on the stack, got none", opcode));
    PickleNode* node = stack_.back();
    stack_.pop_back();
    return node;
  }

  PickleNode& top(std::string_view opcode) const {
    if (stack_.size() <= floor())
      fail(fmt::format("{}: expected a value on the stack, got none", opcode));
    return *stack_.back();
  }

  std::vector<PickleNode*> pop_to_mark(std::string_view opcode) {
    if (marks_.empty()) fail(fmt::format("{}: expected a mark on the stack, got none", opcode));
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<PickleNode*> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }

  void push_tuple(std::size_t count) {
    if (stack_.size() - floor() < count)
      fail(fmt::format("TUPLE: expected {} values on the stack", count));
    std::vector<PickleNode*> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    push(Kind::Tuple).items = std::move(items);
  }

  // Values -------------------------------------------------------------------------------------

  void push_int(std::int64_t value) { push(Kind::Int).integer = value; }

  void push_text(std::uint64_t length) {
    const std::string_view text = reader_.take_text(length, "a string");
    if (!is_utf8(text)) fail("expected UTF-8 in a string, got other bytes");
    push(Kind::String).text = text;
  }

  void push_bytes(Kind kind, std::uint64_t length) {
    push(kind).text = reader_.take_text(length, "bytes");
  }

  void push_long(std::uint64_t length) {
    if (length > kMaxLongBytes) {
      fail(fmt::format("expected an integer of at most {} bytes, got {}", kMaxLongBytes, length));
    }
    const auto bytes = reader_.take(length, "an integer");
    if (length > 8) {
      PickleNode& node = push(Kind::BigInt);
      node.text = to_decimal(bytes);
      if (node.text.empty()) {
        node.kind = Kind::Int;
      }
      return;
    }
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i)
      value |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
    if (!bytes.empty() && bytes.size() < 8 && (static_cast<unsigned>(bytes.back()) & 0x80U) != 0) {
      value |= ~std::uint64_t{0} << (8 * bytes.size());
    }
    push_int(static_cast<std::int64_t>(value));
  }

  void push_float() {
    const auto bits = reader_.take_number<std::uint64_t>("a float");
    push(Kind::Float).number = std::bit_cast<double>(__builtin_bswap64(bits));
  }

  std::string_view take_line() {
    std::string_view rest = reader_.take_text(0, "a name");
    rest = {rest.data(), reader_.remaining()};
    const std::size_t length = rest.substr(0, 4096).find('\n');
    if (length == std::string_view::npos)
      fail("GLOBAL: expected a name that ends with a line feed");
    reader_.take(length + 1, "a name");
    return rest.substr(0, length);
  }

  void push_global(std::string_view module, std::string_view name) {
    const bool printable = is_utf8(module) && is_utf8(name);
    const auto global = printable ? find_pickle_global(module, name) : std::nullopt;
    if (!global) {
      fail(fmt::format("expected a name from the list of known ones, got {}{}",
                       printable ? fmt::format("'{}.{}'", module.substr(0, kMaxShownName),
                                               name.substr(0, kMaxShownName))
                                 : "other bytes",
                       printable && !module.starts_with("torch")
                           ? " (a file with weights has no use for it; do not trust the file)"
                           : ""));
    }
    if (global->kind == GlobalKind::Opaque && module.size() + name.size() > kMaxOpaqueName) {
      fail(fmt::format("expected the name of a class of at most {} bytes, got {}", kMaxOpaqueName,
                       module.size() + name.size()));
    }
    PickleNode& node = push(Kind::Global);
    node.global = *global;
    node.text = fmt::format("{}.{}", module, name);
  }

  // Memo ---------------------------------------------------------------------------------------

  void put(std::uint64_t key) { memo_[key] = &top("PUT"); }

  void get(std::uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end())
      fail(fmt::format("GET: expected a value remembered as {}, got none", key));
    stack_.push_back(found->second);
  }

  // Containers ---------------------------------------------------------------------------------

  void append(std::vector<PickleNode*> items, Kind kind, std::string_view opcode) {
    PickleNode& target = top(opcode);
    if (target.kind == Kind::Opaque) return;
    if (target.kind != kind) {
      fail(fmt::format("{}: expected a {} on the stack, got another value", opcode,
                       kind == Kind::List ? "list" : "set"));
    }
    target.items.insert(target.items.end(), items.begin(), items.end());
  }

  void set_items(const std::vector<PickleNode*>& items, std::string_view opcode) {
    PickleNode& target = top(opcode);
    if (target.kind == Kind::Opaque) return;
    if (target.kind != Kind::Dict)
      fail(fmt::format("{}: expected a dict on the stack, got another value", opcode));
    if (items.size() % 2 != 0)
      fail(fmt::format("{}: expected pairs, got {} values", opcode, items.size()));
    target.items.insert(target.items.end(), items.begin(), items.end());
  }

  // Calls: data in place of what Python would do --------------------------------------------------

  void reduce() {
    PickleNode* arguments = pop("REDUCE");
    PickleNode* callable = pop("REDUCE");
    if (is_opaque(*callable) && arguments->kind == Kind::Tuple) {
      return push_opaque(*callable, *arguments);
    }
    if (callable->kind != Kind::Global) fail("REDUCE: expected a known name, got another value");
    if (arguments->kind != Kind::Tuple)
      fail("REDUCE: expected a tuple of arguments, got another value");
    switch (callable->global.kind) {
      case GlobalKind::DictType:
        return push_dict(*callable, *arguments);
      case GlobalKind::SetType:
        return push_copy(Kind::Set, Kind::List, *callable, *arguments);
      case GlobalKind::SizeType:
        return push_copy(Kind::Tuple, Kind::Tuple, *callable, *arguments);
      case GlobalKind::ByteArray:
      case GlobalKind::Complex:
      case GlobalKind::CodecsEncode:
      case GlobalKind::RebuildTensor:
      case GlobalKind::RebuildTensorV2:
      case GlobalKind::RebuildTensorV3:
      case GlobalKind::RebuildQTensor:
      case GlobalKind::RebuildParameter:
      case GlobalKind::RebuildParameterWithState:
      case GlobalKind::RebuildFromType:
      case GlobalKind::Device:
      case GlobalKind::GetLayout: {
        PickleNode& call = push(Kind::Call);
        call.global = callable->global;
        call.items = {callable, arguments};
        return;
      }
      case GlobalKind::PlainType:
      case GlobalKind::TensorType:
      case GlobalKind::Layout:
      case GlobalKind::StorageType:
      case GlobalKind::UntypedStorageType:
      case GlobalKind::UnsupportedStorageType:
      case GlobalKind::DTypeValue:
      case GlobalKind::UnsupportedDType:
      case GlobalKind::QSchemeValue:
      case GlobalKind::ScriptObjectType:
      case GlobalKind::ScriptClass:
      case GlobalKind::RebuildWrapperSubclass:
      case GlobalKind::Opaque:
        break;
    }
    fail(fmt::format("REDUCE: expected a known function, got '{}'", callable->text));
  }

  static bool is_opaque(const PickleNode& node) {
    return node.kind == Kind::Opaque ||
           (node.kind == Kind::Global && node.global.kind == GlobalKind::Opaque);
  }

  /// What `callable` would make. copyreg's function makes an object of the class that is its
  /// argument.
  void push_opaque(const PickleNode& callable, const PickleNode& arguments) {
    const bool names_class = callable.text == "copyreg._reconstructor" ||
                             callable.text == "copy_reg._reconstructor" ||
                             callable.text == "copyreg.__newobj__";
    const PickleNode* type = &callable;
    if (names_class && !arguments.items.empty() && arguments.items[0]->kind == Kind::Global) {
      type = arguments.items[0];
    }
    PickleNode& node = push(Kind::Opaque);
    node.text = type->text;
    node.integer = is_module_class(node.text) ? 1 : 0;
  }

  void push_dict(const PickleNode& callable, const PickleNode& arguments) {
    PickleNode& dict = push(Kind::Dict);
    for (const PickleNode* argument : arguments.items) {
      // defaultdict(factory), Counter(dict), OrderedDict([(key, value), ...]).
      if (argument->kind == Kind::Global && argument->global.kind == GlobalKind::PlainType)
        continue;
      if (is_opaque(*argument)) continue;
      if (argument->kind == Kind::None) continue;
      if (argument->kind == Kind::Dict) {
        charge(argument->items.size());
        dict.items.insert(dict.items.end(), argument->items.begin(), argument->items.end());
        continue;
      }
      if (argument->kind != Kind::List)
        fail(fmt::format("REDUCE: {}: expected pairs, got another value", callable.text));
      charge(argument->items.size());
      for (const PickleNode* pair : argument->items) {
        if ((pair->kind != Kind::Tuple && pair->kind != Kind::List) || pair->items.size() != 2) {
          fail(fmt::format("REDUCE: {}: expected pairs, got another value", callable.text));
        }
        dict.items.insert(dict.items.end(), pair->items.begin(), pair->items.end());
      }
    }
  }

  void push_copy(Kind kind, Kind argument_kind, const PickleNode& callable,
                 const PickleNode& arguments) {
    if (arguments.items.size() > 1 ||
        (arguments.items.size() == 1 && arguments.items[0]->kind != argument_kind)) {
      fail(fmt::format("REDUCE: {}: expected one sequence, got other arguments", callable.text));
    }
    PickleNode& copy = push(kind);
    if (arguments.items.empty()) return;
    charge(arguments.items[0]->items.size());
    copy.items = arguments.items[0]->items;
  }

  // Copies of remembered containers could make a small pickle large.
  void charge(std::size_t count) {
    copied_ += count;
    if (copied_ > kMaxNodes)
      fail(fmt::format("expected at most {} values in copied containers", kMaxNodes));
  }

  void new_object() {
    const PickleNode* arguments = pop("NEWOBJ");
    PickleNode* type = pop("NEWOBJ");
    if (is_opaque(*type) && arguments->kind == Kind::Tuple) return push_opaque(*type, *arguments);
    if (type->kind != Kind::Global || (type->global.kind != GlobalKind::ScriptObjectType &&
                                       type->global.kind != GlobalKind::ScriptClass)) {
      fail("NEWOBJ: expected the class of a script object, got another value");
    }
    if (arguments->kind != Kind::Tuple || !arguments->items.empty()) {
      fail("NEWOBJ: expected no arguments for a script object");
    }
    push(Kind::Object).items = {type};
  }

  static bool has_key(const PickleNode& dict, std::string_view name) {
    if (dict.kind != Kind::Dict) return false;
    const std::size_t end = std::min(dict.items.size(), 2 * kMaxModuleAttributes);
    for (std::size_t i = 0; i < end; i += 2) {
      if (dict.items[i]->kind == Kind::String && dict.items[i]->text == name) return true;
    }
    return false;
  }

  void build() {
    PickleNode* state = pop("BUILD");
    PickleNode& target = top("BUILD");
    if (target.kind == Kind::Opaque) {
      if (has_key(*state, "_parameters") && has_key(*state, "_modules")) target.integer = 1;
      return;
    }
    if (target.kind != Kind::Dict && target.kind != Kind::Object) {
      fail("BUILD: expected a dict or a script object on the stack, got another value");
    }
    if (target.state != nullptr)
      fail("BUILD: expected a value without a state, got one that has it");
    target.state = state;
  }

  void push_persistent() {
    PickleNode* id = pop("BINPERSID");
    // The older files save classes of modules with their source: ("module", class, file, text).
    if (id->kind == Kind::Tuple && id->items.size() >= 2 && id->items[0]->kind == Kind::String &&
        id->items[0]->text == "module" && id->items[1]->kind == Kind::Global) {
      stack_.push_back(id->items[1]);
      return;
    }
    PickleNode& node = push(Kind::Persistent);
    node.items = {id};
    pickle_.persistent.push_back(&node);
  }

  // Opcodes ------------------------------------------------------------------------------------

  void step(std::uint8_t opcode) {
    switch (opcode) {
      case 'N':
        push(Kind::None);
        return;
      case 0x88:
      case 0x89:
        push(Kind::Bool).integer = opcode == 0x88 ? 1 : 0;
        return;
      case 'J':
        return push_int(reader_.take_number<std::int32_t>("BININT"));
      case 'K':
        return push_int(reader_.take_number<std::uint8_t>("BININT1"));
      case 'M':
        return push_int(reader_.take_number<std::uint16_t>("BININT2"));
      case 0x8a:
        return push_long(reader_.take_number<std::uint8_t>("LONG1"));
      case 'G':
        return push_float();
      case 'X':
        return push_text(reader_.take_number<std::uint32_t>("BINUNICODE"));
      case 0x8c:
        return push_text(reader_.take_number<std::uint8_t>("SHORT_BINUNICODE"));
      case 0x8d:
        return push_text(reader_.take_number<std::uint64_t>("BINUNICODE8"));
      case 'T':
        return push_text(reader_.take_number<std::uint32_t>("BINSTRING"));
      case 'U':
        return push_text(reader_.take_number<std::uint8_t>("SHORT_BINSTRING"));
      case 'B':
        return push_bytes(Kind::Bytes, reader_.take_number<std::uint32_t>("BINBYTES"));
      case 'C':
        return push_bytes(Kind::Bytes, reader_.take_number<std::uint8_t>("SHORT_BINBYTES"));
      case ')':
        push(Kind::Tuple);
        return;
      case ']':
        push(Kind::List);
        return;
      case '}':
        push(Kind::Dict);
        return;
      case 0x8f:
        push(Kind::Set);
        return;
      case '(':
        marks_.push_back(stack_.size());
        return;
      case 't': {
        std::vector<PickleNode*> items = pop_to_mark("TUPLE");
        push(Kind::Tuple).items = std::move(items);
        return;
      }
      case 0x85:
      case 0x86:
      case 0x87:
        return push_tuple(opcode - 0x84U);
      default:
        return step_on_containers(opcode);
    }
  }

  void step_on_containers(std::uint8_t opcode) {
    switch (opcode) {
      case 'a': {
        PickleNode* item = pop("APPEND");
        return append({item}, Kind::List, "APPEND");
      }
      case 'e':
        return append(pop_to_mark("APPENDS"), Kind::List, "APPENDS");
      case 0x90:
        return append(pop_to_mark("ADDITEMS"), Kind::Set, "ADDITEMS");
      case 's': {
        PickleNode* value = pop("SETITEM");
        PickleNode* key = pop("SETITEM");
        return set_items({key, value}, "SETITEM");
      }
      case 'u':
        return set_items(pop_to_mark("SETITEMS"), "SETITEMS");
      case 'q':
        return put(reader_.take_number<std::uint8_t>("BINPUT"));
      case 'r':
        return put(reader_.take_number<std::uint32_t>("LONG_BINPUT"));
      case 0x94:
        return put(memo_.size());
      case 'h':
        return get(reader_.take_number<std::uint8_t>("BINGET"));
      case 'j':
        return get(reader_.take_number<std::uint32_t>("LONG_BINGET"));
      case '2': {
        PickleNode* copy = &top("DUP");
        stack_.push_back(copy);
        return;
      }
      case '0':
        pop("POP");
        return;
      case '1':
        pop_to_mark("POP_MARK");
        return;
      case 'c': {
        const std::string_view module = take_line();
        const std::string_view name = take_line();
        return push_global(module, name);
      }
      case 0x93: {
        const PickleNode* name = pop("STACK_GLOBAL");
        const PickleNode* module = pop("STACK_GLOBAL");
        if (name->kind != Kind::String || module->kind != Kind::String) {
          fail("STACK_GLOBAL: expected two strings, got other values");
        }
        return push_global(module->text, name->text);
      }
      case 'R':
        return reduce();
      case 0x81:
        return new_object();
      case 'b':
        return build();
      case 'Q':
        return push_persistent();
      case 0x95: {
        const auto length = reader_.take_number<std::uint64_t>("FRAME");
        if (length > reader_.remaining())
          fail(fmt::format("FRAME: expected {} bytes, got {}", length, reader_.remaining()));
        return;
      }
      default:
        fail(fmt::format("expected an opcode of data, got 0x{:02x}", opcode));
    }
  }

  ByteReader reader_;
  std::size_t begin_ = 0;
  Pickle pickle_;
  std::vector<PickleNode*> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, PickleNode*> memo_;
  std::size_t copied_ = 0;
};

}  // namespace

Pickle read_pickle(std::span<const std::byte> bytes, std::size_t begin, std::string where) {
  return Machine(bytes, begin, std::move(where)).run();
}

}  // namespace quanta::detail
