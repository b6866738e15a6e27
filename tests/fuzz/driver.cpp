#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

// Stands in for libFuzzer where it is missing: runs a fuzz target over the given files and over
// changed copies of them. The same seed gives the same inputs; time only limits how many.
//
//   <program> SECONDS SEED EXTENSION FILE-OR-FOLDER...
//
// With QUANTA_FUZZ_CRASH_FILE in the environment each input is written there before it runs.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);
// Null for targets that have none.
extern "C" [[gnu::weak]] std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                                             std::size_t max_size, unsigned seed);

namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::uint8_t>;
using Random = std::mt19937_64;

constexpr std::uintmax_t kMaxSeedBytes = 20000;  // larger files change too little in a run

// What the run draws from, also where a target's mutator asks for a change of bytes.
std::vector<Bytes> seeds;
Random generator;

std::size_t below(Random& random, std::size_t end) {
  return static_cast<std::size_t>(random() % std::max<std::size_t>(end, 1));
}

Bytes read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return {bytes.begin(), bytes.end()};
}

void change(Bytes& bytes, Random& random) {
  constexpr std::uint64_t kNumbers[] = {0,          1,          0x7f,       0x80,
                                        0xff,       0xffff,     0x7fffffff, 0xffffffff,
                                        1ULL << 32, 1ULL << 55, 1ULL << 62, ~0ULL};
  const std::size_t at = below(random, bytes.size());
  const auto position = bytes.begin() + static_cast<std::ptrdiff_t>(at);
  switch (below(random, 8)) {
    case 0:
    case 1:
      if (!bytes.empty()) bytes[at] = static_cast<std::uint8_t>(random());
      break;
    case 2:
      if (!bytes.empty()) bytes[at] ^= static_cast<std::uint8_t>(1U << below(random, 8));
      break;
    case 3: {
      const std::uint64_t number = kNumbers[below(random, std::size(kNumbers))];
      const std::size_t width = std::min(std::size_t{1} << below(random, 4), bytes.size() - at);
      if (!bytes.empty()) std::memcpy(bytes.data() + at, &number, width);
      break;
    }
    case 4:
      bytes.resize(at);
      break;
    case 5:
      bytes.erase(position, position + static_cast<std::ptrdiff_t>(
                                           std::min(below(random, 32), bytes.size() - at)));
      break;
    case 6: {
      const Bytes piece(position, position + static_cast<std::ptrdiff_t>(
                                                 std::min(below(random, 64), bytes.size() - at)));
      const auto target = static_cast<std::ptrdiff_t>(below(random, bytes.size() + 1));
      bytes.insert(bytes.begin() + target, piece.begin(), piece.end());
      break;
    }
    default: {
      const Bytes& other = seeds[below(random, seeds.size())];
      const std::size_t from = below(random, other.size());
      const std::size_t count =
          std::min({below(random, 64), other.size() - from, bytes.size() - at});
      std::copy_n(other.begin() + static_cast<std::ptrdiff_t>(from), count, position);
    }
  }
}

/// `bytes` as the target's mutator, if it has one, or change() leaves them.
void mutate(Bytes& bytes) {
  if (LLVMFuzzerCustomMutator == nullptr) return change(bytes, generator);
  const std::size_t size = bytes.size();
  bytes.resize(size + 256);
  bytes.resize(LLVMFuzzerCustomMutator(bytes.data(), size, bytes.size(),
                                       static_cast<unsigned>(generator())));
}

void write_file(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

/// Runs inputs and knows how long the slowest took. With a file given, leaves an input that ends the
/// program there, as libFuzzer does, and the slowest beside it.
class Runner {
 public:
  explicit Runner(const char* file) : file_(file == nullptr ? "" : file) {}

  void run(const Bytes& bytes) {
    if (!file_.empty()) write_file(file_, bytes);
    const auto start = std::chrono::steady_clock::now();
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (seconds.count() <= slowest_) return;
    slowest_ = seconds.count();
    if (!file_.empty()) write_file(file_ + ".slowest", bytes);
  }
  double slowest() const { return slowest_; }

 private:
  std::string file_;
  double slowest_ = 0.0;
};

}  // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size,
                                        std::size_t max_size) {
  Bytes bytes(data, data + size);
  change(bytes, generator);
  bytes.resize(std::min(bytes.size(), max_size));
  std::copy(bytes.begin(), bytes.end(), data);
  return bytes.size();
}

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: %s SECONDS SEED EXTENSION FILE-OR-FOLDER...\n", argv[0]);
    return 2;
  }
  std::vector<fs::path> paths;
  for (int i = 4; i < argc; ++i) {
    if (!fs::is_directory(argv[i])) {
      paths.emplace_back(argv[i]);
      continue;
    }
    for (const auto& entry : fs::directory_iterator(argv[i])) {
      if (entry.path().extension() == argv[3]) paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  Runner runner(std::getenv("QUANTA_FUZZ_CRASH_FILE"));
  for (const fs::path& path : paths) {
    Bytes bytes = read_file(path);
    runner.run(bytes);
    if (bytes.size() <= kMaxSeedBytes) seeds.push_back(std::move(bytes));
  }
  if (seeds.empty()) {
    std::fprintf(stderr, "no seed files of at most %ju bytes\n", kMaxSeedBytes);
    return 2;
  }

  generator.seed(std::strtoull(argv[2], nullptr, 10));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(argv[1]));
  std::size_t runs = 0;
  for (; std::chrono::steady_clock::now() < end; ++runs) {
    Bytes bytes = seeds[below(generator, seeds.size())];
    for (std::size_t changes = 1 + below(generator, 6); changes > 0; --changes) mutate(bytes);
    runner.run(bytes);
  }
  std::printf("%zu inputs from %zu files, the slowest in %.0f ms\n", runs, seeds.size(),
              1000.0 * runner.slowest());
  return 0;
}
