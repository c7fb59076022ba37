#include "tests/trace/raw_file.h"

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "trace/trace.h"

namespace dspark::test {
namespace {

// Before anything else starts the library: see h5::initialise().
[[maybe_unused]] const herr_t no_clean_up_at_exit = H5dont_atexit();

// A bad call in a test's own set-up must not look like a file that the reader refuses.
template <class T>
T checked(T result, const std::string& what) {
  if (result < 0) throw std::runtime_error("test set-up: HDF5 failed at " + what);
  return result;
}

hid_t small_float(std::size_t exponent, std::size_t mantissa) {
  const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
  checked(H5Tset_fields(type, exponent + mantissa, mantissa, exponent, 0, mantissa), "float type");
  checked(H5Tset_size(type, (exponent + mantissa + 1) / 8), "float type");
  checked(H5Tset_ebias(type, (std::size_t{1} << (exponent - 1)) - 1), "float type");
  return type;
}

void common_attributes(RawFile& file, const std::string& kind) {
  file.text("format", "dspark-trace");
  file.integer("format_version", 1);
  file.text("kind", kind);
  file.integer("vocab_size", kV);
}

void anchor_tokens(RawFile& file) {
  common_attributes(file, "anchors");
  file.integer("block_size", kP);
  file.real("temperature", 1.0);
  file.group("/anchors");
  file.integers("/anchors/sequence_offsets", {3}, {0, 3, 5}, H5T_STD_I64LE);
  file.integers("/anchors/tokens", {5}, {0, 1, 2, 3, 5});
  file.integers("/anchors/last_tokens", {2}, {4, 0});
}

}  // namespace

RawFile RawFile::create(const std::string& path) {
  return RawFile(checked(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), path));
}

RawFile RawFile::edit(const std::string& path) {
  return RawFile(checked(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), path));
}

RawFile::~RawFile() {
  if (id_ >= 0) H5Fclose(id_);
}

void RawFile::attribute(const std::string& object, const std::string& name, hid_t type,
                        hid_t memory, const void* value, const Dims& dims) {
  const hid_t owner = checked(H5Oopen(id_, object.c_str(), H5P_DEFAULT), object);
  if (H5Aexists(owner, name.c_str()) > 0) checked(H5Adelete(owner, name.c_str()), name);
  const hid_t space = dims.empty()
                          ? H5Screate(H5S_SCALAR)
                          : H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr);
  const hid_t made =
      checked(H5Acreate2(owner, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), name);
  checked(H5Awrite(made, memory, value), name);
  H5Aclose(made);
  H5Sclose(space);
  H5Oclose(owner);
}

void RawFile::integer(const std::string& name, std::int64_t value, const std::string& object) {
  attribute(object, name, H5T_STD_I32LE, H5T_NATIVE_INT64, &value);
}

void RawFile::real(const std::string& name, double value, const std::string& object) {
  attribute(object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &value);
}

void RawFile::text(const std::string& name, const std::string& value, const std::string& object) {
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, H5T_VARIABLE);
  H5Tset_cset(type, H5T_CSET_UTF8);
  const char* characters = value.c_str();
  attribute(object, name, type, type, &characters);
  H5Tclose(type);
}

void RawFile::remove_attribute(const std::string& name, const std::string& object) {
  checked(H5Adelete_by_name(id_, object.c_str(), name.c_str(), H5P_DEFAULT), name);
}

void RawFile::group(const std::string& path) {
  H5Gclose(checked(H5Gcreate2(id_, path.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), path));
}

void RawFile::remove(const std::string& path) {
  checked(H5Ldelete(id_, path.c_str(), H5P_DEFAULT), path);
}

void RawFile::dataset(const std::string& path, hid_t type, const Dims& dims, hid_t memory,
                      const void* values, hid_t creation) {
  if (H5Lexists(id_, path.c_str(), H5P_DEFAULT) > 0) remove(path);
  const hid_t space = dims.empty()
                          ? H5Screate(H5S_SCALAR)
                          : H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr);
  const hid_t made =
      checked(H5Dcreate2(id_, path.c_str(), type, space, H5P_DEFAULT, creation, H5P_DEFAULT), path);
  if (values != nullptr) {
    checked(H5Dwrite(made, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), path);
  }
  H5Dclose(made);
  H5Sclose(space);
}

void RawFile::floats(const std::string& path, const Dims& dims, const std::vector<float>& values,
                     hid_t type, hid_t creation) {
  dataset(path, type, dims, H5T_NATIVE_FLOAT, values.data(), creation);
}

void RawFile::integers(const std::string& path, const Dims& dims,
                       const std::vector<std::int64_t>& values, hid_t type) {
  dataset(path, type, dims, H5T_NATIVE_INT64, values.data());
}

