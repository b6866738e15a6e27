#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>

#include "documents.h"
#include "operations.h"
#include "quanta/ops/catalogue.h"
#include "quanta/ops/support.h"
#include "registry.h"
#include "report.h"

namespace quanta::coverage {
namespace {

std::optional<std::string> read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), {});
}

/// Files of the repository, read once.
class Files {
 public:
  explicit Files(std::filesystem::path root) : root_(std::move(root)) {}
  const std::optional<std::string>& text(std::string_view path) {
    const auto [it, is_new] = texts_.try_emplace(std::string(path));
    if (is_new) it->second = read_text(root_ / path);
    return it->second;
  }

 private:
  std::filesystem::path root_;
  std::map<std::string, std::optional<std::string>> texts_;
};

bool is_name_part(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool contains_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const bool starts = at == 0 || !is_name_part(text[at - 1]);
    const bool stops = end == text.size() || !is_name_part(text[end]);
    if (starts && stops) return true;
  }
  return false;
}

/// What a call calls: "quantized::add(x, ...)" is about add, "DType::QUInt8" about QUInt8, and
/// "x[0]" about operator[].
std::string_view called(std::string_view text) {
  const std::size_t end = text.find_first_of("([{");
  if (end != std::string_view::npos && text[end] == '[') return "operator";
  const std::string_view name = text.substr(0, end);
  const std::size_t start = name.find_last_of(".:");
  return start == std::string_view::npos ? name : name.substr(start + 1);
}

void check_suites(const Row& row, Files& files, std::vector<std::string>& found) {
  std::string_view rest = row.suites;
  while (!rest.empty()) {
    const std::size_t blank = rest.find(' ');
    const std::string_view entry = rest.substr(0, blank);
    rest = blank == std::string_view::npos ? std::string_view{} : rest.substr(blank + 1);
    const std::size_t slash = entry.find('/');
    const std::string_view suite = entry.substr(0, slash);
    const std::string torch = fmt::format("tests/golden/torch/{}.json", suite);
    const std::string seeds = fmt::format("tests/golden/seeds/{}.json", suite);
    const auto& text = files.text(files.text(torch) ? torch : seeds);
    if (!text) {
      found.push_back(fmt::format("{}: no suite {}", row.name, suite));
    } else if (slash != std::string_view::npos &&
               text->find(fmt::format("\"op\":\"{}\"", entry.substr(slash + 1))) ==
                   std::string::npos) {
      found.push_back(fmt::format("{}: no case in {}", row.name, entry));
    }
  }
}

/// What the row's call took has to be what supports() says of the op.
void check_types(const Row& row, std::vector<std::string>& found) {
  bool is_known = false;
  for (const OpSupport& support : op_table()) {
    is_known = is_known || (support.op == row.name && row.header == support.header.substr(7));
  }
  if (!is_known || (row.use.any == nullptr && row.use.quantized == nullptr)) return;
  const Taken taken = try_row(row);
  constexpr std::array kTypes{DType::Float32, DType::QUInt8, DType::QInt8, DType::QInt32};
  for (const DType dtype : kTypes) {
    if (row.use.any == nullptr && !is_quantized(dtype)) continue;
    const bool runs = std::ranges::find(taken.types, dtype) != taken.types.end();
    if (runs != supports(row.name, Device::cpu(), dtype)) {
      found.push_back(fmt::format("{}: {} {} it, supports() says otherwise", row.name,
                                  torch_name(dtype), runs ? "runs" : "refuses"));
    }
  }
}

void check_row(const Row& row, Files& files, std::vector<std::string>& found) {
  const std::string_view name = called(row.use.text);
  const auto& header = files.text(row.header);
  if (!header) {
    found.push_back(fmt::format("{}: no header {}", row.name, row.header));
  } else if (!contains_word(*header, name) && name != "operator") {
    found.push_back(fmt::format("{}: {} does not declare {}", row.name, row.header, name));
  }
  const auto& test = files.text(row.test);
  if (!test) {
    found.push_back(fmt::format("{}: no test {}", row.name, row.test));
  } else if (!contains_word(*test, name) && name != "operator") {
    found.push_back(fmt::format("{}: {} does not mention {}", row.name, row.test, name));
  }
  const bool is_tried = row.use.any != nullptr || row.use.quantized != nullptr;
  if (is_tried) {
    const Taken taken = try_row(row);
    if (taken.types.empty() && taken.per_channel.empty()) {
      found.push_back(fmt::format("{}: {} runs with no element type", row.name, row.use.text));
    }
  }
  check_suites(row, files, found);
  check_types(row, found);
}

