// The processes of the testbed: `mycroft-testbed rank …` and `mycroft-testbed relay …`.
#include <cstring>
#include <iostream>

#include "rank.h"

int main(int argc, char** argv) {
    if (argc > 1 && std::strcmp(argv[1], "rank") == 0) return mycroft::testbed::run_rank(argc, argv);
    if (argc > 1 && std::strcmp(argv[1], "relay") == 0) return mycroft::testbed::run_relay(argc, argv);
    std::cerr << "mycroft-testbed rank|relay …: started by mycroft testbed\n";
    return 2;
}
