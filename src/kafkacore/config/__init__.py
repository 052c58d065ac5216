"""Every key of a server.properties file and of a topic, with Kafka's name, type, default and check. Each key also has a
mode, which determines whether the key can change at run time.

`BrokerConfig` configures a node. `TopicConfig` configures the logs of a topic. The keys themselves are data in
`tables/`.
"""

from kafkacore.config.broker import BrokerConfig
from kafkacore.config.errors import ConfigError
from kafkacore.config.topic import TopicConfig

__all__ = ["BrokerConfig", "ConfigError", "TopicConfig"]
