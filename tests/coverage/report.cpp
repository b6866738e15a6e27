#include "report.h"

#include <fmt/format.h>

#include <algorithm>

#include "documents.h"
#include "operations.h"
#include "quanta/runtime/dtype.h"
#include "registry.h"

namespace quanta::coverage {
namespace {

/// Every type that a row is tried with, and those of them whose elements are whole bytes.
constexpr std::size_t kAllTypes = 14;
constexpr std::size_t kWholeByteTypes = 12;

std::string list(const std::vector<DType>& types) {
  if (types.size() == kAllTypes) return "any";
  if (types.size() == kWholeByteTypes && !is_sub_byte(types.back())) return "any of whole bytes";
  std::string text;
  for (const DType dtype : types) {
    text += text.empty() ? "" : ", ";
    text += torch_name(dtype);
  }
  return text.empty() ? "-" : text;
}

std::string layouts(const Taken& taken) {
  if (!taken.contiguous) return "-";
  if (!taken.has_layouts) return taken.strided ? "contiguous, strided" : "contiguous";
  std::string text = "contiguous";
  if (taken.channels_last) text += ", channels-last";
  if (taken.strided) text += ", strided";
  return text;
}

std::string suites(std::string_view names) {
  std::string text(names.empty() ? "-" : names);
  for (std::size_t at = 0; (at = text.find(' ', at)) != std::string::npos; at += 2) {
    text.replace(at, 1, ", ");
  }
  return text;
}

void add_row(std::string& out, const Row& row, bool is_tried) {
  if (!row.done()) {
    out += is_tried ? fmt::format("| {} | not yet: {} | | | | | | |\n", row.name, row.not_yet)
                    : fmt::format("| {} | not yet: {} | | | |\n", row.name, row.not_yet);
    return;
  }
  out += fmt::format("| {} | `{}` | {} | {} | {} |", row.name, row.use.text, row.header,
                     suites(row.suites), row.test);
  if (is_tried) {
    const Taken taken = try_row(row);
    out +=
        fmt::format(" {} | {} | {} |", list(taken.types), list(taken.per_channel), layouts(taken));
  }
  out += '\n';
}

}  // namespace

std::string to_markdown(const std::filesystem::path& root) {
  std::string out =
      "# Coverage of torch.ao.quantization\n\n"
      "Printed by `quanta-coverage` from the tables in `tests/coverage` and, at the end, from the\n"
      "catalogue of operations; a test fails when this file differs. Do not edit.\n\n"
      "Each call is compiled, and where element types are given it was run on small tensors of\n"
      "every type and memory order: `x` [2, 4, 6, 6], `signal` [2, 4, 6], `volume` [2, 4, 6, 6, "
      "6],\n"
      "`matrix` [6, 4]. `ones`, `weight`, `indices` and `packed_...` stand for arguments of "
      "fitting\n"
      "sizes. Types: of `x`; quantized ones per tensor, those quantized along dimension 1 under\n"
      "\"per channel\". Memory orders: those in which all of these types work; strided is every\n"
      "second element of a larger tensor. Suites are those of `tests/golden`, with the op's name\n"
      "there after the slash.\n";
  std::size_t done = 0;
  std::size_t open = 0;
  std::string body;
  const std::vector<Section> table = sections();
  for (const Section& section : table) {
    const bool is_tried = std::ranges::any_of(section.rows, [](const Row& row) {
      return row.use.any != nullptr || row.use.quantized != nullptr;
    });
    body += fmt::format("\n## {}\n\n| torch | C++ | declared in | suites | test |", section.title);
    body += is_tried ? " types | per channel | memory orders |\n" : "\n";
    body += is_tried ? "|---|---|---|---|---|---|---|---|\n" : "|---|---|---|---|---|\n";
    for (const Row& row : section.rows) {
      add_row(body, row, is_tried);
      ++(row.done() ? done : open);
    }
  }
  out += fmt::format("\n{} rows done, {} not yet.\n", done, open);
  const auto names = document_names(root / "tests/coverage/documents.md", table);
  return out + documents_to_markdown(names) + body + operations_to_markdown();
}

}  // namespace quanta::coverage
