"""The ways in which a thread waits and is woken: mail, rings, timers, parked requests, the I/O thread pool, and the
memory budget."""
