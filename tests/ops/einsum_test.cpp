#include <doctest/doctest.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "quanta/ops/matmul.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace quanta {
namespace {

/// The sum written as loops over all letters, for equations without "...".
std::vector<double> summed(const std::string& equation, const std::vector<Tensor>& operands) {
  const std::string left = equation.substr(0, equation.find("->"));
  const std::string result = equation.substr(equation.find("->") + 2);
  std::map<char, std::int64_t> sizes;
  std::vector<std::string> terms{""};
  for (const char c : left) {
    if (c == ',') {
      terms.emplace_back();
    } else {
      terms.back() += c;
    }
  }
  for (std::size_t t = 0; t < terms.size(); ++t) {
    for (std::size_t d = 0; d < terms[t].size(); ++d) {
      sizes[terms[t][d]] = operands[t].size(static_cast<std::int64_t>(d));
    }
  }
  std::int64_t count = 1;
  for (const char c : result) count *= sizes[c];
  std::vector<double> sums(static_cast<std::size_t>(count), 0.0);
  std::map<char, std::int64_t> at;
  for (const auto& [letter, size] : sizes) at[letter] = 0;
  for (;;) {
    double product = 1.0;
    for (std::size_t t = 0; t < terms.size(); ++t) {
      std::int64_t offset = 0;
      for (std::size_t d = 0; d < terms[t].size(); ++d) {
        offset += at[terms[t][d]] * operands[t].strides()[d];
      }
      product *= double{operands[t].data<float>()[offset]};
    }
    std::int64_t to = 0;
    for (const char c : result) to = to * sizes[c] + at[c];
    sums[static_cast<std::size_t>(to)] += product;
    auto letter = at.begin();
    for (; letter != at.end(); ++letter) {
      if (++letter->second < sizes[letter->first]) break;
      letter->second = 0;
    }
    if (letter == at.end()) return sums;
  }
}

TEST_CASE("einsum: equations of letters give what loops over all letters give") {
  const std::map<char, std::int64_t> kSizes{{'i', 3}, {'j', 4}, {'k', 5}, {'b', 2}, {'z', 1}};
  const std::vector<std::string> kEquations{
      "ij,jk->ik", "ij,jk->ki",  "bij,bjk->bik", "ij->ji",      "ij->",          "ij->j",
      "ii->i",     "ii->",       "iij->ji",      "i,j->ij",     "ij,ij->",       "ij,kj->ik",
      "ij,ji->i",  "bij,k->kbi", "ij,jk,kb->ib", "ij,ij,ij->j", "bi,bj,bk->ijk", "iji,jk->ki",
      "zi,zj->ij", "ij,ik->i",   "bijk,bijk->bk"};
  Generator generator(21);
  for (const std::string& equation : kEquations) {
    CAPTURE(equation);
    std::vector<Tensor> operands;
    Dims sizes;
    for (const char c : equation.substr(0, equation.find("->")) + ",") {
      if (c == ',') {
        operands.push_back(randn(sizes, generator));
        sizes = {};
      } else {
        sizes.push_back(kSizes.at(c));
      }
    }
    const std::vector<float> got = einsum(equation, operands).contiguous().to_float_vector();
    const std::vector<double> wanted = summed(equation, operands);
    REQUIRE(got.size() == wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      CHECK(got[i] == doctest::Approx(wanted[i]).epsilon(1e-4));
    }
  }
}

TEST_CASE("einsum: dots stand for dimensions that broadcast") {
  Generator generator(22);
  const std::array<Tensor, 2> batched{randn({6, 1, 3, 4}, generator), randn({5, 4, 2}, generator)};
  const Tensor product = matmul(batched[0], batched[1]);
  CHECK(product.sizes() == Dims{6, 5, 3, 2});
  CHECK(einsum("...ij,...jk->...ik", batched).equal(product));
  CHECK(einsum("...ij, ...jk", batched).equal(product));
  const std::array<Tensor, 1> one{batched[0]};
  CHECK(einsum("...ij->...ji", one).equal(batched[0].transpose(-2, -1)));
  CHECK(einsum("i...->...i", one).sizes() == Dims{1, 3, 4, 6});
  CHECK(einsum("ba", std::array<Tensor, 1>{batched[1].select(0, 0)}).sizes() == Dims{2, 4});
}

TEST_CASE("einsum: integers are multiplied as integers and keep their dtype") {
  for (const DType dtype : {DType::Int32, DType::Int64}) {
    const Tensor x = Tensor::arange(6, dtype).view({2, 3});
    const Tensor squares = einsum("ij,kj->ik", std::array<Tensor, 2>{x, x});
    CHECK(squares.dtype() == dtype);
    CHECK(squares.to_int64_vector() == std::vector<std::int64_t>{5, 14, 14, 50});
    const Tensor sums = einsum("ij->i", std::array<Tensor, 1>{x});
    CHECK(sums.dtype() == dtype);
    CHECK(sums.to_int64_vector() == std::vector<std::int64_t>{3, 12});
  }
}

TEST_CASE("einsum: wrong equations and sizes are refused by name") {
  const std::array<Tensor, 2> two{Tensor::zeros({2, 3}), Tensor::zeros({4, 5})};
  const auto refuses = [&](std::string_view equation, const char* text) {
    CAPTURE(equation);
    CHECK_THROWS_WITH_AS(einsum(equation, two), doctest::Contains(text), ArgumentError);
  };
  refuses("ij,jk->ik", "expected equal sizes for each letter");
  refuses("ij->ij", "operands: expected 1 for equation");
  refuses("ij,k->ik", "expected 1 dimensions for operand 1");
  refuses("i1,jk->k", "expected letters and at most one");
  refuses("i..,jk->k", "expected letters and at most one");
  refuses("...ijm,jk->k", "expected at least 3 dimensions");
  refuses("ij,kl->m", "expected letters of the operands in the result");
  refuses("ij,kl->ii", "expected each letter of the result once");
  refuses("ii,kl->k", "expected equal sizes for a letter that stands twice");
}

TEST_CASE("det: determinants of products are products of determinants") {
  const Tensor known = Tensor::from_values({0, 2, 1, 3, 1, 2, 3, 6, 5, 4, 2, 1}, {3, 2, 2});
  CHECK(det(known).to_float_vector() == std::vector<float>{-2, 0, -3});
  CHECK(det(Tensor::zeros({2, 0, 0})).to_float_vector() == std::vector<float>{1, 1});
  Generator generator(23);
  const Tensor a = randn({5, 6, 6}, generator).to(DType::Float64);
  const Tensor b = randn({5, 6, 6}, generator).to(DType::Float64);
  const Tensor product = det(matmul(a, b));
  for (std::int64_t i = 0; i < 5; ++i) {
    CHECK(product.data<double>()[i] ==
          doctest::Approx(det(a).data<double>()[i] * det(b).data<double>()[i]).epsilon(1e-9));
  }
  CHECK_THROWS_WITH_AS(det(Tensor::zeros({2, 3})), doctest::Contains("expected square matrices"),
                       ArgumentError);
}

TEST_CASE("matmul: products of integers wrap around") {
  const Tensor lhs = Tensor::from_int64(std::vector<std::int64_t>{1, 2, 3, 4}).view({2, 2});
  const Tensor rhs = Tensor::from_int64(std::vector<std::int64_t>{5, 6, 7, 8}).view({2, 2});
  CHECK(matmul(lhs, rhs).to_int64_vector() == std::vector<std::int64_t>{19, 22, 43, 50});
  const Tensor small = matmul(lhs.to(DType::Int32), rhs.to(DType::Int32));
  CHECK(small.dtype() == DType::Int32);
  CHECK(small.to_int64_vector() == std::vector<std::int64_t>{19, 22, 43, 50});
  const Tensor large = Tensor::full({1}, 65536.0, DType::Int32);
  CHECK(matmul(large, large).to_int64_vector() == std::vector<std::int64_t>{0});
}

}  // namespace
}  // namespace quanta
