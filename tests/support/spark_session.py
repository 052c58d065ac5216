"""A local Spark session for tests. Spark needs 10 to 20 seconds to start, so all test files that run in one process
share a session."""

import os
import shutil

from processes import PEERS, ROOT, need

MEMORY = "1g"
# Without its second compiler, the JVM reserves only 48 MB for compiled code, and all Spark tests together need more.
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
CONNECT_S = 120  # on a busy machine, a worker needs longer than Spark's default of 15 seconds to start and connect


def need_spark():
    """Skips the test with a one-line reason if Java or PySpark is missing. With CI=true the test fails instead."""
    need(shutil.which("java"), "no java: apt install openjdk-17-jdk-headless")
    need(installed(), "no PySpark: pip install kafkacore[spark], or ci/spark.sh")


def installed():
    try:
        import pyarrow as pa  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError:
        return False
    return True


def connector_jars():
    """Returns the jars of Spark's own Kafka connector for this version of PySpark. Returns an empty list if ci/spark.sh
    has not fetched them."""
    import pyspark

    directory = PEERS / f"spark-connector-{pyspark.__version__}"
    if not (directory / ".complete").exists():
        return []
    # PySpark itself contains Scala and slf4j.
    return sorted(jar for jar in directory.resolve().glob("*.jar") if not jar.name.startswith(("scala-", "slf4j-")))


def prepare_environment():
    """Makes Spark's workers run this Python interpreter, and lets them import kafkacore and the module that registers
    its formats."""
    from kafkacore.spark.workers import quick_python

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_AUTH_SOCKET_TIMEOUT"] = str(CONNECT_S)
    for name in ("SPARK_HOME", "PYSPARK_SUBMIT_ARGS"):
        os.environ.pop(name, None)
    # A test can put the packages of Spark Connect on the path.
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    connect = [path for path in given if path.endswith("spark-connect-packages")]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), *connect])
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = quick_python()


def start(directory, *, cores=2, memory=MEMORY, settings=None):
    """Starts a session that keeps its warehouse and its scratch files in `directory`."""
    prepare_environment()
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("kafkacore-tests")
        .config("spark.driver.memory", memory)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.python.authenticate.socketTimeout", f"{CONNECT_S}s")
        .config("spark.local.dir", str(directory / "scratch"))
        .config("spark.driver.extraJavaOptions", JAVA_OPTIONS)
        .config("spark.jars", ",".join(str(jar) for jar in connector_jars()))
    )
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
