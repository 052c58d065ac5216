"""Fetch sessions (KIP-227): session epochs, the order of fetching, and eviction from the cache."""

import threading

import pytest

from kafkacore._fast.hot.fetch_session import FetchSessionCache, WatchedPartition, live, partition_hash
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment

NOT_FOUND, BAD_EPOCH, MIXED = 70, 71, 106


@pytest.fixture
def cache():
    return FetchSessionCache(slots=2, seed=7)


def keys(*indexes, topic=b"t"):
    return [(topic, index) for index in indexes]


def test_session_takes_each_epoch_once_in_order(cache):
    session = cache.add(keys(0), False, 0)
    assert cache.update(session, 1, False, 1)[0] == 0
    assert cache.update(session, 1, False, 2)[0] == BAD_EPOCH
    assert cache.update(session, 2, False, 3)[0] == 0


def test_cache_reports_not_found_when_the_session_is_removed(cache):
    session = cache.add(keys(0), False, 0)
    cache.remove(session)
    assert cache.update(session, 1, False, 1) == (NOT_FOUND, [])
    assert len(cache) == 0


def test_session_refuses_to_mix_names_and_topic_ids(cache):
    session = cache.add(keys(0), False, 0)
    assert cache.update(session, 1, True, 1)[0] == MIXED


def test_changes_add_and_forget_partitions_and_keep_the_order(cache):
    session = cache.add(keys(0, 1, 2), False, 0)
    error, order = cache.update(session, 1, False, 1, keys=keys(9, topic=b"u"), forgotten=keys(1))
    assert (error, order) == (0, [(b"t", 0), (b"t", 2), (b"u", 9)])


def test_partition_that_returned_data_goes_to_the_end(cache):
    session = cache.add(keys(0, 1, 2), False, 0)
    cache.returned(session, b"t", 0)
    assert [index for _, index in cache.update(session, 1, False, 1)[1]] == [1, 2, 0]


def test_topic_ids_of_one_topic_differ_by_partition(cache):
    topic_id = bytes(range(16))
    session = cache.add([(topic_id, 0), (topic_id, 1)], True, 0)
    assert cache.update(session, 1, True, 1)[1] == [(topic_id, 0), (topic_id, 1)]
    with pytest.raises(ValueError, match="16 bytes"):
        cache.add([(b"short", 0)], True, 0)


def test_full_cache_refuses_a_session_until_another_is_stale_or_smaller(cache):
    first, second = cache.add(keys(0, 1), False, 0), cache.add(keys(0, 1), False, 0)
    assert cache.add(keys(0), False, 1) == 0
    assert cache.update(second, 1, False, 120_001)[0] == 0
    assert cache.add(keys(0), False, 120_002) != 0  # the first session has not been used for two minutes
    assert cache.update(first, 1, False, 120_003)[0] == NOT_FOUND
    # The new session is larger than one that has existed for two minutes.
    assert cache.add(keys(*range(50)), False, 120_004) != 0
    assert cache.evictions == 2


def test_follower_takes_a_clients_place_when_the_cache_is_full(cache):
    large, small = cache.add(keys(0, 1), False, 0), cache.add(keys(0), False, 0)
    follower = cache.add(keys(0), False, 1, privileged=True)
    assert follower != 0
    assert cache.update(small, 1, False, 2)[0] == NOT_FOUND
    for session in (large, follower):
        assert cache.update(session, 1, False, 120_010)[0] == 0
    client = cache.add(keys(*range(50)), False, 120_011)
    assert client != 0
    assert cache.update(large, 2, False, 120_012)[0] == NOT_FOUND
    assert cache.add(keys(*range(90)), False, 120_013) == 0, "a client's session must not evict a follower's session"
    assert cache.update(follower, 2, False, 120_014)[0] == 0


def test_session_finds_each_of_a_thousand_partitions(cache):
    session = cache.add(keys(*range(1000)), False, 0)
    error, order = cache.update(session, 1, False, 1, forgotten=keys(*range(0, 1000, 2)))
    assert error == 0
    assert [index for _, index in order] == list(range(1, 1000, 2))
    cache.update(session, 2, False, 2)
    assert cache.partition_count == 500


