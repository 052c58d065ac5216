from kafkacore._fast.hot.hot import Hot
from kafkacore._fast.plane.plane import HotApi

def api(hot: Hot) -> HotApi: ...
