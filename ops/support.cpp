#include "quanta/ops/support.h"

#include <algorithm>
#include <array>
#include <vector>

#include "quanta/ops/catalogue.h"

namespace quanta {
namespace {

// Of the table, where the operation's first argument is the indices.
struct OfTable {
  std::string_view name;
  DType dtype;
};
constexpr std::array kOfTables{
    OfTable{"embedding_byte", DType::QUInt8}, OfTable{"embedding_bag_byte", DType::QUInt8},
    OfTable{"embedding_4bit", DType::QUInt4x2}, OfTable{"embedding_bag_4bit", DType::QUInt4x2}};

// An operation on codes with parameters of their own is torch's op of that name.
constexpr std::string_view kQuantizedPrefix = "quantized::";

// torch's names of what is one operation here, whatever the rank.
struct Alias {
  std::string_view name;
  std::string_view operation;
};
constexpr std::array kAliases{
    Alias{"batch_norm1d", "batch_norm"},           Alias{"batch_norm2d", "batch_norm"},
    Alias{"batch_norm3d", "batch_norm"},           Alias{"batch_norm1d_relu", "batch_norm_relu"},
    Alias{"batch_norm2d_relu", "batch_norm_relu"}, Alias{"batch_norm3d_relu", "batch_norm_relu"}};

std::vector<OpSupport> make_table() {
  std::vector<OpSupport> table;
  for (const OperationEntry& row : operations().entries()) {
    std::string_view name = row.name;
    if (name.starts_with(kQuantizedPrefix)) name.remove_prefix(kQuantizedPrefix.size());
    for (const DType dtype : {DType::Float16, DType::BFloat16}) {
      if (row.takes(dtype) || !row.takes_on_cuda(dtype)) continue;
      table.push_back({name, row.header, DeviceType::CUDA, dtype});
    }
    for (const DType dtype : row.dtypes) {
      table.push_back({name, row.header, DeviceType::CPU, dtype});
      if (row.takes_on_cuda(dtype)) table.push_back({name, row.header, DeviceType::CUDA, dtype});
      for (const Alias& alias : kAliases) {
        if (alias.operation != name) continue;
        table.push_back({alias.name, row.header, DeviceType::CPU, dtype});
      }
    }
  }
  for (const OfTable& row : kOfTables) {
    table.push_back({row.name, "quanta/ops/embedding.h", DeviceType::CPU, row.dtype});
  }
  return table;
}

}  // namespace

std::span<const OpSupport> op_table() {
  static const std::vector<OpSupport> table = make_table();
  return table;
}

bool supports(std::string_view op, Device device, DType dtype) {
  return std::ranges::any_of(op_table(), [&](const OpSupport& row) {
    return row.op == op && row.device == device.type && row.dtype == dtype;
  });
}

}  // namespace quanta
