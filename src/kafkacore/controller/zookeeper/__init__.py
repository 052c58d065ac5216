"""The controller of ZooKeeper mode, as the document "Kafka Controller Redesign" (in comments: the redesign) describes
it.

It has one event queue (`event_queue`) and runs one event at a time. An event reads the cluster's state when it runs.
`protocols` has a module for each of the document's ten protocols. The code in this package uses no clock, socket,
thread or source of random numbers.
"""
