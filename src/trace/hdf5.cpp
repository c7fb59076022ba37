#include "trace/hdf5.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <deque>
#include <string_view>

#include "trace/located_error.h"

namespace dspark::h5 {
namespace {

constexpr int kMaxSoftLinks = 32;
constexpr std::size_t kMaxText = 64 * 1024;

const char* describe(H5T_class_t type) {
  switch (type) {
    case H5T_INTEGER:
      return "an integer";
    case H5T_FLOAT:
      return "a float";
    case H5T_STRING:
      return "a string";
    case H5T_ENUM:
      return "an enumeration (booleans are stored as one)";
    default:
      return "of another type";
  }
}

// Components of an HDF5 path; empty ones and "." mean nothing, and ".." is a name like any other.
std::deque<std::string> split(std::string_view path) {
  std::deque<std::string> parts;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, end);
    if (!part.empty() && part != ".") parts.emplace_back(part);
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return parts;
}

struct Innermost {
  std::string text;
};

herr_t keep_innermost(unsigned n, const H5E_error2_t* error, void* data) {
  if (n == 0 && error->desc != nullptr) static_cast<Innermost*>(data)->text = error->desc;
  return 0;
}

}  // namespace

void initialise() {
  // Everything is closed by its owner. What cannot be (a file on a full disk) must not be tried
  // again at the end of the program, where HDF5 crashes on it.
  H5dont_atexit();
  H5open();
  quiet_this_thread();
  H5PLset_loading_state(0);
}

void quiet_this_thread() { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

std::string last_message() {
  Innermost innermost;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &innermost);
  return innermost.text.empty() ? std::string() : " (HDF5: " + innermost.text + ")";
}

Handle float_type(hid_t like, std::size_t exponent, std::size_t mantissa) {
  Handle type(H5Tcopy(like), H5Tclose);
  const std::size_t bits = exponent + mantissa + 1;
  if (!type || H5Tset_fields(type.get(), bits - 1, mantissa, exponent, 0, mantissa) < 0 ||
      H5Tset_size(type.get(), bits / 8) < 0 ||
      H5Tset_ebias(type.get(), (std::size_t{1} << (exponent - 1)) - 1) < 0) {
    throw internal_error("HDF5", "cannot make a float type" + last_message());
  }
  return type;
}

// --- attributes ---

Attributes::Attributes(std::string file, std::string object_path, hid_t object)
    : file_(std::move(file)), object_path_(std::move(object_path)), object_(object) {}

void Attributes::fail(const std::string& name, const std::string& problem,
                      const std::string& remedy) const {
  const std::string attribute = "attribute '" + name + "'";
  dspark::fail(file_, object_path_.empty() ? attribute : object_path_ + ", " + attribute, problem,
               remedy);
}

void Attributes::fail_missing(const std::string& name, const char* type) const {
  fail(name, "is missing", fmt::format("store it as {}", type));
}

Handle Attributes::open(const std::string& name) const {
  const htri_t exists = H5Aexists(object_, name.c_str());
  if (exists == 0) return {};
  if (exists < 0) fail(name, "cannot be looked up" + last_message());
  Handle attribute(H5Aopen(object_, name.c_str(), H5P_DEFAULT), H5Aclose);
  if (!attribute) fail(name, "cannot be opened" + last_message());
  const Handle space(H5Aget_space(attribute.get()), H5Sclose);
  if (!space || H5Sget_simple_extent_npoints(space.get()) != 1) {
    fail(name, "does not hold exactly one value", "store it as a scalar");
  }
  return attribute;
}

Handle Attributes::open_type(const std::string& name, hid_t attribute) const {
  Handle type(H5Aget_type(attribute), H5Tclose);
  if (!type) fail(name, "has a type that cannot be read" + last_message());
  return type;
}

std::optional<std::int64_t> Attributes::integer(const std::string& name) const {
  const Handle attribute = open(name);
  if (!attribute) return std::nullopt;
  const Handle type = open_type(name, attribute.get());
  const H5T_class_t kind = H5Tget_class(type.get());
  if (kind != H5T_INTEGER) {
    fail(name, fmt::format("is {}, not an integer", describe(kind)), "store it as an integer");
  }
  // Unsigned first, so that a value that does not fit is seen and not clamped.
  std::uint64_t wide = 0;
  std::int64_t value = 0;
  if (H5Tget_size(type.get()) > sizeof value ||
      H5Aread(attribute.get(), H5T_NATIVE_INT64, &value) < 0 ||
      H5Aread(attribute.get(), H5T_NATIVE_UINT64, &wide) < 0) {
    fail(name, "cannot be read" + last_message());
  }
  if (value >= 0 && wide != static_cast<std::uint64_t>(value)) {
    fail(name, fmt::format("is {}, too large for a signed 64-bit integer", wide));
  }
  return value;
}