def test_cache_bounds_the_memory_of_all_sessions():
    cache = FetchSessionCache(slots=100, memory_bytes=20_000)
    held = [cache.add(keys(*range(20)), False, 0) for _ in range(10)]
    taken = [session for session in held if session]
    assert 0 < len(taken) < len(held)
    assert cache.used_bytes <= 20_000
    assert cache.add(keys(*range(1000)), False, 0) == 0  # the session is larger than the whole cache, so it evicts none
    assert len(cache) == len(taken)
    for session in taken:
        cache.remove(session)
    assert cache.used_bytes == 0
    assert cache.add(keys(*range(20)), False, 0) != 0


def test_cache_evicts_a_stale_session_when_a_new_one_needs_its_memory():
    cache = FetchSessionCache(slots=100, memory_bytes=20_000)
    while cache.add(keys(*range(20)), False, 0):
        pass
    before = len(cache)
    assert cache.add(keys(*range(20)), False, 120_000) == 0
    assert cache.add(keys(*range(20)), False, 120_001) != 0
    assert len(cache) == before
    assert cache.evictions == 1


def test_session_ends_when_it_grows_beyond_the_memory():
    cache = FetchSessionCache(slots=100, memory_bytes=20_000)
    small, growing = cache.add(keys(0), False, 0), cache.add(keys(0), False, 0)
    epoch = 1
    while cache.update(growing, epoch, False, 1, keys=keys(*range(10 * epoch, 10 * epoch + 10)))[0] == 0:
        epoch += 1
        assert epoch < 100
    assert cache.update(growing, epoch, False, 1) == (NOT_FOUND, [])
    assert cache.update(small, 1, False, 1)[0] == 0
    assert cache.used_bytes < 1000


def siphash_1_3(key: bytes, data: bytes) -> int:
    """Computes SipHash-1-3 according to the paper's pseudocode (Aumasson, Bernstein: SipHash)."""
    words = [int.from_bytes(key[at : at + 8], "little") for at in (0, 8)]
    v = [
        words[at % 2] ^ one
        for at, one in enumerate((0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573))
    ]

    def turn(word: int, bits: int) -> int:
        return (word << bits | word >> 64 - bits) & 0xFFFFFFFFFFFFFFFF

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0] = v[0] + v[1] & 0xFFFFFFFFFFFFFFFF
            v[1] = turn(v[1], 13) ^ v[0]
            v[0] = turn(v[0], 32)
            v[2] = v[2] + v[3] & 0xFFFFFFFFFFFFFFFF
            v[3] = turn(v[3], 16) ^ v[2]
            v[0] = v[0] + v[3] & 0xFFFFFFFFFFFFFFFF
            v[3] = turn(v[3], 21) ^ v[0]
            v[2] = v[2] + v[1] & 0xFFFFFFFFFFFFFFFF
            v[1] = turn(v[1], 17) ^ v[2]
            v[2] = turn(v[2], 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        rounds(1)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(3)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 31, 249])
def test_session_hash_depends_on_a_secret_key(size):
    key, topic = bytes(range(16)), bytes(size * 7 % 251 for size in range(size))
    seed = int.from_bytes(b"\xaa" * 8 + key, "little")
    assert partition_hash(seed, topic, 5) == siphash_1_3(key, (5).to_bytes(8, "little") + topic)
    assert partition_hash(seed, topic, 5) != partition_hash(seed ^ 1 << 100, topic, 5)
    assert partition_hash(seed, topic, 5) != partition_hash(seed, topic, 6)


def test_closed_cache_frees_its_sessions():
    before = live()
    cache = FetchSessionCache(slots=5, seed=1)
    for _ in range(9):
        cache.add(keys(0, 1), False, 0)
    assert live() == before + 5
    del cache
    assert live() == before


def test_forgotten_partition_is_not_marked_when_its_log_changes_at_that_moment(tmp_path):
    partition = PartitionHandle(LogDirectory(Environment(), str(tmp_path)), "t", 0)
    watched = WatchedPartition(partition)
    forgets = threading.Thread(target=watched.forget_while_told)
    forgets.start()
    watched.tell_while_forgotten()
    forgets.join()
    # A mark would leave a pointer to freed memory.
    assert watched.marked == 0
