// As much of Arduino as the sketch uses, on standard input and output.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

struct SerialLine {
    void begin(long) {}
    size_t readBytes(char *to, size_t size) {
        const size_t got = std::fread(to, 1, size, stdin);
        if (got == 0) std::exit(0);
        return got;
    }
    void print(const char *text) { std::fputs(text, stdout); }
    void println(const char *text) { std::puts(text); }
    void println(double number) { std::printf("%.6f\n", number); }
    void println(uint32_t number) { std::printf("%u\n", static_cast<unsigned>(number)); }
};
static SerialLine Serial;

void setup();
void loop();
