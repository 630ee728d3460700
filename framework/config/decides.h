#pragma once
// What each config key decides: whether another value makes another run, and who may have another one.

#include <cstdint>
#include <string>
#include <vector>

#include "framework/config/config.h"

namespace holdfast {

/// What follows from the value of a key.
enum class Decides {
  kUnsaid,
  kBits,     // what a step computes: another value is another run
  kContent,  // which files are read and written, and what is looked at and logged: no bit of the curve
  kLayout,   // who holds and computes what, and how: all workers of a run have the same, the bits do not depend on it
  kHost,     // how fast or how patient this process is: may differ from machine to machine
};

/// What the key "section.key" decides; kUnsaid if there is none.
Decides WhatDecides(const std::string& key);

/// `config` with the keys that decide something of `kept`; all others have their defaults.
Config OnlyKeysThat(const std::vector<Decides>& kept, const Config& config);

/// `config` with the keys of `from` that decide something of `taken`.
Config WithKeysThat(const std::vector<Decides>& taken, const Config& from, const Config& config);

/// Of what decides the bits of a run: not of how it is spread, watched, saved or shown, nor of where its files lie.
uint64_t BitsDigest(const Config& config);

}  // namespace holdfast
