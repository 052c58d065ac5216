from kafkacore._fast.hot.state import HotState
from kafkacore._fast.plane.plane import HotApi

def api(hot: HotState) -> HotApi: ...
