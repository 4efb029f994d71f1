// What a stranger, or a member gone wrong, can send to a live server.
#include <gtest/gtest.h>
#include <malloc.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <new>
#include <random>
#include <thread>

#include "base/error.h"
#include "gang/rendezvous/frames.h"
#include "gang/rendezvous/handshake.h"
#include "gang/rendezvous/hmac.h"
#include "gang/rendezvous/store.h"
#include "gang/rendezvous/store_socket.h"
#include "gang/rendezvous/tcp_store.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GANGWAY_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define GANGWAY_TEST_SANITIZED 1
#endif
#endif
#ifdef GANGWAY_TEST_SANITIZED
#include <sanitizer/allocator_interface.h>
#endif

namespace gangway {
namespace {

int64_t allocated_bytes() {
#ifdef GANGWAY_TEST_SANITIZED
  return static_cast<int64_t>(__sanitizer_get_current_allocated_bytes());
#else
  const struct mallinfo2 facts = mallinfo2();
  return static_cast<int64_t>(facts.uordblks + facts.hblkhd);
#endif
}

class Hostile : public testing::Test {
 protected:
  void SetUp() override {
    static int number = 0;
    options_.secret.fill(9);
    options_.job = "hostile." + std::to_string(getpid()) + "." + std::to_string(++number);
    options_.size = 4;
    options_.timeout_ms = 20'000;
    store_ = make_tcp_store(options_);
    store_->put("key", "value");
  }

  // The server is alive, lets a true member in, and nothing was changed.
  void expect_unharmed() {
    TcpStoreOptions options = options_;
    options.rank = 1;
    EXPECT_EQ(make_tcp_store(options)->get("key"), "value");
    EXPECT_EQ(store_->get("key"), "value");
  }

