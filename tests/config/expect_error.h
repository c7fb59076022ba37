// Checks of the one-line errors of policy files.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "config/plan.h"
#include "support/error.h"

namespace dspark {

/// The message of the error that `text` gives, with its exit code checked; empty if it gives none.
inline std::string plan_error(const std::string& text) {
  try {
    (void)parse_plan(text, "p.yaml");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::policy) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "";
}

/// Expects an error at `where` ("line:column") whose message has `part` in it.
inline void expect_error(const std::string& text, const std::string& where,
                         const std::string& part) {
  const std::string message = plan_error(text);
  EXPECT_EQ(message.substr(0, message.find(": ")), "p.yaml:" + where) << text << "\n-> " << message;
  EXPECT_NE(message.find(part), std::string::npos) << text << "\n-> " << message;
  EXPECT_NE(message.find("; "), std::string::npos) << "no remedy: " << message;
}

/// A policy file with one more line after its version.
inline std::string with_version(const std::string& line) { return "version: 1\n" + line + "\n"; }

/// A policy file with one policy.
inline std::string with_policy(const std::string& policy) {
  return "version: 1\npolicies:\n- " + policy + "\n";
}

}  // namespace dspark
