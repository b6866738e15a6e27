#include "documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <initializer_list>
#include <stdexcept>

namespace quanta::coverage {
namespace {

/// Which sections of the table hold a document's names.
struct Document {
  std::string_view name;
  std::array<std::string_view, 4> sections;
};

constexpr std::string_view kQuantizers = "Tensor quantizers (ModelOpt, pytorch-quantization)";

constexpr std::array<Document, 14> kDocuments{{
    {"modelopt", {kQuantizers}},
    {"aimet", {"Quantizers (AIMET)"}},
    {"pytorch-quantization", {kQuantizers}},
    {"torch.Tensor", {"Quantized tensor methods"}},
    {"torch.nn.functional", {"Functional on quantized tensors"}},
    {"torch.nn.intrinsic", {"Fused modules: nn.intrinsic"}},
    {"torch.nn.intrinsic.qat", {"nn.intrinsic.qat"}},
    {"torch.nn.intrinsic.quantized", {"Fused modules: nn.intrinsic.quantized"}},
    {"torch.nn.qat", {"nn.qat"}},
    {"torch.quantization",
     {"Workflow functions", "Configurations", "Observers and fake quantizers", "Stubs"}},
    {"torch.nn.quantized", {"nn.quantized"}},
    {"torch.nn.quantized.dynamic", {"nn.quantized.dynamic and nn.intrinsic.quantized.dynamic"}},
    {"torch.nn.quantized.functional", {"nn.quantized.functional (F)"}},
    {"dtypes and schemes", {"Types"}},
}};

/// Names that stand under others in the table, by their beginning.
struct Alias {
  std::string_view document;
  std::string_view beginning;
  std::array<std::string_view, 6> rows;
};

constexpr std::array<Alias, 33> kAliases{{
    {"modelopt", "FakeAffineTensorQuantFunction", {"FakeAffineTensorQuant"}},
    {"modelopt", "FakeTensorQuantFunction", {"FakeTensorQuant"}},
    {"modelopt", "LegacyFakeTensorQuantFunction", {"LegacyFakeTensorQuant"}},
    {"modelopt", "TensorQuantFunction", {"TensorQuant"}},
    {"modelopt", "ScaledE4M3Function", {"ScaledE4M3"}},
    {"modelopt", "backward", {"gradients"}},
    {"modelopt", "symbolic", {"symbolic"}},
    {"modelopt", "ValueError", {"ValueError"}},
    {"modelopt", "its properties", {"ScaledQuantDescriptor"}},
    {"modelopt", "static get_block", {"get_block_quant_axes_and_sizes"}},
    {"modelopt", "block_sizes keys", {"block_sizes"}},
    {"aimet", "quantizers are modules", {"QuantizerBase", "QuantizedTensor", "DequantizedTensor"}},
    {"aimet", "affine.QuantizeDequantize", {"QuantizeDequantize"}},
    {"aimet", "affine.Quantize", {"Quantize"}},
    {"aimet", "printing", {"QuantizeDequantize"}},
    {"aimet", "is_initialized", {"QuantizerBase"}},
    {"aimet", "per tensor, per channel", {"QuantizeDequantize"}},
    {"aimet", "DequantizedTensor", {"DequantizedTensor", "encodings"}},
    {"aimet", "scale and offset", {"get_scale"}},
    {"aimet",
     "functional",
     {"functional quantize", "functional dequantize", "functional quantize_dequantize"}},
    {"aimet", "QuantizationSimModel", {"QuantizationSimModel"}},
    {"aimet", "dtypes with fnuz", {"float formats"}},
    {"aimet", "bitwidth", {"float formats"}},
    {"aimet", "exponent_bits", {"float formats"}},
    {"aimet", "mantissa_bits", {"float formats"}},
    {"aimet", "forward", {"FloatQuantizeDequantize"}},
    {"aimet", "from_encodings", {"from_encodings"}},
    {"aimet", "get_encodings", {"QuantizerBase"}},
    {"aimet", "below 16 bits", {"FloatQuantizeDequantize"}},
    {"pytorch-quantization", "TensorQuantFunction", {"TensorQuant"}},
    {"torch.Tensor", "mean", {"mean", "mean out"}},
    {"torch.quantization", "Observer", {"ObserverBase"}},
    {"dtypes and schemes", "new data types", {"operations of one's own"}},
}};

constexpr std::string_view kPoint = " \u00b7 ";

std::vector<std::string> split(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + separator.size());
  }
}

