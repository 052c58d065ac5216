"""The ways in which a thread waits and is woken: mail (messages to a thread), rings (bounded queues), timers, parked
requests, the I/O thread pool, and the budget for the memory of requests."""
