"""How a broker registers, is fenced and leaves the cluster, without a controller."""

from kafkacore.protocol.uuid import Uuid
from kafkacore.server.lifecycle import AdvertisedListener, BrokerLifecycle, BrokerState

DIRECTORY = Uuid(bytes(range(16)))


def lifecycle() -> BrokerLifecycle:
    made = BrokerLifecycle(
        node_id=1,
        cluster_id="cluster",
        incarnation_id=Uuid(bytes(range(1, 17))),
        rack=None,
        listeners=[AdvertisedListener("PLAINTEXT", "localhost", 9092)],
        log_dir_ids=[DIRECTORY],
        features={"metadata.version": (1, 29)},
        heartbeat_interval_ms=2000,
        session_timeout_ms=9000,
    )
    made.start()
    return made


def running() -> BrokerLifecycle:
    made = lifecycle()
    made.registration_answered(0, 7)
    made.heartbeat_answered(0, is_caught_up=True, is_fenced=True, should_shut_down=False)
    made.want_unfenced()
    made.heartbeat_answered(0, is_caught_up=True, is_fenced=False, should_shut_down=False)
    return made


def test_registration_is_followed_by_a_heartbeat_at_once() -> None:
    broker = lifecycle()
    [listener] = broker.registration().listeners
    assert (listener.name, listener.host, listener.port) == ("PLAINTEXT", "localhost", 9092)
    assert broker.registration_answered(0, 7) == 0
    beat = broker.heartbeat(12)
    assert (beat.broker_epoch, beat.current_metadata_offset, beat.want_fence, beat.want_shut_down) == (
        7,
        12,
        True,
        False,
    )


def test_broker_asks_for_unfencing_at_once_when_it_is_caught_up_and_ready() -> None:
    broker = lifecycle()
    broker.registration_answered(0, 7)
    broker.want_unfenced()
    assert broker.heartbeat_answered(0, is_caught_up=True, is_fenced=True, should_shut_down=False) == 0
    assert broker.state is BrokerState.RECOVERY
    assert broker.heartbeat_answered(0, is_caught_up=True, is_fenced=False, should_shut_down=False) == 2000
    assert broker.state is BrokerState.RUNNING
    assert not broker.fenced


def test_backoff_grows_to_the_session_timeout_and_a_success_resets_it() -> None:
    broker = lifecycle()
    assert [broker.registration_answered(89, -1) for _ in range(9)] == [
        100,
        200,
        400,
        800,
        1600,
        3200,
        6400,
        9000,
        9000,
    ]
    assert broker.registration_answered(0, 3) == 0
    assert broker.failed() == 100


def test_controlled_shutdown_waits_for_the_controller() -> None:
    broker = running()
    assert broker.want_shutdown()
    assert broker.heartbeat(1).want_shut_down
    assert broker.heartbeat_answered(0, True, False, should_shut_down=False) == 50
    assert broker.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
    broker.heartbeat_answered(0, True, True, should_shut_down=True)
    assert broker.state is BrokerState.SHUTTING_DOWN


def test_broker_that_never_ran_needs_no_controlled_shutdown() -> None:
    assert not lifecycle().want_shutdown()


def test_heartbeats_name_an_offline_directory_until_the_controller_knows() -> None:
    broker = running()
    broker.log_dir_failed(DIRECTORY)
    assert broker.heartbeat(1).offline_log_dirs == [DIRECTORY]
    broker.heartbeat_answered(0, True, False, False, told=[DIRECTORY])
    assert broker.offline_log_dirs == {DIRECTORY: True}


def test_heartbeats_name_cordoned_directories_once_they_are_known() -> None:
    broker = running()
    assert broker.heartbeat(12).cordoned_log_dirs is None
    broker.cordoned_log_dirs = frozenset([DIRECTORY])
    assert broker.heartbeat(12).cordoned_log_dirs == [DIRECTORY]
    broker.cordoned_log_dirs = frozenset()
    assert broker.heartbeat(12).cordoned_log_dirs == []