std::optional<double> Attributes::real(const std::string& name) const {
  const Handle attribute = open(name);
  if (!attribute) return std::nullopt;
  const Handle type = open_type(name, attribute.get());
  const H5T_class_t kind = H5Tget_class(type.get());
  if (kind != H5T_INTEGER && kind != H5T_FLOAT) {
    fail(name, fmt::format("is {}, not a number", describe(kind)), "store it as a float");
  }
  double value = 0;
  if (H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, &value) < 0) {
    fail(name, "cannot be read" + last_message());
  }
  // A 32-bit 0.7 is taken as the 0.7 its writer had, not as 0.699999988: texts and comparisons with
  // what people write in policies are in decimal.
  const auto narrow = static_cast<float>(value);
  if (kind == H5T_FLOAT && H5Tget_size(type.get()) <= sizeof narrow && std::isfinite(narrow)) {
    const std::string decimal = fmt::format("{}", narrow);
    std::from_chars(decimal.data(), decimal.data() + decimal.size(), value);
  }
  return value;
}

std::optional<std::string> Attributes::text(const std::string& name) const {
  const Handle attribute = open(name);
  if (!attribute) return std::nullopt;
  const Handle type = open_type(name, attribute.get());
  const H5T_class_t kind = H5Tget_class(type.get());
  if (kind != H5T_STRING) {
    fail(name, fmt::format("is {}, not a string", describe(kind)), "store it as a string");
  }
  const Handle memory(H5Tcopy(type.get()), H5Tclose);
  std::string value;
  if (H5Tis_variable_str(type.get()) > 0) {
    char* characters = nullptr;
    if (H5Aread(attribute.get(), memory.get(), &characters) < 0) {
      fail(name, "cannot be read" + last_message());
    }
    if (characters != nullptr) {
      value.assign(characters, strnlen(characters, kMaxText + 1));
      H5free_memory(characters);
    }
  } else {
    const std::size_t size = H5Tget_size(type.get());
    if (size <= kMaxText) {
      value.resize(size);
      if (H5Aread(attribute.get(), memory.get(), value.data()) < 0) {
        fail(name, "cannot be read" + last_message());
      }
      const bool padded_with_spaces = H5Tget_strpad(type.get()) == H5T_STR_SPACEPAD;
      value.resize(std::min(value.find('\0'), value.size()));
      if (padded_with_spaces) value.resize(value.find_last_not_of(' ') + 1);
    } else {
      value.resize(kMaxText + 1);
    }
  }
  if (value.size() > kMaxText) {
    fail(name, fmt::format("is longer than {} bytes", kMaxText), "shorten it");
  }
  return value;
}

std::int64_t Attributes::require_integer(const std::string& name) const {
  const auto value = integer(name);
  if (!value) fail_missing(name, "an integer");
  return *value;
}

double Attributes::require_real(const std::string& name) const {
  const auto value = real(name);
  if (!value) fail_missing(name, "a float");
  return *value;
}

std::string Attributes::require_text(const std::string& name) const {
  const auto value = text(name);
  if (!value) fail_missing(name, "a string");
  return *value;
}

// --- files ---

File File::open(const std::string& path) {
  initialise();
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    const int error = errno;
    if (error == ENOENT) fail(path, "", "no such file", "check the path");
    fail(path, "", fmt::format("cannot be opened: {}", std::strerror(error)), "check the path");
  }
  if (S_ISDIR(status.st_mode)) fail(path, "", "is a directory", "give the trace file itself");
  if (!S_ISREG(status.st_mode)) {
    fail(path, "", "is not a regular file", "copy the trace to a file");
  }
  if (::access(path.c_str(), R_OK) != 0) {
    fail(path, "", fmt::format("cannot be read: {}", std::strerror(errno)),
         "check its permissions");
  }
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // Nothing here writes, and locks fail on some network file systems. The environment variable
  // HDF5_USE_FILE_LOCKING still has the last word. The driver is set so that the environment cannot
  // change it.
  if (!access || H5Pset_fapl_sec2(access.get()) < 0 ||
      H5Pset_file_locking(access.get(), false, true) < 0 ||
      H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG) < 0) {
    throw internal_error(path, "HDF5 cannot be set up" + last_message());
  }
  File file;
  file.name_ = path;
  file.bytes_ = static_cast<std::uint64_t>(status.st_size);
  const htri_t is_hdf5 = H5Fis_hdf5(path.c_str());
  if (is_hdf5 == 0) fail(path, "", "is not an HDF5 file", "give a trace recorded as HDF5");
  file.id_ = Handle(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  if (!file.id_) {
    fail(path, "",
         "cannot be opened as HDF5; it is truncated, damaged or still being written" +
             last_message(),
         "copy or record it again");
  }
  return file;
}