/// The functions that tests call for an operation: its own name, or one for all ranks
/// (quantized::conv_relu for "quantized::conv2d_relu", dynamic::Conv2d for "conv_dynamic").
bool mentions(std::string_view test, std::string_view name) {
  if (contains_word(test, name)) return true;
  if (name == "conv_dynamic") return contains_word(test, "Conv2d");
  std::string without_rank(name);
  for (const std::string_view rank : {"1d", "2d", "3d"}) {
    const std::size_t at = without_rank.find(rank);
    if (at != std::string::npos) without_rank.erase(at, rank.size());
  }
  return contains_word(test, without_rank);
}

/// The header that an operation names is there, and so is its test, which is about it.
void check_operation(const OperationEntry& row, Files& files, std::vector<std::string>& found) {
  const std::string_view header = row.header.substr(row.header.find('/') + 1);
  if (!files.text(header)) found.push_back(fmt::format("{}: no header {}", row.name, header));
  const std::string path = test_of(row);
  const auto& test = files.text(path);
  if (!test) {
    found.push_back(fmt::format("{}: no test {}", row.name, path));
  } else if (!mentions(*test, called(row.name))) {
    found.push_back(fmt::format("{}: {} does not mention it", row.name, path));
  }
}

/// The text with single blanks in the place of line breaks and indentation.
std::string in_one_line(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool is_blank = std::isspace(static_cast<unsigned char>(c)) != 0;
    if (!is_blank) {
      result += c;
    } else if (!result.ends_with(' ')) {
      result += ' ';
    }
  }
  return result;
}

/// Every `file` "test case" and every `suite.json` on the page of differences has to be there.
void check_differences(Files& files, std::vector<std::string>& found) {
  constexpr std::string_view kPage = "docs/differences.md";
  const auto& lines = files.text(kPage);
  if (!lines) {
    found.push_back(fmt::format("no {}", kPage));
    return;
  }
  const std::string page = in_one_line(*lines);
  constexpr std::string_view kStart = "`tests/";
  for (std::size_t at = page.find(kStart); at != std::string::npos;
       at = page.find(kStart, at + 1)) {
    const std::size_t path_end = page.find('`', at + 1);
    const std::string path = page.substr(at + 1, path_end - at - 1);
    if (path.ends_with(".json")) {
      if (!files.text(path)) found.push_back(fmt::format("{}: no suite {}", kPage, path));
      continue;
    }
    const std::size_t name_end = page.find('"', path_end + 3);
    const std::string name = page.substr(path_end + 3, name_end - path_end - 3);
    const auto& test = files.text(path);
    if (!test || test->find(fmt::format("TEST_CASE(\"{}\")", name)) == std::string::npos) {
      found.push_back(fmt::format("{}: no test {} \"{}\"", kPage, path, name));
    }
  }
}

}  // namespace

std::vector<std::string> problems(const std::filesystem::path& root) {
  Files files(root);
  std::vector<std::string> found;
  for (const Section& section : sections()) {
    for (const Row& row : section.rows) {
      if (row.done()) check_row(row, files, found);
    }
  }
  for (const OperationEntry& row : operations().entries()) check_operation(row, files, found);
  check_differences(files, found);
  const std::vector<Section> table = sections();
  for (const auto& entry : document_names(root / "tests/coverage/documents.md", table)) {
    if (entry.rows.empty()) {
      found.push_back(fmt::format("{}: no row covers \"{}\"", entry.document, entry.name));
    }
  }
  const auto& page = files.text("docs/coverage.md");
  if (!page || *page != to_markdown(root)) {
    found.push_back(
        "docs/coverage.md is not what the table gives: quanta-coverage > docs/coverage.md");
  }
  return found;
}

}  // namespace quanta::coverage