/// The words of a list; what stands in parentheses belongs to the word before.
std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> result;
  std::string word;
  int depth = 0;
  const auto end_word = [&] {
    if (!word.empty()) result.push_back(std::move(word));
    word.clear();
  };
  for (const char c : text) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (std::isspace(static_cast<unsigned char>(c)) != 0 && depth == 0) {
      end_word();
    } else {
      word += c;
    }
  }
  end_word();
  return result;
}

/// Lists of plain names; the other documents' lines are sentences.
bool is_list(std::string_view document) {
  return document.starts_with("torch") || document == "dtypes and schemes";
}

/// Whether a row, "softmax (dim)" or "Quantize, DeQuantize", is about the name.
bool is_about(const Row& row, std::string_view name) {
  const std::vector<std::string> names = split(row.name, ", ");
  return std::ranges::any_of(names, [&](const std::string& text) {
    return std::string_view(text).substr(0, text.find(" (")) == name;
  });
}

std::vector<const Row*> rows_named(std::string_view document, std::string_view name,
                                   const std::vector<Section>& table) {
  std::vector<const Row*> rows;
  const auto* known = std::ranges::find(kDocuments, document, &Document::name);
  if (known == kDocuments.end()) return rows;
  for (const Section& section : table) {
    if (std::ranges::find(known->sections, section.title) == known->sections.end()) continue;
    for (const Row& row : section.rows) {
      if (is_about(row, name)) rows.push_back(&row);
    }
  }
  return rows;
}

/// All rows that an alias names, or none where one of them is missing.
std::vector<const Row*> rows_of(const DocumentName& entry, const std::vector<Section>& table) {
  const auto* alias = std::ranges::find_if(kAliases, [&](const Alias& each) {
    return each.document == entry.document && entry.name.starts_with(each.beginning);
  });
  if (alias == kAliases.end()) {
    return rows_named(entry.document,
                      std::string_view(entry.name).substr(0, entry.name.find_first_of(" (")),
                      table);
  }
  std::vector<const Row*> result;
  for (const std::string_view name : alias->rows) {
    if (name.empty()) break;
    const std::vector<const Row*> rows = rows_named(entry.document, name, table);
    if (rows.empty()) return {};
    result.insert(result.end(), rows.begin(), rows.end());
  }
  return result;
}

}  // namespace

std::vector<DocumentName> document_names(const std::filesystem::path& file,
                                         const std::vector<Section>& table) {
  std::ifstream in(file);
  if (!in) throw std::runtime_error(fmt::format("cannot read {}", file.string()));
  std::vector<DocumentName> result;
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos || line.starts_with('#')) continue;
    const std::string document = line.substr(0, colon);
    if (std::ranges::find(kDocuments, document, &Document::name) == kDocuments.end()) continue;
    std::vector<std::string> names = split(std::string_view(line).substr(colon + 2), kPoint);
    if (is_list(document)) {
      std::vector<std::string> listed = words(names.front());
      names.erase(names.begin());
      names.insert(names.begin(), listed.begin(), listed.end());
    }
    for (std::string& name : names) {
      DocumentName entry{document, std::move(name), {}};
      entry.rows = rows_of(entry, table);
      result.push_back(std::move(entry));
    }
  }
  return result;
}

std::string documents_to_markdown(const std::vector<DocumentName>& names) {
  std::string out =
      "\n## The five founding documents\n\n"
      "Every name of `tests/coverage/documents.md`, and the rows below that cover it.\n\n"
      "| document | name | C++ |\n|---|---|---|\n";
  for (const DocumentName& entry : names) {
    std::string calls;
    for (const Row* row : entry.rows) {
      calls += calls.empty() ? "" : ", ";
      calls += row->done() ? fmt::format("`{}`", row->use.text)
                           : fmt::format("not yet: {}", row->not_yet);
    }
    out += fmt::format("| {} | {} | {} |\n", entry.document, entry.name,
                       calls.empty() ? "**missing**" : calls);
  }
  return out;
}

}  // namespace quanta::coverage