int File::descriptor() const {
  void* handle = nullptr;
  if (H5Fget_vfd_handle(id_.get(), H5P_DEFAULT, &handle) < 0 || handle == nullptr) {
    throw internal_error(name_, "HDF5 does not give its descriptor" + last_message());
  }
  return *static_cast<int*>(handle);  // open() chose the driver that has one
}

std::optional<File::Link> File::find(const std::string& path) const {
  std::deque<std::string> parts = split(path);
  Handle group(H5Gopen2(id_.get(), "/", H5P_DEFAULT), H5Gclose);
  if (!group) fail(name_, path, "the root group cannot be opened" + last_message());
  std::size_t of_links = 0;  // how many of the parts come from soft links
  int soft_links = 0;
  while (!parts.empty()) {
    const std::string name = parts.front();
    parts.pop_front();
    const bool of_link = of_links > 0;
    if (of_link) --of_links;
    const htri_t exists = H5Lexists(group.get(), name.c_str(), H5P_DEFAULT);
    if (exists < 0) fail(name_, path, "cannot be looked up" + last_message());
    if (exists == 0) {
      if (of_link) fail(name_, path, "is a soft link that leads nowhere", "repair the link");
      return std::nullopt;
    }
    H5L_info_t link;
    if (H5Lget_info(group.get(), name.c_str(), &link, H5P_DEFAULT) < 0) {
      fail(name_, path, "has a link that cannot be read" + last_message());
    }
    if (link.type == H5L_TYPE_SOFT) {
      if (++soft_links > kMaxSoftLinks) {
        fail(name_, path, fmt::format("is reached through more than {} soft links", kMaxSoftLinks),
             "link to the data itself");
      }
      if (link.u.val_size > kMaxText) fail(name_, path, "has a soft link that is too long");
      std::string target(link.u.val_size, '\0');
      if (H5Lget_val(group.get(), name.c_str(), target.data(), target.size(), H5P_DEFAULT) < 0) {
        fail(name_, path, "has a soft link that cannot be read" + last_message());
      }
      target.resize(std::min(target.find('\0'), target.size()));
      std::deque<std::string> head = split(target);
      if (head.empty() && parts.empty()) fail(name_, path, "is a soft link to the group it is in");
      parts.insert(parts.begin(), head.begin(), head.end());
      of_links += head.size();
      if (!target.empty() && target.front() == '/') {
        group = Handle(H5Gopen2(id_.get(), "/", H5P_DEFAULT), H5Gclose);
      }
      continue;
    }
    if (link.type != H5L_TYPE_HARD) {
      const bool external = link.type == H5L_TYPE_EXTERNAL;
      fail(name_, path,
           external ? "is an external link; those are not followed"
                    : "is a user-defined link; those are not followed",
           "store the data in the trace itself");
    }
    if (parts.empty()) return Link{std::move(group), name};
    Handle next(H5Oopen(group.get(), name.c_str(), H5P_DEFAULT), H5Oclose);
    if (!next) fail(name_, path, "cannot be opened" + last_message());
    if (H5Iget_type(next.get()) != H5I_GROUP) {
      fail(name_, path, fmt::format("'{}' on the way to it is not a group", name));
    }
    group = std::move(next);
  }
  return std::nullopt;
}

Handle File::find_group(const std::string& path) const {
  const auto link = find(path);
  if (!link) return {};
  Handle group(H5Oopen(link->parent.get(), link->name.c_str(), H5P_DEFAULT), H5Oclose);
  if (!group) fail(name_, path, "cannot be opened" + last_message());
  if (H5Iget_type(group.get()) != H5I_GROUP) fail(name_, path, "is not a group");
  return group;
}

}  // namespace dspark::h5
