// Frames of a control connection, with bytes that no rank makes.
#include <gtest/gtest.h>

#include "base/error.h"
#include "gang/network/control_frames.h"

namespace gangway::network {
namespace {

Secret key(uint8_t first) {
  Secret secret;
  secret[0] = first;
  return secret;
}

TEST(ControlFrames, AFrameComesAsItWentAlsoByteByByte) {
  ControlWriter writer(key(1));
  ControlReader reader(key(1));
  std::string bytes = writer.seal({ControlKind::note, 77, "hello"});
  bytes += writer.seal({});
  bytes += writer.seal({ControlKind::broken, 1, std::string(kControlBody, 'x')});
  std::vector<ControlFrame> frames;
  for (const char byte : bytes) {
    reader.add({&byte, 1});
    while (auto frame = reader.next()) frames.push_back(*frame);
  }
  ASSERT_EQ(frames.size(), 3U);
  EXPECT_EQ(frames[0].body, "hello");
  EXPECT_EQ(frames[0].gang, 77U);
  EXPECT_EQ(frames[1].kind, ControlKind::beat);
  EXPECT_EQ(frames[2].body.size(), kControlBody);
}

TEST(ControlFrames, AChangedByteIsCorrupt) {
  const std::string good = ControlWriter(key(1)).seal({ControlKind::note, 77, "hello"});
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    ControlReader reader(key(1));
    reader.add(bad);
    try {
      EXPECT_FALSE(reader.next().has_value()) << "byte " << at;  // a longer body: more bytes are due
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::corrupt);
    }
  }
}

TEST(ControlFrames, ARepeatedFrameIsCorrupt) {
  const std::string once = ControlWriter(key(1)).seal({ControlKind::note, 77, "hello"});
  ControlReader reader(key(1));
  reader.add(once + once);
  EXPECT_TRUE(reader.next().has_value());
  EXPECT_THROW(reader.next(), Error);
}

TEST(ControlFrames, AFrameUnderAnotherKeyIsCorrupt) {
  ControlReader reader(key(2));
  reader.add(ControlWriter(key(1)).seal({}));
  EXPECT_THROW(reader.next(), Error);
}

TEST(ControlFrames, ALongBodyIsRefusedBeforeItComes) {
  ControlReader reader(key(1));
  std::string frame("\x01\0\0\0\xff\xff\xff\x7f", 8);
  frame.append(8, '\0');
  reader.add(frame);
  EXPECT_THROW(reader.next(), Error);
}

}  // namespace
}  // namespace gangway::network
