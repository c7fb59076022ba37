#!/usr/bin/env bash
# What quickstart.sh and test.sh share: packages, configure, build. Sourced, not run.
#
# Environment: BUILD_DIR  build folder (default: build in the repository)
#              CI         set and not "false": warnings are errors

if [[ "${BASH_SOURCE[0]}" == "$0" ]]; then
  echo "tools/setup.sh is sourced by tools/quickstart.sh and tools/test.sh; run one of those" >&2
  exit 2
fi

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
BUILD_DIR="$(realpath -m -- "${BUILD_DIR:-$ROOT/build}")"  # the scripts change folder

PACKAGES=(build-essential cmake ninja-build libfmt-dev libcli11-dev libyaml-cpp-dev libhdf5-dev
  libssl-dev nlohmann-json3-dev librandom123-dev libxxhash-dev libgtest-dev libgmock-dev)

say() { printf '== %s\n' "$*" >&2; }

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

is_installed() {
  [[ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

# install_packages PACKAGE...: installs those that are missing; needs no network where none is.
install_packages() {
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    fail "this is neither Debian nor Ubuntu; install the equivalents of these packages and pass --no-install: $*"
  fi

  local package missing=()
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
  ((${#missing[@]})) || return 0

  local as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null ||
      fail "these packages are missing, and installing them needs root or sudo: ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  # A source that has nothing to do with these packages may fail to update, so installing decides.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2 ||
    say "apt-get update failed; going on with the package lists that are here"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=120 \
    "${missing[@]}" >&2 ||
    fail "apt-get install failed; check the network, or install these packages by hand: ${missing[*]}"
}

in_ci() { [[ -n "${CI:-}" && "${CI}" != false ]]; }

# configure: Release with Ninja, tests included. The log stays in $BUILD_DIR/configure.log.
configure() {
  local werror=OFF
  in_ci && werror=ON
  local program
  for program in cmake ninja c++; do
    command -v "$program" >/dev/null ||
      fail "$program is not installed; leave out --no-install, or install these packages: ${PACKAGES[*]}"
  done
  mkdir -p "$BUILD_DIR" || fail "cannot make $BUILD_DIR; set BUILD_DIR to a folder that can be written to"
  cmake -S "$ROOT" -B "$BUILD_DIR" -G Ninja -DCMAKE_BUILD_TYPE=Release -DDSPARK_WERROR=$werror \
    2>&1 | tee "$BUILD_DIR/configure.log" >&2 ||
    fail "configuring failed; see $BUILD_DIR/configure.log"
  say "building the $(sed -n 's/^-- dspark-replay: //p' "$BUILD_DIR/configure.log")"
}

# build NAME CMAKE_BUILD_ARGUMENT...: with all cores. The log stays in $BUILD_DIR/NAME.log.
build() {
  local name="$1"
  shift
  cmake --build "$BUILD_DIR" --parallel "$(nproc)" "$@" 2>&1 | tee "$BUILD_DIR/$name.log" >&2 ||
    fail "building failed; see $BUILD_DIR/$name.log"
}

# prepare "$0" "$@": --help and --no-install, then the packages the project needs.
prepare() {
  local script="$1" install=yes argument
  shift
  for argument in "$@"; do
    case "$argument" in
      -h | --help)
        # The script's own head comment is its help.
        sed -n '2,/^[^#]/{/^#/!q;s/^# \{0,1\}//;p}' "$script"
        exit 0
        ;;
      --no-install) install=no ;;
      *)
        printf "error: unknown argument '%s'; see %s --help\n" "$argument" "$script" >&2
        exit 2
        ;;
    esac
  done
  [[ "$install" == no ]] || install_packages "${PACKAGES[@]}"
}
