"""Fetch sessions (KIP-227): epochs, order of fetching, eviction."""

import pytest

from kafkacore._fast.fetch_session import FetchSessionCache, live

NOT_FOUND, BAD_EPOCH, MIXED = 70, 71, 106


@pytest.fixture
def cache():
    return FetchSessionCache(slots=2, seed=7)


def keys(*indexes, topic=b"t"):
    return [(topic, index) for index in indexes]


def test_an_epoch_is_taken_once_and_the_next_follows(cache):
    session = cache.add(keys(0), False, 0)
    assert cache.update(session, 1, False, 1)[0] == 0
    assert cache.update(session, 1, False, 2)[0] == BAD_EPOCH
    assert cache.update(session, 2, False, 3)[0] == 0


def test_a_session_that_is_gone_is_not_found(cache):
    session = cache.add(keys(0), False, 0)
    cache.remove(session)
    assert cache.update(session, 1, False, 1) == (NOT_FOUND, [])
    assert len(cache) == 0


def test_names_and_topic_ids_do_not_mix(cache):
    session = cache.add(keys(0), False, 0)
    assert cache.update(session, 1, True, 1)[0] == MIXED


def test_changes_add_and_forget_and_keep_the_order(cache):
    session = cache.add(keys(0, 1, 2), False, 0)
    error, order = cache.update(session, 1, False, 1, keys=keys(9, topic=b"u"), forgotten=keys(1))
    assert (error, order) == (0, [(b"t", 0), (b"t", 2), (b"u", 9)])


def test_what_returned_data_goes_to_the_end(cache):
    session = cache.add(keys(0, 1, 2), False, 0)
    cache.returned(session, b"t", 0)
    assert [index for _, index in cache.update(session, 1, False, 1)[1]] == [1, 2, 0]


def test_topic_ids_of_one_topic_differ_by_partition(cache):
    topic_id = bytes(range(16))
    session = cache.add([(topic_id, 0), (topic_id, 1)], True, 0)
    assert cache.update(session, 1, True, 1)[1] == [(topic_id, 0), (topic_id, 1)]
    with pytest.raises(ValueError, match="16 bytes"):
        cache.add([(b"short", 0)], True, 0)


def test_a_full_cache_refuses_until_one_is_stale_or_smaller(cache):
    first, second = cache.add(keys(0, 1), False, 0), cache.add(keys(0, 1), False, 0)
    assert cache.add(keys(0), False, 1) == 0
    assert cache.update(second, 1, False, 120_001)[0] == 0
    assert cache.add(keys(0), False, 120_002) != 0  # the first was not used for two minutes
    assert cache.update(first, 1, False, 120_003)[0] == NOT_FOUND
    assert cache.add(keys(*range(50)), False, 120_004) != 0  # larger than a settled one
    assert cache.evictions == 2


def test_a_thousand_partitions_are_each_found_again(cache):
    session = cache.add(keys(*range(1000)), False, 0)
    error, order = cache.update(session, 1, False, 1, forgotten=keys(*range(0, 1000, 2)))
    assert error == 0
    assert [index for _, index in order] == list(range(1, 1000, 2))
    cache.update(session, 2, False, 2)
    assert cache.partition_count == 500


def test_a_closed_cache_leaves_no_session_behind():
    before = live()
    cache = FetchSessionCache(slots=5, seed=1)
    for _ in range(9):
        cache.add(keys(0, 1), False, 0)
    assert live() == before + 5
    del cache
    assert live() == before
