#include "cli/export_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "cli/output.h"
#include "cli/whole_file.h"
#include "support/error.h"

namespace dspark {
namespace {

constexpr const char* kFlag = "--export";

std::string described(const std::string& path) { return std::string(kFlag) + " " + path; }

Error cannot_use(const std::string& path, const std::string& action, int error) {
  return usage_error(described(path), action + ": " + std::strerror(error),
                     "give a folder, or a new one in an existing folder, that you may write to");
}

std::string file_in(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

// Files in the folder that an export would replace.
std::vector<std::string> replaceable_files(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (is_export_name(entry->path().filename().string())) files.push_back(entry->path().string());
  }
  if (error) throw cannot_use(folder, "cannot be read", error.value());
  return files;
}

bool is_folder(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// True for a folder that an export was written to.
bool is_export(const std::string& folder) {
  std::ifstream readme(file_in(folder, "README.md"));
  std::string title;
  return std::getline(readme, title) && title == kExportTitle;
}

void check_folder(const std::string& path) {
  if (!is_folder(path)) throw cannot_use(path, "cannot be created", ENOTDIR);
  if (const int error = probe_whole_file(file_in(path, "probe")); error != 0) {
    throw cannot_use(path, "cannot be written to", error);
  }
  const std::vector<std::string> files = replaceable_files(path);
  if (!files.empty() && !is_export(path)) {
    throw usage_error(
        described(path),
        "it has " + files.front() + ", which no export wrote and this one would replace",
        "give an empty folder, or a new one");
  }
  for (const std::string& file : files) {
    struct stat status {};
    if (stat(file.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
      throw usage_error(described(path), file + " is no file and stands in the way of one",
                        "move it away, or give another folder");
    }
  }
}

}  // namespace

ExportFolder::ExportFolder(const std::string& path) : path_(path) {
  if (path.empty()) throw usage_error(kFlag, "the path is empty", "give a folder");
  if (mkdir(path.c_str(), 0777) == 0) {
    rmdir(path.c_str());
    return;
  }
  if (errno != EEXIST) throw cannot_use(path, "cannot be created", errno);
  check_folder(path);
}

void ExportFolder::refuse_inputs(const std::vector<std::string>& inputs) const {
  if (!is_folder(path_)) return;
  const std::vector<std::string> files = replaceable_files(path_);
  for (const std::string& input : inputs) {
    for (const std::string& file : files) {
      if (!same_file(input, file)) continue;
      throw usage_error(described(path_), "it would overwrite the input file " + input,
                        "give another folder; inputs are never overwritten");
    }
  }
}

void ExportFolder::refuse_output(const std::string& output) const {
  if (output == "-") return;
  const auto absolute = [](const std::filesystem::path& path) {
    std::error_code ignored;
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path), ignored);
  };
  const std::filesystem::path folder = absolute(path_);
  for (std::filesystem::path at = absolute(output); at != at.root_path(); at = at.parent_path()) {
    if (at != folder && at / "" != folder) continue;
    throw usage_error(described(path_), "--output " + output + " is in that folder",
                      "give a place outside of it");
  }
}

void ExportFolder::write(const std::vector<ExportFile>& files) const {
  const auto cannot_write = [&](const std::string& where, int error) {
    return internal_error(where, std::string("writing failed: ") + std::strerror(error),
                          "this file is not written; free some space or choose another place");
  };
  if (mkdir(path_.c_str(), 0777) != 0 && errno != EEXIST) throw cannot_write(path_, errno);
  for (const ExportFile& file : files) {
    const std::string target = file_in(path_, file.name);
    if (const int error = write_whole_file(target, file.content); error != 0) {
      throw cannot_write(target, error);
    }
  }
  // What an earlier export left would be taken for a part of this one.
  for (const std::string& left : replaceable_files(path_)) {
    const std::string name = std::filesystem::path(left).filename().string();
    const bool is_written = std::any_of(files.begin(), files.end(),
                                        [&](const ExportFile& file) { return file.name == name; });
    if (!is_written && unlink(left.c_str()) != 0) throw cannot_write(left, errno);
  }
}

}  // namespace dspark
