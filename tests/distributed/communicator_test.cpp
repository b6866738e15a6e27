#include <doctest/doctest.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "distributed/run_ranks.h"
#include "quanta/fusion/distributed/communicator.h"
#include "quanta/fusion/distributed/detail/processes.h"
#include "quanta/runtime/random.h"
#include "support/tensors.h"

using namespace quanta;
using distributed::Communicator;
using test::run_ranks;

namespace {

// What rank `rank` gives.
std::vector<float> values_of(int rank, std::size_t count) {
  Generator generator(static_cast<std::uint64_t>(rank) + 1);
  std::vector<float> values(count);
  for (float& value : values) {
    value = std::ldexp(static_cast<float>(generator.uniform()) - 0.5F,
                       static_cast<int>(generator.integer(-20, 20)));
  }
  return values;
}

std::vector<float> sum_in_order(int ranks, std::size_t count) {
  std::vector<float> sum = values_of(0, count);
  for (int r = 1; r < ranks; ++r) {
    const std::vector<float> more = values_of(r, count);
    for (std::size_t i = 0; i < count; ++i) sum[i] += more[i];
  }
  return sum;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

const int kProcesses[] = {0, 1};

}  // namespace

TEST_CASE("Communicator: sums are those in the order of the ranks, bit for bit") {
  for (const int more : kProcesses) {
    const int ranks = test::processes() + more * (1 + test::processes());
    run_ranks(ranks, [&](const Communicator& comm) {
      CHECK(comm.size() == ranks);
      CHECK(comm.rank() >= 0);
      CHECK(comm.rank() < ranks);
      for (const std::size_t count : {0U, 1U, 2U, 3U, 7U, 1000U, 70001U}) {
        std::vector<float> values = values_of(comm.rank(), count);
        comm.sum(std::span(values), "test");
        const std::vector<float> expected = sum_in_order(ranks, count);
        REQUIRE(values.size() == expected.size());
        CHECK(std::equal(values.begin(), values.end(), expected.begin(), [](float a, float b) {
          return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
        }));
      }
    });
  }
}

TEST_CASE("Communicator: whole numbers and doubles, smallest and largest") {
  run_ranks(test::uneven_ranks(), [](const Communicator& comm) {
    std::vector<std::int64_t> whole{comm.rank(), std::int64_t{1} << 40U, -1};
    comm.sum(std::span(whole), "whole");
    const std::int64_t n = comm.size();
    CHECK(whole == std::vector<std::int64_t>{n * (n - 1) / 2, n << 40U, -n});
    std::vector<double> wide{0.25 * comm.rank()};
    comm.sum(std::span(wide), "wide");
    CHECK(wide[0] == 0.25 * static_cast<double>(n * (n - 1) / 2));
    std::vector<float> low{static_cast<float>(comm.rank()), static_cast<float>(-comm.rank())};
    std::vector<float> high = low;
    comm.min(std::span(low), "low");
    comm.max(std::span(high), "high");
    CHECK(low == std::vector<float>{0.0F, static_cast<float>(1 - n)});
    CHECK(high == std::vector<float>{static_cast<float>(n - 1), 0.0F});
  });
}

TEST_CASE("Communicator: sums that go on beside others") {
  run_ranks(test::uneven_ranks(), [](const Communicator& comm) {
    std::vector<std::vector<float>> values;
    for (std::size_t i = 0; i < 20; ++i) values.push_back(values_of(comm.rank(), 1000 * i + 1));
    std::vector<distributed::PendingSum> sums;
    for (std::vector<float>& each : values) sums.push_back(comm.start_sum(std::span(each), "sums"));
    for (std::size_t i = sums.size(); i-- > 0;) {
      sums[i].wait();
      sums[i].wait();  // nothing more
      CHECK(values[i] == sum_in_order(comm.size(), 1000 * i + 1));
    }
  });
}

TEST_CASE("Communicator: broadcasts of few and many bytes from each rank") {
  run_ranks(test::uneven_ranks(), [](const Communicator& comm) {
    for (int root = 0; root < comm.size(); ++root) {
      for (const std::size_t count : {0U, 1U, 5U, 100'003U}) {
        std::vector<float> values = values_of(comm.rank(), count);
        comm.broadcast(std::as_writable_bytes(std::span(values)), root, "few and many");
        CHECK(values == values_of(root, count));
      }
      CHECK(comm.broadcast(std::string(static_cast<std::size_t>(comm.rank()), 'a') + "b", root,
                           "text") == std::string(static_cast<std::size_t>(root), 'a') + "b");
    }
    CHECK_THROWS_WITH_AS(comm.broadcast(std::string(), comm.size(), "text"),
                         doctest::Contains("distributed: broadcast: root: expected 0.."),
                         ArgumentError);
  });
}

TEST_CASE("Communicator: what every rank gave, by rank") {
  run_ranks(test::uneven_ranks(), [](const Communicator& comm) {
    const auto text = [](int rank) {
      return std::string(static_cast<std::size_t>(3 * rank % 5), static_cast<char>('a' + rank));
    };
    const auto all = comm.all_gather(bytes_of(text(comm.rank())), "all");
    REQUIRE(all.size() == static_cast<std::size_t>(comm.size()));
    for (int r = 0; r < comm.size(); ++r)
      CHECK(text_of(all[static_cast<std::size_t>(r)]) == text(r));
    for (int root = 0; root < comm.size(); ++root) {
      const auto some = comm.gather(bytes_of(text(comm.rank())), root, "one");
      if (comm.rank() != root) {
        CHECK(some.empty());
        continue;
      }
      REQUIRE(some.size() == all.size());
      for (int r = 0; r < comm.size(); ++r) {
        CHECK(text_of(some[static_cast<std::size_t>(r)]) == text(r));
      }
    }
    comm.barrier("end");
  });
}

TEST_CASE("Communicator: tensors, those on a device through the host") {
  run_ranks(test::uneven_ranks(), [](const Communicator& comm) {
    const Tensor x = Tensor::full({3, 2}, static_cast<double>(comm.rank() + 1));
    comm.sum(x, "tensor");
    const double n = comm.size();
    CHECK(x.equal(Tensor::full({3, 2}, n * (n + 1) / 2)));
    const Tensor codes = Tensor::full({5}, comm.rank(), DType::Int64);
    comm.broadcast(codes, comm.size() - 1, "codes");
    CHECK(codes.equal(Tensor::full({5}, comm.size() - 1, DType::Int64)));
    CHECK_THROWS_AS(comm.sum(codes, "codes"), ArgumentError);
    CHECK_THROWS_AS(comm.sum(Tensor(), "nothing"), ArgumentError);
    CHECK_THROWS_AS(comm.sum(x.transpose(0, 1), "transposed"), ArgumentError);
    CHECK_THROWS_AS(comm.broadcast(x.transpose(0, 1), 0, "transposed"), ArgumentError);
  });
}

TEST_CASE("Communicator: tensors of another device go through the host") {
  run_ranks(test::uneven_ranks(), [](const Communicator& comm) {
    const Device device = Device::parse("cuda:emulated");
    const std::vector<float> mine = values_of(comm.rank(), 77);
    const Tensor x = Tensor::from_values(mine, {7, 11}).to(device);
    comm.sum(x, "there");
    CHECK(x.device() == device);
    CHECK(x.cpu().to_float_vector() == sum_in_order(comm.size(), 77));
    const Tensor y = Tensor::from_values(mine, {77}).to(device);
    comm.broadcast(y, comm.size() - 1, "there");
    CHECK(y.device() == device);
    CHECK(y.cpu().to_float_vector() == values_of(comm.size() - 1, 77));
  });
}

TEST_CASE("Communicator: the ranks of a machine, in even and uneven processes") {
  for (const int ranks : {test::uneven_ranks(), test::even_ranks(), 3 * test::processes() + 2}) {
    run_ranks(ranks, [](const Communicator& comm) {
      CHECK(comm.local_rank() == comm.rank());
      CHECK(comm.local_size() == comm.size());
    });
  }
}

TEST_CASE("share_of_processors: each processor is divided among those that may use it") {
  using distributed::detail::Neighbour;
  using distributed::detail::share_of_processors;
  const auto one = [](int) { return 1; };
  // All on the same four, on halves, and partly on the same.
  const std::vector<Neighbour> same{{0, {0, 1, 2, 3}}, {1, {0, 1, 2, 3}}};
  CHECK(share_of_processors(same, 0, one) == 0.5);
  CHECK(share_of_processors(same, 1, [](int process) { return process + 1; }) ==
        doctest::Approx(1.0 / 3.0));
  const std::vector<Neighbour> halves{{4, {0, 1}}, {9, {2, 3}}};
  CHECK(share_of_processors(halves, 1, one) == 1.0);
  CHECK(share_of_processors(halves, 1, [](int process) { return process == 9 ? 4 : 1; }) == 0.25);
  const std::vector<Neighbour> part{{0, {0, 1, 2, 3}}, {1, {2, 3}}, {2, {2, 3}}};
  CHECK(share_of_processors(part, 0, one) == doctest::Approx((2.0 + 2.0 / 3.0) / 4.0));
  CHECK(share_of_processors(part, 2, one) == doctest::Approx(1.0 / 3.0));
  CHECK(share_of_processors({{0, {}}}, 0, one) == 1.0);
}

TEST_CASE("Communicator: states as messages") {
  StateDict state;
  state.set("a", Tensor::from_values({1.0F, 2.0F}, {2}));
  state.set("b.c", Tensor::full({}, 3.0));
  const StateDict back = distributed::from_bytes(distributed::to_bytes(state));
  REQUIRE(back.size() == 2);
  CHECK(back.at("a").equal(state.at("a")));
  CHECK(back.at("b.c").equal(state.at("b.c")));
  CHECK_THROWS_AS(distributed::from_bytes({}), FileError);
}

TEST_CASE("Communicator: who waits in vain says where and for whom") {
  // Threads of one process: the others are in another call.
  if (test::processes() != 1) return;
  try {
    run_ranks(3, [](const Communicator& comm) {
      comm.set_time_limit(std::chrono::milliseconds(300));
      if (comm.rank() != 2) comm.barrier("the third's place");
    });
    FAIL("expected an error");
  } catch (const distributed::CommunicationError& error) {
    const std::string text = error.what();
    CHECK(text.find("the third's place") != std::string::npos);
    CHECK(text.find("waited in vain for 2") != std::string::npos);
  }
  run_ranks(1, [](const Communicator& comm) { comm.set_time_limit(std::chrono::seconds(60)); });
  CHECK_THROWS_AS(
      run_ranks(
          1, [](const Communicator& comm) { comm.set_time_limit(std::chrono::milliseconds(0)); }),
      ArgumentError);
}

TEST_CASE("Communicator: who comes too late does not touch what the others have left") {
  if (test::processes() != 1) return;
  float left = 1.0F;
  std::string told;
  run_ranks(2, [&](const Communicator& comm) {
    comm.set_time_limit(std::chrono::milliseconds(300));
    if (comm.rank() == 0) {
      CHECK_THROWS_AS(comm.sum(std::span(&left, 1), "late"), distributed::CommunicationError);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(900));
    float own = 1.0F;
    try {
      comm.sum(std::span(&own, 1), "late");
    } catch (const distributed::CommunicationError& error) {
      told = error.what();
    }
    CHECK(own == 1.0F);
  });
  CHECK(left == 1.0F);
  CHECK(told.find("one has given up") != std::string::npos);
  run_ranks(1, [](const Communicator& comm) {
    comm.set_time_limit(std::chrono::seconds(60));
    CHECK_THROWS_AS(comm.set_time_limit(std::chrono::milliseconds::max()), ArgumentError);
  });
}

TEST_CASE("Communicator: ranks that call different things") {
  if (test::processes() != 1) return;
  CHECK_THROWS_WITH_AS(run_ranks(2,
                                 [](const Communicator& comm) {
                                   // The second comes later.
                                   if (comm.rank() == 1) {
                                     std::this_thread::sleep_for(std::chrono::milliseconds(100));
                                   }
                                   comm.barrier(comm.rank() == 0 ? "here" : "there");
                                 }),
                       doctest::Contains("here"), Error);
  std::string told;
  CHECK_THROWS_WITH_AS(run_ranks(2,
                                 [&](const Communicator& comm) {
                                   if (comm.rank() == 1) throw NumericError("nan");
                                   try {
                                     comm.barrier("here");
                                   } catch (const distributed::CommunicationError& error) {
                                     told = error.what();
                                   }
                                 }),
                       "nan", NumericError);
  CHECK(told == "distributed: here: expected rank 1 there, which has failed");
}