  Descriptor connect() {
    for (int i = 0; i < 100; ++i) {
      Descriptor fd = store_connect(options_, Deadline::after_ms(1000));
      if (fd) return fd;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "the server takes no connection";
    return {};
  }

  static void send_bytes(const Descriptor& fd, std::string_view bytes) {
    // The server may have hung up: that is what is hoped for.
    (void)send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  // Up to `wanted` bytes; less when the server hangs up or says nothing for `ms`.
  static std::string receive(const Descriptor& fd, size_t wanted, int ms = 2000) {
    std::string out;
    while (out.size() < wanted) {
      pollfd one{fd.get(), POLLIN, 0};
      if (poll(&one, 1, ms) <= 0) break;
      std::array<char, 4096> bytes;
      const ssize_t n = recv(fd.get(), bytes.data(), std::min(bytes.size(), wanted - out.size()), 0);
      if (n <= 0) break;
      out.append(bytes.data(), static_cast<size_t>(n));
    }
    return out;
  }

  static bool hung_up(const Descriptor& fd, int ms = 4000) {
    pollfd one{fd.get(), POLLIN, 0};
    char byte;
    return poll(&one, 1, ms) > 0 && recv(fd.get(), &byte, 1, 0) <= 0;
  }

  Hello hello(uint32_t rank = 2) const {
    Hello out{rank, 4, 12345, {}};
    random_bytes(out.nonce);
    return out;
  }

  struct Session {
    Descriptor fd;
    FrameReader reader;
    FrameWriter writer;
    std::string greeting, proof;  // as they were sent
  };

  // A true member, by hand.
  Session enter() {
    Descriptor fd = connect();
    const auto greeting = encode_hello(hello());
    send_bytes(fd, as_text(greeting));
    const std::string answer = receive(fd, kAnswerBytes);
    EXPECT_EQ(answer.size(), kAnswerBytes);
    std::array<uint8_t, 32> nonce{};
    std::copy_n(answer.begin(), 32, nonce.begin());
    const Transcript transcript(options_.secret, options_.job, greeting, nonce);
    const Digest proof = transcript.client_proof();
    send_bytes(fd, as_text(proof));
    EXPECT_EQ(receive(fd, 64).size(), 64U) << "the welcome";
    return {std::move(fd), FrameReader(transcript.to_client_key()), FrameWriter(transcript.to_server_key()),
            std::string(as_text(greeting)), std::string(as_text(proof))};
  }

  static StoreFrame put(const std::string& value) {
    return {.kind = FrameKind::put, .wait_ms = 0, .request = 1, .key = "key", .value = value};
  }

  TcpStoreOptions options_;
  std::shared_ptr<Store> store_;
  std::mt19937 random_{20260101};
};

TEST_F(Hostile, RandomBytesNeverJoin) {
  for (int i = 0; i < 1500; ++i) {
    const Descriptor fd = connect();
    std::string bytes(random_() % 400, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    if (i % 3 == 0) bytes = std::string(as_text(encode_hello(hello()))) + bytes;  // past the first door
    send_bytes(fd, bytes);
    if (i % 50 == 0) {
      EXPECT_LE(receive(fd, 1000, 20).size(), kAnswerBytes) << "an answer, never a welcome";
    }
  }
  expect_unharmed();
}

TEST_F(Hostile, EveryChangedBitOfAHandshakeIsRefused) {
  for (size_t at = 0; at < kHelloBytes + kProofBytes; ++at) {
    const Descriptor fd = connect();
    auto greeting = encode_hello(hello());
    const auto meant = greeting;
    const uint8_t flip = static_cast<uint8_t>(1U << (random_() % 8));
    if (at < kHelloBytes) greeting[at] ^= flip;
    send_bytes(fd, as_text(greeting));
    const std::string answer = receive(fd, kAnswerBytes);
    if (answer.size() < kAnswerBytes) continue;  // refused at once: magic, or a rank out of range
    std::array<uint8_t, 32> nonce{};
    std::copy_n(answer.begin(), 32, nonce.begin());
    Digest proof = Transcript(options_.secret, options_.job, meant, nonce).client_proof();
    if (at >= kHelloBytes) proof[at - kHelloBytes] ^= flip;
    send_bytes(fd, as_text(proof));
    EXPECT_EQ(receive(fd, 1), "") << "byte " << at;
  }
  expect_unharmed();
}

TEST_F(Hostile, AnotherSecretOrJobDoesNotJoin) {
  TcpStoreOptions options = options_;
  options.host = "127.0.0.1";
  // By name alone the abstract socket is not found without the secret, so this goes over a port.
  options.port = 20000 + getpid() % 20000;
  const auto server = make_tcp_store(options);
  options.rank = 1;
  for (const bool secret : {true, false}) {
    TcpStoreOptions wrong = options;
    if (secret)
      wrong.secret[31] ^= 1;
    else
      wrong.job += "x";
    try {
      make_tcp_store(wrong);
      ADD_FAILURE() << "joined";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::gang) << error.message();
    }
  }
  // The ranks that wait for it can say so.
  std::string known;
  for (int i = 0; i < 500 && known.empty(); ++i, usleep(10'000)) known = server->refused();
  EXPECT_NE(known.find("; a process that says it is rank 1 of "), std::string::npos) << known;
  EXPECT_NE(known.find("GANGWAY_SECRET_FILE"), std::string::npos) << known;
  // A stranger who does not mind what the server proves.
  options_ = options;
  const Descriptor fd = connect();
  const auto greeting = encode_hello(hello());
  send_bytes(fd, as_text(greeting));
  const std::string answer = receive(fd, kAnswerBytes);
  ASSERT_EQ(answer.size(), kAnswerBytes);
  std::array<uint8_t, 32> nonce{};
  std::copy_n(answer.begin(), 32, nonce.begin());
  Secret guess = options.secret;
  guess[0] ^= 1;
  send_bytes(fd, as_text(Transcript(guess, options.job, greeting, nonce).client_proof()));
  EXPECT_EQ(receive(fd, 1), "");
  // Nor does the server's own proof, sent back.
  const Descriptor mirror = connect();
  send_bytes(mirror, as_text(greeting));
  send_bytes(mirror, receive(mirror, kAnswerBytes).substr(32));
  EXPECT_EQ(receive(mirror, 1), "");
}

TEST_F(Hostile, AReplayedSessionDoesNotJoin) {
  Session session = enter();
  const std::string frame = session.writer.seal(put("value"));
  send_bytes(session.fd, frame);
  EXPECT_EQ(receive(session.fd, 64).size(), 64U);
  const Descriptor fd = connect();
  send_bytes(fd, session.greeting + session.proof + frame);
  EXPECT_EQ(receive(fd, 1000).size(), kAnswerBytes);
  EXPECT_TRUE(hung_up(fd));
  expect_unharmed();
}

TEST_F(Hostile, AReplayedOrReorderedFrameEndsTheConnection) {
  Session replay = enter();
  const std::string frame = replay.writer.seal(put("value"));
  send_bytes(replay.fd, frame);
  EXPECT_EQ(receive(replay.fd, 64).size(), 64U);
  store_->put("key", "newer");
  send_bytes(replay.fd, frame);
  EXPECT_TRUE(hung_up(replay.fd));
  EXPECT_EQ(store_->get("key"), "newer");
  store_->put("key", "value");

  Session reorder = enter();
  reorder.writer.seal(put("first"));
  send_bytes(reorder.fd, reorder.writer.seal(put("second")));
  EXPECT_TRUE(hung_up(reorder.fd));
  expect_unharmed();
}

TEST_F(Hostile, ChangedFramesEndTheConnection) {
  const size_t whole = enter().writer.seal(put("other")).size();
  for (size_t at = 0; at < whole; ++at) {
    Session session = enter();
    std::string frame = session.writer.seal(put("other"));
    frame[at] = static_cast<char>(frame[at] ^ (1 << (random_() % 8)));
    send_bytes(session.fd, frame);
    ASSERT_TRUE(hung_up(session.fd)) << "byte " << at;
  }
  expect_unharmed();
}

TEST_F(Hostile, OversizedLengthsAreRefusedBeforeMemoryIsTaken) {
  for (const uint32_t bytes : {uint32_t{kStoreValueLimit} + 1, 0x7fffffffU, 0xffffffffU}) {
    for (const bool in_key : {true, false}) {
      FrameHead head;
      head.kind = FrameKind::put;
      (in_key ? head.key_bytes : head.value_bytes) = bytes;
      const auto encoded = encode_head(head);
      // Vouched for by a member, and not.
      const Secret key;
      FrameReader reader(key);
      const std::string start =
          std::string(as_text(encoded)) + std::string(as_text(hmac_sha256(key, {as_text(encoded)})));
      const std::span<uint8_t> room = reader.room();
      ASSERT_EQ(room.size(), start.size());
      std::copy(start.begin(), start.end(), room.begin());
      const int64_t before = allocated_bytes();
      EXPECT_THROW(reader.filled(room.size()), Error);
      EXPECT_LT(allocated_bytes() - before, 64 << 10);
      Session session = enter();
      send_bytes(session.fd, start);  // not this session's key
      EXPECT_TRUE(hung_up(session.fd));
    }
  }
  expect_unharmed();
}

TEST_F(Hostile, AnswersSentAsQuestionsEndTheConnection) {
  for (const FrameKind kind :
       {FrameKind::value, FrameKind::absent, FrameKind::done, FrameKind::refused, FrameKind::welcome}) {
    Session session = enter();
    send_bytes(session.fd,
               session.writer.seal({.kind = kind, .wait_ms = 0, .request = 1, .key = "key", .value = ""}));
    EXPECT_TRUE(hung_up(session.fd));
  }
  expect_unharmed();
}

TEST_F(Hostile, HalfOpenConnectionsAreFewAndTakeNoRoom) {
  expect_unharmed();  // all that is made once has been made
  const int64_t before = allocated_bytes();
  std::vector<Descriptor> strangers;
  strangers.reserve(300);
  const std::string half = std::string(as_text(encode_hello(hello()))).substr(0, kHelloBytes - 1);
  for (int i = 0; i < 300; ++i) {
    strangers.push_back(connect());
    if (i % 2 == 0) send_bytes(strangers.back(), half);
    if (i % 5 == 1) send_bytes(strangers.back(), as_text(encode_hello(hello())));
  }
  expect_unharmed();
  EXPECT_LT(allocated_bytes() - before, 1 << 20);
  int alive = 0;
  for (const Descriptor& fd : strangers) {
    receive(fd, kAnswerBytes, 0);
    alive += !hung_up(fd, 0);
  }
  EXPECT_LE(alive, 128);
  EXPECT_GT(alive, 100) << "the newest stay";
}

TEST_F(Hostile, ASilentConnectionIsClosed) {
  const Descriptor silent = connect();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(hung_up(silent, 9000));
  EXPECT_GT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(3000));
  expect_unharmed();
}

TEST_F(Hostile, TwoProcessesOfOneRankAreDistinguished) {
  const Session session = enter();  // rank 2, of another process by its number
  TcpStoreOptions options = options_;
  options.rank = 2;
  try {
    make_tcp_store(options);
    ADD_FAILURE() << "joined";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(error.message().find("two processes were started as rank 2 of 4"), std::string::npos)
        << error.message();
  }
}

TEST(Frames, ComeThroughInPiecesOfAnySize) {
  Secret key;
  key.fill(3);
  for (const size_t piece : {size_t{1}, size_t{3}, size_t{64}, size_t{4096}}) {
    FrameWriter writer(key);
    FrameReader reader(key);
    std::string bytes;
    for (uint64_t i = 0; i < 5; ++i)
      bytes += writer.seal({.kind = FrameKind::wait,
                            .wait_ms = 7,
                            .request = i,
                            .key = std::string(i, 'k'),
                            .value = std::string(i * 300, 'v')});
    uint64_t arrived = 0;
    for (size_t at = 0; at < bytes.size();) {
      const std::span<uint8_t> room = reader.room();
      const size_t n = std::min({piece, room.size(), bytes.size() - at});
      std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(at), n, room.begin());
      at += n;
      if (!reader.filled(n)) continue;
      const StoreFrame frame = reader.take();
      EXPECT_EQ(frame.kind, FrameKind::wait);
      EXPECT_EQ(frame.wait_ms, 7U);
      EXPECT_EQ(frame.request, arrived);
      EXPECT_EQ(frame.key, std::string(arrived, 'k'));
      EXPECT_EQ(frame.value, std::string(arrived * 300, 'v'));
      ++arrived;
    }
    EXPECT_EQ(arrived, 5U);
  }
}

TEST(Secret, IsWipedWhenItGoes) {
  alignas(Secret) std::array<uint8_t, sizeof(Secret)> place{};
  auto* const secret = new (place.data()) Secret;
  secret->fill(7);
  EXPECT_EQ(std::count(place.begin(), place.end(), 7), 32);
  secret->~Secret();
  EXPECT_EQ(std::count(place.begin(), place.end(), 0), 32);
}

TEST(Hmac, EqualsPythonsOverTheFramedPart) {
  // Python's hmac with SHA-256 over the part's length (8 bytes, little endian) and the part.
  const std::string key = "Jefe", data = "what do ya want for nothing?";
  const Digest digest =
      hmac_sha256(std::span(reinterpret_cast<const uint8_t*>(key.data()), key.size()), {data});
  EXPECT_EQ(hex(digest), "c0b77cf99718fc7f09c8727ff74305bde25761b2db20b1081cfcc82a3ec6029e");
}

}  // namespace
}  // namespace gangway
