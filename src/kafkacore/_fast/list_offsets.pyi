from kafkacore._fast.hot import Hot
from kafkacore._fast.plane import HotApi

def api(hot: Hot) -> HotApi: ...
