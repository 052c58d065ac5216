"""Messages between threads arrive once and in order, and no wake-up is lost."""

import select
import threading

from kafkacore._fast.wait import mail
from kafkacore._fast.wait.mail import PyInbox


def test_inbox_delivers_mail_in_order() -> None:
    inbox = PyInbox()
    inbox.post(1, 1000)
    assert inbox.deliver() == list(range(1, 1001))
    assert inbox.deliver() == []


def test_post_wakes_a_sleeping_receiver_and_not_a_busy_one() -> None:
    inbox = PyInbox()
    inbox.post(1)
    assert select.select([inbox.fileno()], [], [], 0)[0] == []
    assert not inbox.may_sleep()
    inbox.deliver()
    assert inbox.may_sleep()
    inbox.post(2)
    assert select.select([inbox.fileno()], [], [], 1)[0]
    inbox.awake()
    assert select.select([inbox.fileno()], [], [], 0)[0] == []
    assert inbox.deliver() == [2]


def test_inbox_loses_nothing_when_many_threads_post() -> None:
    each, senders = 20_000, 4
    inbox = PyInbox(each * senders)
    before = mail.live()
    threads = [
        threading.Thread(target=inbox.post, args=(number * each, each), daemon=True) for number in range(senders)
    ]
    for thread in threads:
        thread.start()
    last = [-1] * senders
    received = 0
    while received < each * senders:
        numbers = inbox.deliver()
        for number in numbers:
            assert number > last[number // each]
            last[number // each] = number
        received += len(numbers)
        if not numbers and inbox.may_sleep():
            assert select.select([inbox.fileno()], [], [], 10)[0], "a wake-up was lost"
            inbox.awake()
    for thread in threads:
        thread.join()
    assert mail.live() == before


def test_closed_inbox_frees_its_mail() -> None:
    before = mail.live()
    inbox = PyInbox()
    inbox.post(1, 10)
    del inbox
    assert mail.live() == before