void RawFile::soft_link(const std::string& target, const std::string& path) {
  if (H5Lexists(id_, path.c_str(), H5P_DEFAULT) > 0) remove(path);
  checked(H5Lcreate_soft(target.c_str(), id_, path.c_str(), H5P_DEFAULT, H5P_DEFAULT), path);
}

void RawFile::external_link(const std::string& file, const std::string& target,
                            const std::string& path) {
  if (H5Lexists(id_, path.c_str(), H5P_DEFAULT) > 0) remove(path);
  checked(
      H5Lcreate_external(file.c_str(), target.c_str(), id_, path.c_str(), H5P_DEFAULT, H5P_DEFAULT),
      path);
}

hid_t f16_type() {
  static const hid_t type = small_float(5, 10);
  return type;
}

hid_t bf16_type() {
  static const hid_t type = small_float(8, 7);
  return type;
}

Chunked::Chunked(const Dims& chunk) : id_(H5Pcreate(H5P_DATASET_CREATE)) {
  checked(H5Pset_chunk(id_, static_cast<int>(chunk.size()), chunk.data()), "chunks");
}

std::vector<float> ramp(std::size_t count) {
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = 0.25f * static_cast<float>(i + 1);
  return out;
}

std::string quoted(const std::string& name) {
  std::string out(1, '\'');
  out += name;
  out += '\'';
  return out;
}

void make_anchors(const std::string& path) {
  RawFile file = RawFile::create(path);
  anchor_tokens(file);
  file.floats("/anchors/draft_logits", {5, kP, kV}, ramp(5 * kP * kV));
  file.floats("/anchors/target_logits", {5, kV}, ramp(5 * kV));
}

void make_hidden_anchors(const std::string& path) {
  RawFile file = RawFile::create(path);
  anchor_tokens(file);
  file.integer("hidden_size", kH);
  file.integer("target_hidden_size", kHt);
  file.floats("/anchors/draft_hidden", {5, kP, kH}, ramp(5 * kP * kH));
  file.floats("/anchors/target_hidden", {5, kHt}, ramp(5 * kHt));
}

void make_rounds(const std::string& path) {
  RawFile file = RawFile::create(path);
  common_attributes(file, "rounds");
  file.integer("block_size", kP);
  file.real("temperature", 1.0);
  file.group("/rounds");
  file.integers("/rounds/request", {3}, {0, 0, 4});
  file.integers("/rounds/round", {3}, {0, 1, 0});
  file.integers("/rounds/anchor_token", {3}, {1, 2, 3});
  file.integers("/rounds/draft_tokens", {3, kP}, {0, 1, 2, 3, 4, 5});
  file.integers("/rounds/proposal_length", {3}, {2, 1, 0});
  file.integers("/rounds/accept_length", {3}, {3, 1, 1});
  file.integers("/rounds/accepted_tokens", {3, kP + 1}, {0, 1, 5, 4, -1, -1, 0, -1, -1});
  file.floats("/rounds/proposal_uniforms", {3, kP}, {0, 0.25f, 0.5f, 0.75f, 1, 0});
  file.floats("/rounds/accept_uniforms", {3, 2 * kP + 1}, std::vector<float>(15, 0.5f));
  file.floats("/rounds/draft_logits", {3, kP, kV}, ramp(3 * kP * kV));
  file.floats("/rounds/target_logits", {3, kP + 1, kV}, ramp(3 * (kP + 1) * kV));
}

void add_heads(RawFile& file) {
  file.group("/heads");
  file.floats("/heads/markov_w1", {kV, kR}, ramp(kV * kR));
  file.floats("/heads/markov_w2", {kV, kR}, ramp(kV * kR));
  file.floats("/heads/confidence_weight", {kH + kR}, ramp(kH + kR));
  file.floats("/heads/confidence_bias", {1}, {-0.5f});
  file.floats("/heads/lm_head", {kV, kHt}, ramp(kV * kHt));
  file.floats("/heads/draft_lm_head", {kV, kH}, ramp(kV * kH));
}

void make_heads(const std::string& path) {
  RawFile file = RawFile::create(path);
  common_attributes(file, "heads");
  file.integer("hidden_size", kH);
  file.integer("target_hidden_size", kHt);
  file.integer("markov_rank", kR);
  file.text("markov_head_type", "vanilla");
  file.integer("confidence_with_markov", 1);
  add_heads(file);
}

void expect_error(ExitCode code, const std::vector<std::string>& parts,
                  const std::function<void()>& work) {
  try {
    work();
    ADD_FAILURE() << "no error; expected one about " << (parts.empty() ? "" : parts.front());
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << text;
    for (const std::string& part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
    }
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

void expect_refused(const std::string& path, const std::vector<std::string>& parts) {
  std::vector<std::string> all = parts;
  all.push_back(path);
  expect_trace_error(all, [&] { (void)TraceFile::open(path); });
}

}  // namespace dspark::test
