// The README tells the truth: its ```console blocks are run, and what they print must be what is
// shown.
//
// In such a block a line that starts with "$ " is a command, run by the shell in a folder that has
// traces/, configs/ and build/bin/dspark-replay; the lines up to the next command are what it
// prints (standard output and standard error). In a shown line "..." stands for any text: for
// seconds, and for the name of the machine's device. Nothing else may differ.
//
// With DSPARK_REFRESH_README=1 the shown lines are written anew instead (tools/refresh_readme.sh);
// a new line that an old line with "..." stands for keeps that form.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tests/cli/tool.h"

namespace dspark::test {
namespace {

struct Example {
  std::string command;
  std::size_t first_line = 0;  ///< of what is shown, an index into the README's lines
  std::vector<std::string> shown;
};

std::vector<Example> examples_in(const std::vector<std::string>& lines) {
  std::vector<Example> examples;
  bool in_block = false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (line.rfind("```", 0) == 0) {
      in_block = line == "```console";
    } else if (in_block && line.rfind("$ ", 0) == 0) {
      examples.push_back({line.substr(2), i + 1, {}});
    } else if (in_block && !examples.empty()) {
      examples.back().shown.push_back(line);
    }
  }
  return examples;
}

// True if `text` is `pattern`, in which "..." stands for any text.
bool matches(std::string_view pattern, std::string_view text) {
  const std::size_t gap = pattern.find("...");
  if (gap == std::string_view::npos) return pattern == text;
  if (text.substr(0, gap) != pattern.substr(0, gap)) return false;
  const std::string_view rest = pattern.substr(gap + 3);
  for (std::size_t i = gap; i <= text.size(); ++i) {
    if (matches(rest, text.substr(i))) return true;
  }
  return false;
}

// What the README's commands expect around them.
void furnish(const TemporaryFolder& folder) {
  const std::filesystem::path source = DSPARK_SOURCE;
  std::filesystem::create_directory_symlink(source / "traces", folder.file("traces"));
  std::filesystem::create_directory_symlink(source / "configs", folder.file("configs"));
  std::filesystem::create_directories(folder.path() / "build" / "bin");
  std::filesystem::create_symlink(DSPARK_TOOL, folder.file("build/bin/dspark-replay"));
}

std::vector<std::string> run_command(const std::string& command, const TemporaryFolder& folder) {
  Process shell("/bin/sh",
                {.arguments = {"-c", "exec 2>&1\n" + command}, .folder = folder.path().string()});
  return lines_of(shell.finish().out);
}

std::vector<std::string> keep_gaps(std::vector<std::string> printed,
                                   const std::vector<std::string>& shown) {
  for (std::string& line : printed) {
    const auto old = std::find_if(shown.begin(), shown.end(), [&](const std::string& pattern) {
      return pattern.find("...") != std::string::npos && matches(pattern, line);
    });
    if (old != shown.end()) line = *old;
  }
  return printed;
}

void refresh(const std::string& path, std::vector<std::string> lines) {
  const std::vector<Example> examples = examples_in(lines);
  const TemporaryFolder folder;
  furnish(folder);
  std::vector<std::vector<std::string>> printed;
  for (const Example& example : examples) {
    printed.push_back(keep_gaps(run_command(example.command, folder), example.shown));
  }
  for (std::size_t i = examples.size(); i-- > 0;) {  // from the end: earlier indices stay right
    const auto begin = lines.begin() + static_cast<std::ptrdiff_t>(examples[i].first_line);
    const auto at =
        lines.erase(begin, begin + static_cast<std::ptrdiff_t>(examples[i].shown.size()));
    lines.insert(at, printed[i].begin(), printed[i].end());
  }
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  write_file(path, text);
}

TEST(Readme, EveryCommandPrintsWhatIsShown) {
  const std::string path = std::string(DSPARK_SOURCE) + "/README.md";
  const std::vector<std::string> lines = lines_of(read_file(path));
  if (std::getenv("DSPARK_REFRESH_README") != nullptr) {
    refresh(path, lines);
    return;
  }
  const std::vector<Example> examples = examples_in(lines);
  ASSERT_FALSE(examples.empty());
  const TemporaryFolder folder;
  furnish(folder);
  for (const Example& example : examples) {
    SCOPED_TRACE("README.md:" + std::to_string(example.first_line) + ": $ " + example.command);
    const std::vector<std::string> printed = run_command(example.command, folder);
    EXPECT_EQ(printed.size(), example.shown.size()) << "run tools/refresh_readme.sh";
    for (std::size_t i = 0; i < std::min(printed.size(), example.shown.size()); ++i) {
      EXPECT_TRUE(matches(example.shown[i], printed[i]))
          << "shown:   " << example.shown[i] << "\nprinted: " << printed[i];
    }
  }
}

TEST(Readme, TheTwoCommandsExist) {
  const std::string readme = read_file(std::string(DSPARK_SOURCE) + "/README.md");
  for (const std::string script : {"tools/quickstart.sh", "tools/test.sh"}) {
    EXPECT_THAT(readme, testing::HasSubstr("./" + script));
    const auto permissions =
        std::filesystem::status(std::filesystem::path(DSPARK_SOURCE) / script).permissions();
    EXPECT_NE(permissions & std::filesystem::perms::owner_exec, std::filesystem::perms::none)
        << script;
  }
}

TEST(ReadmePatterns, ThreeDotsStandForAnyTextAndNothingElseDoes) {
  EXPECT_TRUE(matches("took ... s on ...", "took 0.4 s on NVIDIA H200"));
  EXPECT_TRUE(matches("...", ""));
  EXPECT_FALSE(matches("took ... s", "took 0.4 ms"));
  EXPECT_FALSE(matches("tau 1.48", "tau 1.49"));
  EXPECT_FALSE(matches("tau 1.48", "tau 1.48 "));
}

}  // namespace
}  // namespace dspark::test
