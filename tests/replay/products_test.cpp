// How products are accumulated: what a request for tensor cores comes to, and what it is told.
#include "replay/products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/replay/idle_backend.h"
#include "tests/replay/tiny_trace.h"
#include "tests/support/temporary_folder.h"

namespace dspark {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

/// Multiplies f16 on tensor cores, and nothing else.
class TensorBackend : public IdleBackend {
 public:
  [[nodiscard]] bool has_tensor_products(DType a, DType b, std::int64_t depth) const override {
    EXPECT_TRUE(depth == 512 || depth == 64 || depth == 2) << depth;
    return a == DType::f16 && b == DType::f16;
  }
};

class ProductsOf : public testing::Test {
 protected:
  /// A recorded trace with f16 hidden states and heads.
  void open_hidden() { open(std::string(DSPARK_TRACES) + "/code_t1.h5"); }
  /// A trace of f32 logits with an f32 Markov head.
  void open_logits() {
    TinyTrace(3).write(files_.file("tiny.h5"));
    open(files_.file("tiny.h5"));
  }
  void open(const std::string& path) {
    trace_ = TraceFile::open(path);
    heads_ = load_heads(*trace_, "", 0);
  }
  [[nodiscard]] Products of(const Backend& backend, Products asked) const {
    return products_of(backend, *trace_, heads_, asked);
  }
  [[nodiscard]] std::string notice(const Backend& backend, Products asked) const {
    return products_notice(backend, *trace_, heads_, asked);
  }

  test::TemporaryFolder files_;
  std::unique_ptr<TraceFile> trace_;
  Heads heads_;
  TensorBackend tensor_;
  IdleBackend plain_;
};

TEST_F(ProductsOf, HiddenStatesRunOnTensorCoresWhereAskedFor) {
  open_hidden();
  EXPECT_EQ(of(tensor_, Products::tensor), Products::tensor);
  EXPECT_EQ(of(tensor_, Products::exact), Products::exact);
  EXPECT_THAT(notice(tensor_, Products::tensor), IsEmpty());
  EXPECT_THAT(notice(tensor_, Products::exact), HasSubstr("--products tensor is faster"));
}

TEST_F(ProductsOf, AreExactOnABackendWithoutTensorCores) {
  open_hidden();
  EXPECT_EQ(of(plain_, Products::tensor), Products::exact);
  EXPECT_THAT(notice(plain_, Products::tensor), HasSubstr("its products are exact"));
  EXPECT_THAT(notice(plain_, Products::exact), IsEmpty());
}

TEST_F(ProductsOf, AreExactForTypesThatTensorCoresDoNotTake) {
  open_logits();
  EXPECT_EQ(of(tensor_, Products::tensor), Products::exact);
  EXPECT_THAT(notice(tensor_, Products::tensor), HasSubstr("its products are exact"));
  EXPECT_THAT(notice(tensor_, Products::exact), IsEmpty());
}

TEST_F(ProductsOf, TheMarkovBiasAloneIsEnough) {
  open_logits();
  const auto narrow = [](HostMatrix& matrix) {
    matrix.type = DType::f16;
    matrix.bytes.resize(matrix.bytes.size() / 2);
  };
  narrow(heads_.markov_w1);
  EXPECT_EQ(of(tensor_, Products::tensor), Products::exact) << "of two types";
  narrow(heads_.markov_w2);
  EXPECT_EQ(of(tensor_, Products::tensor), Products::tensor);
  EXPECT_THAT(notice(tensor_, Products::exact), IsEmpty()) << "stored logits gain little";
}

}  // namespace
}  // namespace dspark
