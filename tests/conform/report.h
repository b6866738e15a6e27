#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "compare.h"

namespace quanta::conform {

struct Counts {
  std::int64_t cases = 0;
  std::int64_t passed = 0;
  std::int64_t failed = 0;
  std::int64_t unsupported = 0;
  /// The smallest share of equal integers in a case; meaningful where integers were compared.
  bool has_integers = false;
  double exact_fraction = 1.0;

  Counts& operator+=(const Counts& other);
};

/// How one case ended.
enum class Outcome : std::uint8_t { Passed, Failed, Unsupported };

struct SuiteReport {
  std::string name;
  std::vector<std::pair<std::string, Counts>> ops;  ///< in order of appearance
  std::string hash;

  void add(const std::string& op, Outcome outcome, const Comparison& comparison);
  Counts total() const;
};

/// The table of a suite, one line for each op.
void print_table(const SuiteReport& suite);
/// One line for each suite and their sum.
void print_summary(const std::vector<SuiteReport>& suites);

Counts total_of(const std::vector<SuiteReport>& suites);

/// Writes {"cases", "passed", "failed", "unsupported", "suites": {name: {..., "ops": {op:
/// {...}}}}}, whole or not at all. Throws FileError.
void write_json(const std::filesystem::path& path, const std::vector<SuiteReport>& suites);

}  // namespace quanta::conform
