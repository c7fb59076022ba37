// Links, layouts, filters and sizes: what a hostile file may try.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

#include "tests/trace/raw_file.h"
#include "trace/trace.h"

namespace dspark::test {
namespace {

class Storage : public ::testing::Test {
 protected:
  Storage() { make_anchors(path); }
  void change(const std::function<void(RawFile&)>& how) {
    make_anchors(path);
    RawFile file = RawFile::edit(path);
    how(file);
  }
  void expect_target_logits(const std::vector<float>& expected) const {
    const auto trace = TraceFile::open(path);
    std::vector<float> rows(5 * kV);
    trace->read(RowData::target_logits, 0, 5, rows.data());
    EXPECT_EQ(rows, expected);
  }
  TemporaryFolder dir;
  std::string path = dir.file("t.h5");
  const std::string data = "/anchors/target_logits";
};

// --- links ---

TEST_F(Storage, SoftLinksInsideTheFileAreFollowed) {
  change([&](RawFile& f) {
    f.group("/elsewhere");
    f.floats("/elsewhere/logits", {5, kV}, ramp(5 * kV));
    f.soft_link("/elsewhere/logits", data);
  });
  expect_target_logits(ramp(5 * kV));
}

TEST_F(Storage, RelativeSoftLinksStartWhereTheyStand) {
  change([&](RawFile& f) {
    f.group("/anchors/sub");
    f.floats("/anchors/sub/logits", {5, kV}, ramp(5 * kV));
    f.soft_link("./sub//logits", data);
  });
  expect_target_logits(ramp(5 * kV));
}

TEST_F(Storage, AGroupMayBeASoftLinkToo) {
  change([](RawFile& f) {
    H5Lmove(f.id(), "/anchors", f.id(), "/moved", H5P_DEFAULT, H5P_DEFAULT);
    f.soft_link("/moved", "/anchors");
  });
  expect_target_logits(ramp(5 * kV));
}

TEST_F(Storage, ThirtyTwoSoftLinksAreTheBound) {
  const auto chain = [&](int links) {
    change([&](RawFile& f) {
      f.floats("/end", {5, kV}, ramp(5 * kV));
      for (int i = 1; i < links; ++i) {
        f.soft_link(i == 1 ? "/end" : "/l" + std::to_string(i - 1), "/l" + std::to_string(i));
      }
      f.soft_link("/l" + std::to_string(links - 1), data);
    });
  };
  chain(32);
  expect_target_logits(ramp(5 * kV));
  chain(33);
  expect_refused(path, {data, "more than 32 soft links"});
}

TEST_F(Storage, SoftLinksInACircleEnd) {
  change([&](RawFile& f) {
    f.soft_link("/b", "/a");
    f.soft_link("/a", "/b");
    f.soft_link("/a", data);
  });
  expect_refused(path, {data, "soft links"});
  change([&](RawFile& f) { f.soft_link("target_logits/x", data); });
  expect_refused(path, {data, "soft links"});
}

TEST_F(Storage, ASoftLinkThatLeadsNowhereIsNotTakenForAbsence) {
  change([](RawFile& f) { f.soft_link("/nowhere", "/anchors/draft_hidden"); });
  expect_refused(path, {"/anchors/draft_hidden", "leads nowhere"});
}

TEST_F(Storage, ASoftLinkThroughADatasetIsRefused) {
  change([&](RawFile& f) { f.soft_link("/anchors/tokens/x", data); });
  expect_refused(path, {data, "'tokens'", "not a group"});
}

TEST_F(Storage, ExternalLinksAreRefused) {
  const std::string other = dir.file("other.h5");
  make_anchors(other);
  change([&](RawFile& f) { f.external_link(other, data, data); });
  expect_refused(path, {data, "external link"});
  change([&](RawFile& f) { f.external_link(other, "/anchors", "/anchors"); });
  expect_refused(path, {"/anchors", "external link"});
  change([&](RawFile& f) {
    f.external_link(other, "/anchors", "/out");
    f.soft_link("/out/target_logits", data);
  });
  expect_refused(path, {data, "external link"});
}

TEST_F(Storage, UserDefinedLinksAreRefused) {
  // The way back to a live object, were the link followed.
  H5L_class_t kind{};
  kind.version = H5L_LINK_CLASS_T_VERS;
  kind.id = static_cast<H5L_type_t>(100);
  kind.comment = "test";
  kind.trav_func = [](const char*, hid_t group, const void*, std::size_t, hid_t, hid_t) -> hid_t {
    return H5Oopen(group, "/anchors/tokens", H5P_DEFAULT);
  };
  ASSERT_GE(H5Lregister(&kind), 0);
  change([&](RawFile& f) {
    f.remove(data);
    ASSERT_GE(H5Lcreate_ud(f.id(), data.c_str(), kind.id, "x", 1, H5P_DEFAULT, H5P_DEFAULT), 0);
  });
  expect_refused(path, {data, "user-defined link"});
  H5Lunregister(kind.id);
}

// --- layouts and filters ---

TEST_F(Storage, ExternalStorageIsRefused) {
  std::ofstream(dir.file("raw.bin")) << std::string(5 * kV * 4, 'x');
  change([&](RawFile& f) {
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(creation, dir.file("raw.bin").c_str(), 0, 5 * kV * 4);
    f.dataset(data, H5T_IEEE_F32LE, {5, kV}, H5T_NATIVE_FLOAT, nullptr, creation);
    H5Pclose(creation);
  });
  expect_refused(path, {data, "external files"});
}

TEST_F(Storage, VirtualDatasetsAreRefused) {
  const std::string other = dir.file("other.h5");
  make_anchors(other);
  change([&](RawFile& f) {
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t dims[2] = {5, kV};
    const hid_t space = H5Screate_simple(2, dims, nullptr);
    H5Pset_virtual(creation, space, other.c_str(), data.c_str(), space);
    f.dataset(data, H5T_IEEE_F32LE, {5, kV}, H5T_NATIVE_FLOAT, nullptr, creation);
    H5Sclose(space);
    H5Pclose(creation);
  });
  expect_refused(path, {data, "virtual dataset"});
}

TEST_F(Storage, DeflateShuffleAndFletcherAreRead) {
  change([&](RawFile& f) {
    const Chunked creation({2, 4});
    H5Pset_shuffle(creation);
    H5Pset_deflate(creation, 9);
    H5Pset_fletcher32(creation);
    f.floats(data, {5, kV}, ramp(5 * kV), H5T_IEEE_F32LE, creation);
  });
  expect_target_logits(ramp(5 * kV));
}

TEST_F(Storage, AnyChunkingAndCompactStorageAreRead) {
  change([&](RawFile& f) {
    f.floats(data, {5, kV}, ramp(5 * kV), H5T_IEEE_F32LE, Chunked({4, 5}));
  });
  expect_target_logits(ramp(5 * kV));
  change([&](RawFile& f) {
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_layout(creation, H5D_COMPACT);
    f.floats(data, {5, kV}, ramp(5 * kV), H5T_IEEE_F32LE, creation);
    H5Pclose(creation);
  });
  expect_target_logits(ramp(5 * kV));
}

TEST_F(Storage, FilesInTheLatestLayoutAreRead) {
  // The newer chunk indexes: single chunk, fixed array, extensible array.
  const std::string latest = dir.file("latest.h5");
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
  const hid_t to = H5Fcreate(latest.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access);
  {
    RawFile from = RawFile::edit(path);
    from.floats(data, {5, kV}, ramp(5 * kV), H5T_IEEE_F32LE, Chunked({5, kV}));
    const Chunked deflated({1, kP, kV});
    H5Pset_deflate(deflated, 1);
    from.floats("/anchors/draft_logits", {5, kP, kV}, ramp(5 * kP * kV), H5T_IEEE_F32LE, deflated);
    ASSERT_GE(H5Ocopy(from.id(), "/anchors", to, "/anchors", H5P_DEFAULT, H5P_DEFAULT), 0);
  }
  H5Fclose(to);
  H5Pclose(access);
  {
    RawFile file = RawFile::edit(latest);
    file.text("format", "dspark-trace");
    file.integer("format_version", 1);
    file.text("kind", "anchors");
    file.integer("vocab_size", kV);
    file.integer("block_size", kP);
    file.real("temperature", 1);
  }
  path = latest;
  expect_target_logits(ramp(5 * kV));
}

TEST_F(Storage, OtherFiltersAreRefusedByNumber) {
  change([&](RawFile& f) {
    const Chunked creation({5, kV});
    H5Pset_nbit(creation);
    f.floats(data, {5, kV}, ramp(5 * kV), H5T_IEEE_F32LE, creation);
  });
  expect_refused(path, {data, "filter 5", "deflate, shuffle and fletcher32"});
}

TEST_F(Storage, AFilterThatIsNotThereIsRefusedByNumber) {
  H5Z_class2_t filter{};
  filter.version = H5Z_CLASS_T_VERS;
  filter.id = 32123;
  filter.encoder_present = filter.decoder_present = 1;
  filter.name = "test filter";
  filter.filter = [](unsigned, std::size_t, const unsigned*, std::size_t bytes, std::size_t*,
                     void**) -> std::size_t { return bytes; };
  ASSERT_GE(H5Zregister(&filter), 0);
  change([&](RawFile& f) {
    const Chunked creation({5, kV});
    H5Pset_filter(creation, filter.id, H5Z_FLAG_MANDATORY, 0, nullptr);
    f.floats(data, {5, kV}, ramp(5 * kV), H5T_IEEE_F32LE, creation);
  });
  H5Zunregister(filter.id);
  expect_refused(path, {data, "filter 32123", "test filter"});
}

TEST_F(Storage, DeflateInsideDeflateIsRefused) {
  change([&](RawFile& f) {
    const Chunked creation({5, kV});
    H5Pset_deflate(creation, 9);
    H5Pset_deflate(creation, 9);
    f.floats(data, {5, kV}, ramp(5 * kV), H5T_IEEE_F32LE, creation);
  });
  expect_refused(path, {data, "deflate more than once"});
}

// --- sizes ---

TEST_F(Storage, AChunkAboveOneGibibyteIsRefused) {
  const auto with_chunk = [&](hsize_t width) {
    change([&](RawFile& f) {
      f.remove(data);
      const hsize_t dims[2] = {5, kV};
      const hsize_t most[2] = {H5S_UNLIMITED, H5S_UNLIMITED};
      const hid_t space = H5Screate_simple(2, dims, most);
      const hid_t made = H5Dcreate2(f.id(), data.c_str(), H5T_IEEE_F32LE, space, H5P_DEFAULT,
                                    Chunked({1, width}), H5P_DEFAULT);
      ASSERT_GE(made, 0);
      H5Dclose(made);
      H5Sclose(space);
    });
  };
  with_chunk(1 << 28);
  EXPECT_NO_THROW((void)TraceFile::open(path)) << "1 GiB is allowed";
  with_chunk((1 << 28) + 1);
  expect_refused(path, {data, "chunks of more than"});
}

TEST_F(Storage, HugeShapesDoNotOverflow) {
  for (const Dims& dims : {Dims{hsize_t{1} << 40, hsize_t{1} << 21}, Dims{hsize_t{1} << 61, 1},
                           Dims{hsize_t{1} << 61, 0}}) {
    change([&](RawFile& f) {
      f.dataset(data, H5T_STD_I8LE, dims, H5T_NATIVE_INT8, nullptr, Chunked({1, 1}));
    });
    expect_refused(path, {data, "impossible shape"});
  }
}

TEST_F(Storage, DataThatWasMostlyNeverWrittenIsRefused) {
  // A file of a few kilobytes that declares a terabyte of tokens, none written.
  constexpr hsize_t kMany = hsize_t{1} << 38;
  change([&](RawFile& f) {
    f.dataset("/anchors/tokens", H5T_STD_I32LE, {kMany}, H5T_NATIVE_INT32, nullptr,
              Chunked({1 << 20}));
    f.dataset("/anchors/draft_logits", H5T_IEEE_F32LE, {kMany, kP, kV}, H5T_NATIVE_FLOAT, nullptr,
              Chunked({1 << 10, kP, kV}));
    f.dataset(data, H5T_IEEE_F32LE, {kMany, kV}, H5T_NATIVE_FLOAT, nullptr, Chunked({1 << 10, kV}));
  });
  expect_refused(path, {"/anchors/tokens", "1.1 TB", "never written"});
}

TEST_F(Storage, HeldDataIsBoundedByTheBudgetAndNotByWhatIsDeclared) {
  constexpr hsize_t kMany = hsize_t{1} << 20;  // few enough to be allowed, and none written
  change([&](RawFile& f) {
    f.dataset("/anchors/tokens", H5T_STD_I32LE, {kMany}, H5T_NATIVE_INT32, nullptr,
              Chunked({1 << 20}));
    f.dataset("/anchors/draft_logits", H5T_IEEE_F32LE, {kMany, kP, kV}, H5T_NATIVE_FLOAT, nullptr,
              Chunked({1 << 10, kP, kV}));
    f.dataset(data, H5T_IEEE_F32LE, {kMany, kV}, H5T_NATIVE_FLOAT, nullptr, Chunked({1 << 10, kV}));
  });
  const auto trace = TraceFile::open(path);
  expect_trace_error({"/anchors", "memory", "budget"},
                     [&] { (void)trace->read_anchor_tokens(1 << 20); });
}

TEST_F(Storage, UnwrittenRowsReadAsTheirFillValue) {
  const float fill = -2.5f;
  for (const bool chunked : {true, false}) {
    change([&](RawFile& f) {
      const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
      const hsize_t chunk[2] = {1, kV};
      if (chunked) H5Pset_chunk(creation, 2, chunk);
      H5Pset_fill_value(creation, H5T_NATIVE_FLOAT, &fill);
      f.dataset(data, H5T_IEEE_F32LE, {5, kV}, H5T_NATIVE_FLOAT, nullptr, creation);
      H5Pclose(creation);
    });
    expect_target_logits(std::vector<float>(5 * kV, fill));
  }
}

// Replaces every `from` in the file by `to`; returns how many there were.
int patch(const std::string& path, std::uint64_t from, std::uint64_t to) {
  std::string bytes;
  {
    std::ifstream in(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  int patched = 0;
  for (std::size_t i = 0; i + 8 <= bytes.size(); ++i) {
    if (std::memcmp(&bytes[i], &from, 8) != 0) continue;
    std::memcpy(&bytes[i], &to, 8);
    ++patched;
  }
  std::ofstream(path, std::ios::binary) << bytes;
  return patched;
}

TEST_F(Storage, AContiguousDatasetLargerThanTheFileIsRefused) {
  constexpr std::uint64_t kOdd = 5003;
  constexpr std::uint64_t kClaimed = std::uint64_t{5003} << 20;
  change([](RawFile& f) {
    f.integers("/anchors/tokens", {kOdd}, std::vector<std::int64_t>(kOdd, 1), H5T_STD_I8LE);
  });
  // Rows and bytes alike, so that the shape and the layout still agree.
  ASSERT_GE(patch(path, kOdd, kClaimed), 2);
  expect_refused(path, {"/anchors/tokens"});
}

TEST_F(Storage, AShapeLargerThanItsContiguousStorageIsRefused) {
  constexpr std::uint64_t kOdd = 5003;
  change([](RawFile& f) {
    f.integers("/anchors/tokens", {kOdd}, std::vector<std::int64_t>(kOdd, 1), H5T_STD_I16LE);
  });
  ASSERT_GE(patch(path, kOdd, kOdd << 20), 1);
  expect_refused(path, {"/anchors/tokens"});
}

// --- damage ---

class Damage : public Storage {
 protected:
  // Flips a byte in the middle of the first chunk of `data`.
  void damage(const std::function<void(hid_t)>& filters) {
    haddr_t offset = 0;
    hsize_t size = 0;
    change([&](RawFile& f) {
      const Chunked creation({5, kV});
      filters(creation);
      f.floats(data, {5, kV}, ramp(5 * kV), H5T_IEEE_F32LE, creation);
      const hid_t opened = H5Dopen2(f.id(), data.c_str(), H5P_DEFAULT);
      const hid_t space = H5Dget_space(opened);
      H5Dflush(opened);
      ASSERT_GE(H5Dget_chunk_info(opened, space, 0, nullptr, nullptr, &offset, &size), 0);
      H5Sclose(space);
      H5Dclose(opened);
    });
    ASSERT_GT(size, 8u);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>(offset + size / 2);
    file.seekg(at);
    const char byte = static_cast<char>(file.get() ^ 0x5A);
    file.seekp(at);
    file.put(byte);
  }
};

TEST_F(Damage, ACheckSumThatDoesNotMatchIsAnError) {
  damage([](hid_t creation) { H5Pset_fletcher32(creation); });
  const auto trace = TraceFile::open(path);
  std::vector<float> rows(5 * kV);
  expect_trace_error({data, "rows 0 to 4", "damaged"},
                     [&] { trace->read(RowData::target_logits, 0, 5, rows.data()); });
}

TEST_F(Damage, AStreamThatCannotBeInflatedIsAnError) {
  damage([](hid_t creation) { H5Pset_deflate(creation, 6); });
  const auto trace = TraceFile::open(path);
  std::vector<float> rows(5 * kV);
  expect_trace_error({data, "damaged"},
                     [&] { trace->read(RowData::target_logits, 0, 5, rows.data()); });
}

TEST_F(Storage, NoDamagedByteEscapesAsAnythingButAnError) {
  // Bytes all over a small trace, one at a time: it opens and reads, or throws Error(trace).
  std::string good;
  {
    std::ifstream in(path, std::ios::binary);
    good.assign(std::istreambuf_iterator<char>(in), {});
  }
#if defined(__SANITIZE_ADDRESS__)
  const __lsan::ScopedDisabler hdf5_leaks_where_it_refuses;
#endif
  const std::string bad_path = dir.file("bad.h5");
  int refused = 0;
  for (std::size_t i = 0; i < good.size(); i += 61) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0xFF);
    std::ofstream(bad_path, std::ios::binary) << bad;
    try {
      const auto trace = TraceFile::open(bad_path);
      std::vector<float> rows(5 * kP * kV);
      trace->read(RowData::target_logits, 0, 5, rows.data());
      (void)trace->read_anchor_tokens(1 << 20);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::trace) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 10);
}

}  // namespace
}  // namespace dspark::test
