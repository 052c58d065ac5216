"""How a thread waits and is woken: mail, rings, timers, parked requests, the I/O crew, and the memory budget."""
