from kafkacore._fast.schema.view import Binding

BINDINGS: dict[str, Binding]
