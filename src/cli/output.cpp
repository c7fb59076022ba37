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

#include "cli/process.h"
#include "support/error.h"

namespace dspark {
namespace {

std::optional<struct stat> file_status(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return std::nullopt;
  return status;
}

Error cannot_create(const std::string& path, int error) {
  return usage_error("-o " + path, std::string("cannot be created: ") + std::strerror(error),
                     "give a path in an existing folder that you may write to");
}

Error cannot_write(const std::string& where, int error) {
  return internal_error(where, std::string("writing failed: ") + std::strerror(error),
                        "nothing was written; free some space or choose another place");
}

// Closes on every way out; close() is called by hand where its error matters.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] int close() {
    const int result = ::close(number_);
    number_ = -1;
    return result;
  }

 private:
  int number_;
};

// Returns 0 or the error number.
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// Creates a new file in the folder of `target`, registered for removal by a signal. Returns its
// descriptor, or -1 with errno.
int create_temporary(const std::string& target) {
  TemporaryFiles& temporary = temporary_files();
  const std::lock_guard lock(temporary.mutex);
  constexpr int kAttempts = 100;  // names left behind by killed processes of the same id
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    // A short name of its own: the target's name may be as long as names can be.
    const std::string path = folder_of(target) + "/.dspark-replay." + std::to_string(getpid()) +
                             "." + std::to_string(attempt);
    const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) {
      temporary.path = path;
      return descriptor;
    }
    if (errno != EEXIST) return -1;
  }
  return -1;
}

void remove_temporary() {
  TemporaryFiles& temporary = temporary_files();
  const std::lock_guard lock(temporary.mutex);
  if (!temporary.path.empty()) unlink(temporary.path.c_str());
  temporary.path.clear();
}

// Moves the temporary file to `target`. Returns 0 or the error number.
int rename_temporary(const std::string& target) {
  TemporaryFiles& temporary = temporary_files();
  const std::lock_guard lock(temporary.mutex);
  if (rename(temporary.path.c_str(), target.c_str()) != 0) return errno;
  temporary.path.clear();
  return 0;
}

// Makes the rename durable where the file system can; the data itself is on the disk already.
void flush_folder(const std::string& target) {
  const Descriptor folder(open(folder_of(target).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.number() >= 0) [[maybe_unused]]
    const int ignored = fsync(folder.number());
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

Output::Output(const std::string& path) : given_(path), target_(path) {
  if (path == "-") {
    if ((fcntl(STDOUT_FILENO, F_GETFL) & O_ACCMODE) == O_RDONLY) {
      throw internal_error("standard output", "it is closed", "write to a file with -o FILE");
    }
    return;
  }
  if (path.empty())
    throw usage_error("-o", "the path is empty", "give a file, or - for standard output");

  if (const auto status = file_status(path)) {
    if (S_ISDIR(status->st_mode)) throw cannot_create(path, EISDIR);
    if (access(path.c_str(), W_OK) != 0) throw cannot_create(path, errno);
    target_ = resolve_links(path);
    kind_ = S_ISREG(status->st_mode) ? Kind::regular_file : Kind::device;
  } else if (const int error = errno; is_dangling_link(path)) {
    throw cannot_create(path, ENOENT);
  } else if (error != ENOENT) {  // a name that is too long, a file in the place of a folder
    throw cannot_create(path, error);
  } else {
    kind_ = Kind::regular_file;
    if (path.back() == '/') throw cannot_create(path, EISDIR);
  }
  if (kind_ == Kind::regular_file) {
    const Descriptor probe(create_temporary(target_));
    if (probe.number() < 0) throw cannot_create(path, errno);
    remove_temporary();
  }
}

void Output::refuse_inputs(const std::vector<std::string>& inputs) const {
  if (kind_ == Kind::standard_output) return;
  for (const std::string& input : inputs) {
    if (same_file(input, target_)) {
      throw usage_error("-o " + given_, "this is the input file " + input,
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
      write_file(text);
      return;
  }
}

void Output::write_file(std::string_view text) const {
  Descriptor file(create_temporary(target_));
  if (file.number() < 0) throw cannot_write(given_, errno);
  int error = write_all(file.number(), text);
  if (const auto existing = file_status(target_); error == 0 && existing) {
    if (fchmod(file.number(), existing->st_mode & 07777) != 0) error = errno;
  }
  if (error == 0 && fsync(file.number()) != 0) error = errno;
  if (file.close() != 0 && error == 0) error = errno;
  if (error == 0) error = rename_temporary(target_);
  if (error != 0) {
    remove_temporary();
    throw cannot_write(given_, error);
  }
  flush_folder(target_);
}

bool same_file(const std::string& a, const std::string& b) {
  const auto first = file_status(a);
  const auto second = file_status(b);
  return first && second && first->st_dev == second->st_dev && first->st_ino == second->st_ino;
}

}  // namespace dspark
