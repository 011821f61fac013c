#pragma once

namespace mycroft::testbed {

// A training process: `rank PLAN RANK MEMORY-FD LISTEN`, LISTEN being `fd=N` or `ADDRESS:PORT`. Commands come
// on standard input: `fault …` (faults.h), `end STEP` (the last one). It tells on standard output: `ready`,
// `step N`, `fault …`, `wrong …`, `error …`. Returns the exit status.
int run_rank(int argc, char** argv);

// The network between hosts on loopback: `relay FD RANK-HOST…`, see relay.cpp.
int run_relay(int argc, char** argv);

}  // namespace mycroft::testbed
