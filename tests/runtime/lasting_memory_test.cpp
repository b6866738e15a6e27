#include "quanta/runtime/detail/lasting_memory.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace quanta::test {
namespace {

struct Piece {
  std::shared_ptr<std::byte> data;
  std::size_t bytes;
  int value;

  bool is_intact() const {
    return std::all_of(data.get(), data.get() + bytes,
                       [&](std::byte x) { return x == static_cast<std::byte>(value); });
  }
};

Piece filled(std::size_t bytes, int value) {
  Piece piece{detail::lasting_memory(bytes), bytes, value};
  std::memset(piece.data.get(), value, bytes);
  return piece;
}

}  // namespace

TEST_CASE("lasting_memory: pieces are aligned and do not overlap") {
  std::vector<Piece> pieces;
  int value = 0;
  for (const std::size_t bytes :
       {1U, 64U, 1000U, 300000U, 4194304U, 5000000U, 7U, 4000000U, 100U}) {
    pieces.push_back(filled(bytes, ++value));
    CHECK(reinterpret_cast<std::uintptr_t>(pieces.back().data.get()) % 64 == 0);
  }
  for (const Piece& piece : pieces) CHECK(piece.is_intact());
}

TEST_CASE("lasting_memory: a piece outlives its neighbours") {
  Piece last = filled(1000, 1);
  for (int i = 0; i < 50; ++i) {
    const Piece before = filled(300000, 2);
    last = filled(1000, 3);
  }
  CHECK(last.is_intact());
}

TEST_CASE("lasting_memory: threads get pieces of their own") {
  std::vector<Piece> pieces(32);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&pieces, t] {
      for (std::size_t i = t; i < pieces.size(); i += 4) {
        pieces[i] = filled(100000 + i, static_cast<int>(i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Piece& piece : pieces) CHECK(piece.is_intact());
}

TEST_CASE("lasting_zeros: pieces are zeros beside pieces that are in use") {
  std::vector<Piece> in_use;
  std::vector<Piece> zeros;
  for (const std::size_t bytes : {100U, 70000U, 5000000U, 64U}) {
    in_use.push_back(filled(bytes, 9));
    zeros.push_back({detail::lasting_zeros(bytes), bytes, 0});
  }
  for (const Piece& piece : zeros) CHECK(piece.is_intact());
  std::memset(zeros[1].data.get(), 5, zeros[1].bytes);
  const Piece next{detail::lasting_zeros(1000), 1000, 0};
  CHECK(next.is_intact());
  CHECK(zeros[0].is_intact());
  for (const Piece& piece : in_use) CHECK(piece.is_intact());
}

}  // namespace quanta::test
