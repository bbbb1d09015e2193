// Storage that outlives the program: a file in the working folder.
#pragma once
#include <cstdint>
#include <cstdio>
#include <vector>

struct Storage {
    std::vector<uint8_t> bytes;
    void begin(size_t size) {
        bytes.assign(size, 0xff);
        if (std::FILE *file = std::fopen("eeprom", "rb")) {
            if (std::fread(bytes.data(), 1, size, file) != size) bytes.assign(size, 0xff);
            std::fclose(file);
        }
    }
    uint8_t read(int at) const { return bytes[static_cast<size_t>(at)]; }
    void write(int at, uint8_t byte) { bytes[static_cast<size_t>(at)] = byte; }
    bool commit() {
        std::FILE *file = std::fopen("eeprom", "wb");
        const bool whole = file && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
        if (file) std::fclose(file);
        return whole;
    }
};
static Storage EEPROM;
