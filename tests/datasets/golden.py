#!/usr/bin/env python3
"""Prints the golden values of permutation_test.cpp, by the formula that impl/data/permutation.h states."""


def philox(key, index):
    words = [index & 0xFFFFFFFF, index >> 32, 0, 0]
    low, high = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p, q = 0xD2511F53 * words[0], 0xCD9E8D57 * words[2]
        words = [q >> 32 ^ words[1] ^ low, q & 0xFFFFFFFF, p >> 32 ^ words[3] ^ high, p & 0xFFFFFFFF]
        low, high = (low + 0x9E3779B9) & 0xFFFFFFFF, (high + 0xBB67AE85) & 0xFFFFFFFF
    return words


def permuted(count, key, i):
    bits = 3
    while count > 4**bits:
        bits += 1
    while True:
        left, right = i >> bits, i & (2**bits - 1)
        for step in range(8):
            left, right = right, left ^ philox(key, step << 32 | right)[0] & (2**bits - 1)
        i = left << bits | right
        if i < count:
            return i


def derived_key(key, part):
    words = philox(key, part)
    return words[1] << 32 | words[0]


assert philox(0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
key = derived_key(42, 7)
print(f"  EXPECT_EQ(derived_key(42, 7), {key}u);")
for count in (10, 1000, 10**12):
    values = ", ".join(f"{permuted(count, key, i)}u" for i in range(4))
    print(f"  EXPECT_EQ(first_four({count}, derived_key(42, 7)), (std::vector<uint64_t>{{{values}}}));")
