#include "report.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "quanta/runtime/atomic_file.h"

namespace quanta::conform {
namespace {

using Json = nlohmann::ordered_json;

std::string exact_text(const Counts& counts) {
  return counts.has_integers ? fmt::format("{:.6f}", counts.exact_fraction) : std::string("-");
}

void print_line(const std::string& name, const Counts& counts) {
  fmt::print("{:<46}{:>7}{:>8}{:>8}{:>13}{:>12}\n", name, counts.cases, counts.passed,
             counts.failed, counts.unsupported, exact_text(counts));
}

void print_header(const std::string& first) {
  fmt::print("{:<46}{:>7}{:>8}{:>8}{:>13}{:>12}\n", first, "cases", "passed", "failed",
             "unsupported", "min exact");
}

Json to_json(const Counts& counts) {
  Json json = {{"cases", counts.cases},
               {"passed", counts.passed},
               {"failed", counts.failed},
               {"unsupported", counts.unsupported}};
  if (counts.has_integers) json["min_exact_fraction"] = counts.exact_fraction;
  return json;
}

}  // namespace

Counts& Counts::operator+=(const Counts& other) {
  cases += other.cases;
  passed += other.passed;
  failed += other.failed;
  unsupported += other.unsupported;
  has_integers = has_integers || other.has_integers;
  exact_fraction = std::min(exact_fraction, other.exact_fraction);
  return *this;
}

void SuiteReport::add(const std::string& op, Outcome outcome, const Comparison& comparison) {
  auto found =
      std::find_if(ops.begin(), ops.end(), [&](const auto& row) { return row.first == op; });
  if (found == ops.end()) found = ops.insert(ops.end(), {op, Counts()});
  Counts counts;
  counts.cases = 1;
  counts.passed = outcome == Outcome::Passed ? 1 : 0;
  counts.failed = outcome == Outcome::Failed ? 1 : 0;
  counts.unsupported = outcome == Outcome::Unsupported ? 1 : 0;
  counts.has_integers = comparison.has_integers;
  counts.exact_fraction = comparison.exact_fraction;
  found->second += counts;
}

Counts SuiteReport::total() const {
  Counts sum;
  for (const auto& [op, counts] : ops) sum += counts;
  return sum;
}

void print_table(const SuiteReport& suite) {
  print_header(suite.name);
  for (const auto& [op, counts] : suite.ops) print_line("  " + op, counts);
  print_line("  total", suite.total());
  fmt::print("\n");
}

void print_summary(const std::vector<SuiteReport>& suites) {
  print_header("all suites");
  for (const SuiteReport& suite : suites) print_line("  " + suite.name, suite.total());
  print_line("  total", total_of(suites));
}

Counts total_of(const std::vector<SuiteReport>& suites) {
  Counts sum;
  for (const SuiteReport& suite : suites) sum += suite.total();
  return sum;
}

void write_json(const std::filesystem::path& path, const std::vector<SuiteReport>& suites) {
  Json json = to_json(total_of(suites));
  json["suites"] = Json::object();
  for (const SuiteReport& suite : suites) {
    Json& entry = json["suites"][suite.name];
    entry = to_json(suite.total());
    if (!suite.hash.empty()) entry["integer_hash"] = suite.hash;
    entry["ops"] = Json::object();
    for (const auto& [op, counts] : suite.ops) entry["ops"][op] = to_json(counts);
  }
  const std::string text = json.dump(2) + "\n";
  write_file_atomically(path, [&](const auto& sink) {
    sink(std::as_bytes(std::span<const char>(text.data(), text.size())));
  });
}

}  // namespace quanta::conform
