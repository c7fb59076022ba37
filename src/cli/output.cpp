#include "cli/output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/whole_file.h"
#include "support/error.h"

namespace dspark {
namespace {

std::optional<struct stat> file_status(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return std::nullopt;
  return status;
}

Error cannot_create(const std::string& what, int error) {
  return usage_error(what, std::string("cannot be created: ") + std::strerror(error),
                     "give a path in an existing folder that you may write to");
}

Error cannot_write(const std::string& where, int error) {
  return internal_error(where, std::string("writing failed: ") + std::strerror(error),
                        "free some space or choose another place");
}

std::string resolve_links(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> resolved(realpath(path.c_str(), nullptr), std::free);
  return resolved ? std::string(resolved.get()) : path;
}

bool is_dangling_link(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode);
}

}  // namespace

Output::Output(const std::string& path, const std::string& flag)
    : flag_(flag), given_(path), target_(path) {
  if (path == "-") {
    if ((fcntl(STDOUT_FILENO, F_GETFL) & O_ACCMODE) == O_RDONLY) {
      throw internal_error("standard output", "it is closed", "write to a file with -o FILE");
    }
    return;
  }
  if (path.empty())
    throw usage_error(flag, "the path is empty", "give a file, or - for standard output");
  const std::string what = flag + " " + path;

  if (const auto status = file_status(path)) {
    if (S_ISDIR(status->st_mode)) throw cannot_create(what, EISDIR);
    if (access(path.c_str(), W_OK) != 0) throw cannot_create(what, errno);
    target_ = resolve_links(path);
    kind_ = S_ISREG(status->st_mode) ? Kind::regular_file : Kind::device;
  } else if (const int error = errno; is_dangling_link(path)) {
    throw cannot_create(what, ENOENT);
  } else if (error != ENOENT) {  // a name that is too long, a file in the place of a folder
    throw cannot_create(what, error);
  } else {
    kind_ = Kind::regular_file;
    if (path.back() == '/') throw cannot_create(what, EISDIR);
  }
  if (kind_ == Kind::regular_file) {
    if (const int error = probe_whole_file(target_); error != 0) throw cannot_create(what, error);
  }
}

void Output::refuse_inputs(const std::vector<std::string>& inputs) const {
  if (kind_ == Kind::standard_output) return;
  for (const std::string& input : inputs) {
    if (same_file(input, target_)) {
      throw usage_error(flag_ + " " + given_, "this is the input file " + input,
                        "give another path; inputs are never overwritten");
    }
  }
}

void Output::write(std::string_view text) const {
  switch (kind_) {
    case Kind::standard_output: {
      const int error = write_all(STDOUT_FILENO, text);
      if (error == EPIPE) throw ReaderGone{};
      if (error != 0) throw cannot_write("standard output", error);
      return;
    }
    case Kind::device: {
      Descriptor device(open(target_.c_str(), O_WRONLY | O_CLOEXEC));
      const int error = device.number() < 0 ? errno : write_all(device.number(), text);
      if (error != 0) throw cannot_write(given_, error);
      if (device.close() != 0) throw cannot_write(given_, errno);
      return;
    }
    case Kind::regular_file:
      if (const int error = write_whole_file(target_, text); error != 0) {
        throw cannot_write(given_, error);
      }
      return;
  }
}

bool same_file(const std::string& a, const std::string& b) {
  const auto first = file_status(a);
  const auto second = file_status(b);
  return first && second && first->st_dev == second->st_dev && first->st_ino == second->st_ino;
}

bool same_destination(const std::string& a, const std::string& b) {
  if (same_file(a, b)) return true;
  const std::filesystem::path first(a);
  const std::filesystem::path second(b);
  const auto folder_of = [](const std::filesystem::path& path) {
    return path.has_parent_path() ? path.parent_path().string() : std::string(".");
  };
  return first.filename() == second.filename() && same_file(folder_of(first), folder_of(second));
}

Stream as_standard_output(const std::string& path) {
  struct stat open {};
  const auto named = file_status(path);
  if (!named || fstat(STDOUT_FILENO, &open) != 0) return Stream::other;
  if (named->st_dev != open.st_dev || named->st_ino != open.st_ino) return Stream::other;
  if (S_ISREG(open.st_mode)) return Stream::regular_file;
  return S_ISCHR(open.st_mode) ? Stream::terminal_or_device : Stream::pipe_or_socket;
}

}  // namespace dspark
