#pragma once

// Private: reads a pickle into a graph of plain nodes. Nothing is called: REDUCE, NEWOBJ and BUILD
// make nodes that say what was asked for, over the names of pickle_globals.h. What names outside
// its list would make is one Opaque node; its parts are dropped.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/runtime/detail/pickle_globals.h"

namespace quanta::detail {

struct PickleNode {
  enum class Kind : std::uint8_t {
    None,
    Bool,
    Int,
    BigInt,  ///< `text`: decimal digits
    Float,
    String,
    Bytes,
    List,
    Tuple,
    Set,
    Dict,        ///< `items`: key, value, key, value, ...
    Global,      ///< `text`: "module.name"
    Persistent,  ///< `items`: the id
    Call,        ///< `items`: the Global and the tuple of arguments
    Object,      ///< `items`: the Global
    Opaque,      ///< `text`: the class or function; `integer`: 1 for a module (torch.nn.Module)
  };
  Kind kind = Kind::None;
  PickleGlobal global;
  std::size_t offset = 0;  ///< byte of the opcode that made it
  std::int64_t integer = 0;
  double number = 0.0;
  std::string text;
  std::vector<PickleNode*> items;
  PickleNode* state = nullptr;  ///< what BUILD gave to a Dict or an Object
  std::size_t index = 0;        ///< place in Pickle::nodes
};

/// One pickle. Nodes may be shared and, in hostile files, contain themselves.
struct Pickle {
  std::deque<PickleNode> nodes;
  PickleNode* root = nullptr;
  std::vector<PickleNode*> persistent;  ///< in the order of the file
  std::size_t end = 0;                  ///< byte after STOP
};

/// Reads the pickle at `begin`. Protocols 2 to 5 as torch.save and its like use them.
/// Throws FileError `<where>: byte <n>: ...` for other opcodes, names that are not on the list,
/// truncation and stacks that do not fit.
Pickle read_pickle(std::span<const std::byte> bytes, std::size_t begin, std::string where);

}  // namespace quanta::detail
