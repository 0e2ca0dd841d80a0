"""From journals to lake tables to statistics: the recorder, the Spark jobs and the questions one can ask of them.

The broker imports nothing of it but `telemetry` and `spool`, which need no more than Python.
"""
