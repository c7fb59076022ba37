// The folder of an export: checked before any work, its files whole or not at all.
#include "cli/export_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "support/error.h"
#include "tests/support/temporary_folder.h"

namespace dspark::test {
namespace {

const std::vector<ExportFile> kFiles = {{"README.md", "# page\n"}, {"edge_llm.sh", "A='b'\n"}};

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void put(const std::string& path, const std::string& content) { std::ofstream(path) << content; }

template <class Work>
void expect_failure(const Work& work, ExitCode code, const std::string& part) {
  try {
    work();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), testing::HasSubstr(part));
  }
}

/// Nothing in this process can write more than some bytes to a file.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : before_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &limit_);
    rlimit small = limit_;
    small.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &limit_);
    signal(SIGXFSZ, before_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit limit_{};
  void (*before_)(int);
};

const std::string kTitle = std::string(kExportTitle) + "\n";

class ExportFolderTest : public testing::Test {
 protected:
  TemporaryFolder parent_;
  std::string path_ = parent_.file("out");
  [[nodiscard]] std::string inside(const std::string& name) const { return path_ + "/" + name; }
};

TEST_F(ExportFolderTest, IsCreatedWithTheFirstFileAndNotBefore) {
  const ExportFolder folder(path_);
  EXPECT_TRUE(parent_.names().empty());
  folder.write(kFiles);
  EXPECT_EQ(content_of(inside("README.md")), "# page\n");
  EXPECT_EQ(content_of(inside("edge_llm.sh")), "A='b'\n");
}

TEST_F(ExportFolderTest, ReplacesItsFilesAndLeavesOthersAlone) {
  std::filesystem::create_directory(path_);
  put(inside("README.md"), kTitle + "old and longer than the new one");
  put(inside("sglang_cost.json"), "of an earlier export");
  put(inside("mine.txt"), "mine");
  ExportFolder(path_ + "/").write(kFiles);
  EXPECT_EQ(content_of(inside("README.md")), "# page\n");
  EXPECT_EQ(content_of(inside("mine.txt")), "mine");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path_), {}), 3);
}

TEST_F(ExportFolderTest, RefusesAFolderWithFilesThatNoExportWrote) {
  std::filesystem::create_directory(path_);
  for (const char* name : {"README.md", "sglang_cost.json"}) {
    put(inside(name), "mine");
    expect_failure([&] { ExportFolder folder(path_); }, ExitCode::usage,
                   std::string(name) + ", which no export wrote");
    std::filesystem::remove(inside(name));
  }
}

TEST_F(ExportFolderTest, RefusesAnOutputInside) {
  const ExportFolder folder(path_);
  for (const std::string& output : {inside("x.json"), path_, path_ + "/a/../y.csv"}) {
    expect_failure([&] { folder.refuse_output(output); }, ExitCode::usage, "is in that folder");
  }
  EXPECT_NO_THROW(folder.refuse_output("-"));
  EXPECT_NO_THROW(folder.refuse_output(parent_.file("out.json")));
}

TEST_F(ExportFolderTest, RefusesWhatIsNoFolderToWriteTo) {
  const std::string file = parent_.file("file");
  put(file, "text");
  const auto refused = [](const std::string& path, const std::string& part) {
    expect_failure([&] { ExportFolder folder(path); }, ExitCode::usage, part);
  };
  refused("", "the path is empty");
  refused(file, "Not a directory");
  refused(file + "/out", "Not a directory");
  refused(parent_.file("none/out"), "No such file");
  refused("/proc", "cannot be written to");
  EXPECT_EQ(content_of(file), "text");
  EXPECT_THAT(parent_.names(), testing::ElementsAre("file"));
}

TEST_F(ExportFolderTest, RefusesAFolderInThePlaceOfAFile) {
  std::filesystem::create_directories(inside("sglang.sh"));
  put(inside("README.md"), kTitle);
  expect_failure([&] { ExportFolder folder(path_); }, ExitCode::usage, "sglang.sh is no file");
}

TEST_F(ExportFolderTest, RefusesToOverwriteAnInput) {
  std::filesystem::create_directory(path_);
  put(inside("README.md"), kTitle);
  put(inside("trtllm_cost.json"), "{}");
  put(inside("policy.yaml"), "version: 1");
  const std::string link = parent_.file("link.json");
  std::filesystem::create_symlink(inside("trtllm_cost.json"), link);
  const ExportFolder folder(path_);
  for (const std::string& input : {inside("trtllm_cost.json"), link}) {
    expect_failure(
        [&] {
          folder.refuse_inputs({"-", inside("policy.yaml"), input});
        },
        ExitCode::usage, "it would overwrite the input file " + input);
  }
  EXPECT_NO_THROW(folder.refuse_inputs({"-", inside("policy.yaml"), inside("none")}));
  EXPECT_NO_THROW(ExportFolder(parent_.file("new")).refuse_inputs({link}));
}

TEST_F(ExportFolderTest, AFullDiskLeavesAnOldFileAsItWasAndNoPartOfANewOne) {
  std::filesystem::create_directory(path_);
  put(inside("README.md"), kTitle);
  put(inside("edge_llm.sh"), "old");
  const ExportFolder folder(path_);
  const FullDisk full(16);
  expect_failure(
      [&] {
        folder.write({{"README.md", "short"}, {"edge_llm.sh", std::string(64, 'x')}, kFiles[0]});
      },
      ExitCode::internal, "edge_llm.sh: writing failed: File too large");
  EXPECT_EQ(content_of(inside("README.md")), "short");
  EXPECT_EQ(content_of(inside("edge_llm.sh")), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path_), {}), 2);
}

}  // namespace
}  // namespace dspark::test
